"""Reports the families, their permissions, and which families would stall, for people who plan upgrades.

Reads the setting of permitted families, the queue and the registered processors, and changes none of them.
``dovetail.ledger.permitted`` defines permissions; block production runs migrations.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

import structlog

from dovetail.ledger.permitted import (
    PERMITTED_AT,
    Permission,
    Permitted,
    awaiting_migration,
    permission_for,
    permitted_families,
)
from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.transaction import FAMILY_CHARACTERS_MAX
from dovetail.validator.core.mempool.queue import PendingQueue
from dovetail.validator.core.state.view import Stored
from dovetail.validator.processors.registry import Processors
from dovetail.validator.store import Store
from protos.node_pb2 import FamiliesResponse, FamilyStatus

FAMILIES_SHOWN_MAX: Final = 1_000
"""The most families that are reported, and the most entries of the setting that are examined."""

WARNINGS_MAX: Final = 100
WALKS_MAX: Final = 4
"""The most walks over the whole queue between two ticks, for all clients together."""

_GRACE_TICKS: Final = 10
"""Nothing is logged in the first ticks after a start, while processors connect again."""

_MESSAGE_CHARACTERS_MAX: Final = 500

MigrationOf = Callable[[Permission], tuple[str, str]]
"""The state of a version's migration as a name of FamilyStatus.Migration, and the reason if it was refused."""

log = structlog.get_logger("validator.families")


class Unready(NamedTuple):
    """The reason why ``family`` would stall: a sentence that stays the same while the reason holds."""

    family: FamilyVersion
    warning: str


class Families:
    """``migration_of``: a method of block production."""

    def __init__(self, store: Store, queue: PendingQueue, processors: Processors, migration_of: MigrationOf) -> None:
        self._store = store
        self._queue = queue
        self._processors = processors
        self._migration_of = migration_of
        self._leaf: bytes | None = None
        self._permitted: Permitted = None
        self._entries: dict[FamilyVersion, tuple[Permission, ...]] = {}
        """The setting's entries by family, because a search through all entries for each family would be slow."""
        self._migrated: set[Permission] = set()
        """Permissions whose migration is in a block, and therefore final."""
        self._walks = 0
        self._pending: Mapping[FamilyVersion, Counter[str]] = {}
        self._grace_ticks = _GRACE_TICKS
        self._seen: frozenset[Unready] = frozenset()
        self._logged: frozenset[Unready] = frozenset()

    def status(self) -> FamiliesResponse:
        """Every family that the setting names, a processor serves or a pending batch needs; NOT_READY without a chain.

        Reports at most ``FAMILIES_SHOWN_MAX`` families: first those of the setting in its order, then those with
        processors, then those of pending batches in order of arrival. Pending batches are last because anybody can fill
        the queue with names. Omits names that are too long to be registered or submitted.

        Counts pending batches at most ``WALKS_MAX`` times between two ticks; later calls repeat the last counts.
        """
        head = self._store.head
        permitted = self._read()
        response = FamiliesResponse(
            status="OK" if head else "NOT_READY", restricted=permitted is not None, timestamp=timestamp()
        )
        if head is not None:
            response.head_id, response.head_num = head.id, head.num
        counts = self._processors.counts()
        first = dict.fromkeys((*_named(permitted), *counts))
        pending = self._count_pending(first)
        for family in sorted(list(dict.fromkeys((*first, *pending)))[:FAMILIES_SHOWN_MAX]):
            status = response.families.add(
                family_name=family.name, family_version=family.version, processors=counts[family]
            )
            self._add_permission(status, family, permitted)
            for reason, batches in sorted(pending.get(family, {}).items()):
                status.pending.add(reason=reason, batches=batches)
        return response

    def unready(self) -> list[Unready]:
        """The families that would stall though the setting permits them now or later; at most ``WARNINGS_MAX``.

        Empty if the setting is absent: everything is permitted then, and no upgrade is planned.
        """
        permitted = self._read()
        if permitted is None:
            return []
        counts = self._processors.counts()
        unready: list[Unready] = []
        for family in _named(permitted):
            permission = self._permission(family, self._entries[family])
            if permission is None:
                continue
            warning = self._warning(permission, counts[family])
            if warning:
                unready.append(Unready(family, warning))
                if len(unready) >= WARNINGS_MAX:
                    break
        return unready

    def tick(self) -> None:
        """Log once each family that became unready, and each that is ready again. To be called at intervals.

        Logs nothing in the first ``_GRACE_TICKS``, and nothing that lasts less than one tick, such as the reconnection
        of a processor.
        """
        self._walks = 0
        if self._grace_ticks:
            self._grace_ticks -= 1
            return
        seen = frozenset(self.unready())
        for unready in sorted((seen & self._seen) - self._logged):
            log.warning("an upgrade would stall", family=str(unready.family), warning=unready.warning)
        for unready in sorted(self._logged - seen):
            log.info("an upgrade would not stall any more", family=str(unready.family), was=unready.warning)
        self._logged = (self._logged & seen) | (seen & self._seen)
        self._seen = seen

    def _count_pending(self, first: Iterable[FamilyVersion]) -> Mapping[FamilyVersion, Counter[str]]:
        """The numbers of pending batches by family and pending reason. The families of ``first`` come first."""
        if self._walks >= WALKS_MAX:
            return self._pending
        self._walks += 1
        pending: dict[FamilyVersion, Counter[str]] = {}
        for family in first:
            if len(pending) < FAMILIES_SHOWN_MAX:
                pending.setdefault(family, Counter())
        for entry in self._queue:
            for family in {transaction.family for transaction in entry.batch.transactions}:
                if family not in pending:
                    if len(pending) >= FAMILIES_SHOWN_MAX:
                        continue
                    pending[family] = Counter()
                pending[family][entry.reason] += 1
        self._pending = pending
        return pending

    def _read(self) -> Permitted:
        """The setting in the head's state."""
        head = self._store.head
        leaf = Stored(self._store.node, head.root).get(PERMITTED_AT) if head else None
        if leaf != self._leaf:
            self._permitted = permitted_families(lambda _: leaf)
            self._entries.clear()
            for entry in self._permitted or ():
                self._entries[entry.family] = (*self._entries.get(entry.family, ()), entry)
            self._leaf = leaf
            self._migrated.clear()
        return self._permitted

    def _next_block(self) -> int:
        head = self._store.head
        return head.num + 1 if head else 0

    def _add_permission(self, status: FamilyStatus, family: FamilyVersion, permitted: Permitted) -> None:
        """Add the permission for the next block, from the entry that permits the family.

        If every entry has ended, the last one is used.
        """
        status.migration = FamilyStatus.NONE
        # Counting costs time for each processor, and there may be many families and processors.
        status.migrating_processors = self._processors.count(family, migration=True) if status.processors else 0
        entries = self._entries.get(family, ())
        permission = self._permission(family, None if permitted is None else entries)
        if permission is None:
            status.permission = FamilyStatus.ENDED if entries else FamilyStatus.NOT_PERMITTED
            if not entries:
                return
            permission = max(entries, key=lambda entry: entry.until_block or 0)
        elif permission.covers(self._next_block()):
            status.permission = FamilyStatus.PERMITTED
        else:
            status.permission = FamilyStatus.WAITING
        if permission.from_block:
            status.from_block = permission.from_block
        if permission.until_block is not None:
            status.until_block = permission.until_block
        if permission.migrate:
            status.migrates.extend(permission.migrate)
            word, message = self._migration(permission)
            status.MergeFrom(FamilyStatus(migration=word, migration_message=message[:_MESSAGE_CHARACTERS_MAX]))

    def _permission(self, family: FamilyVersion, entries: Permitted) -> Permission | None:
        """The entry to report: one that waits for its migration, else the one that permits now or later."""
        awaiting = awaiting_migration(entries, self._next_block(), self._is_migrated)
        return awaiting[0] if awaiting else permission_for(family, entries, self._next_block())

    def _is_migrated(self, permission: Permission) -> bool:
        return self._migration(permission)[0] == "DONE"

    def _migration(self, permission: Permission) -> tuple[str, str]:
        if not permission.migrate:
            return "NONE", ""
        if permission in self._migrated:
            return "DONE", ""
        word, message = self._migration_of(permission)
        if word == "DONE":
            self._migrated.add(permission)
        return word, message

    def _warning(self, permission: Permission, processors: int) -> str | None:
        family = permission.family
        since = f"from block {permission.from_block} on" if permission.from_block else "now"
        migration, message = self._migration(permission)
        if migration == "REFUSED":
            return (
                f"the migration of {family} was refused, its batches wait: {message[:_MESSAGE_CHARACTERS_MAX]};"
                f" start a processor of it that migrates this state, it is tried again then"
            )
        if not processors:
            return (
                f"{family} is permitted {since}, and no processor takes its work here: start one, or its batches wait"
            )
        migrates = self._processors.count(family, migration=True)
        if migration == "NONE" and migrates and not permission.covers(self._next_block()):
            return (
                f"{family} is permitted {since} without a migration, though {migrates} of its {processors} processors"
                f" here migrate: call it off and plan it anew with --migrate, or its migration is left out"
            )
        before = self._migrates_before(permission) if migration == "DUE" else None
        if before is not None:
            return (
                f"{family} is permitted {since} and migrates state that {before} has to migrate before, which is not"
                f" done: see to that, or call it off, or the batches of {family} wait"
            )
        if migration == "DUE" and not migrates:
            return (
                f"{family} is permitted {since} and migrates {', '.join(permission.migrate)} first, which none of its"
                f" {processors} processors here does: start one whose handler has migrate, or its batches wait"
            )
        return None

    def _migrates_before(self, permission: Permission) -> FamilyVersion | None:
        """The version whose migration must come before this one's, or None."""
        awaiting = awaiting_migration(self._permitted, self._next_block(), self._is_migrated)
        if permission not in awaiting:
            return None
        ahead = awaiting[: awaiting.index(permission)]
        return next((entry.family for entry in ahead if permission.overlaps(entry)), None)


def timestamp() -> str:
    """The current time for a response, in UTC (RFC 3339)."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _named(permitted: Permitted) -> Iterable[FamilyVersion]:
    """The distinct families of the setting, in its order, without names that are too long."""
    named = dict.fromkeys(entry.family for entry in (permitted or ())[:FAMILIES_SHOWN_MAX])
    return [family for family in named if max(map(len, family)) <= FAMILY_CHARACTERS_MAX]
