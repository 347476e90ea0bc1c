"""Decides whether a batch may enter a block: uniqueness, dependencies, permitted families, due migrations.

Proposals, given blocks and verification use these rules. Signatures and execution do not belong here.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dovetail.ledger import migration
from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.ids import TransactionId
from dovetail.ledger.permitted import Permission, Permitted, awaiting_migration, permission_for, permission_refusal
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.execution.model import Rejected, Withdrawn
from dovetail.validator.core.journal import migrations

Knows = Callable[[TransactionId], bool]


class Given(NamedTuple):
    """The verdicts of the rules on a proposal's batches: the refused batches and the migrations, by index."""

    refused: dict[int, Rejected]
    migrations: frozenset[int]


def check_given(body: "Body", batches: Sequence[VerifiedBatch]) -> Given:
    """Apply the rules to the ordered batches of a proposal. A batch that would have to wait is refused.

    The result depends on the list, the chain and the state alone. ``body``: the block's body, still empty.
    """
    refused: dict[int, Rejected] = {}
    given: set[int] = set()
    for index, batch in enumerate(batches):
        verdict = body.check(batch)
        if verdict is None and batch.signer == migration.PUBLIC_KEY and not body.is_migration(batch):
            family = batch.transactions[0].family
            verdict = Rejected("migration_not_due", f"no migration of {family} is due in this block", family=family)
        if isinstance(verdict, Withdrawn):
            verdict = _as_rejected(body, verdict)
        if verdict is not None:
            refused[index] = verdict
            continue
        if body.is_migration(batch):
            given.add(index)
        body.include(batch)
    return Given(refused, frozenset(given))


def _as_rejected(body: "Body", verdict: Withdrawn) -> Rejected:
    if verdict.dependency is None:
        return Rejected("family_not_permitted", verdict.message, family=verdict.family)
    if body.includes(verdict.dependency):
        return Rejected("duplicate_transaction", f"an earlier batch of this block holds {verdict.dependency}")
    return Rejected("dependency_missing", f"it depends on transaction {verdict.dependency}, which is not there")


def begins_or_ends(block_num: int, permitted: Permitted) -> bool:
    """Whether the permission of some version begins with block ``block_num`` or ended with the block before."""
    return any(block_num == entry.from_block or block_num - 1 == entry.until_block for entry in permitted or ())


class Body:
    """The batches that a new block holds so far, and the rules on the next one.

    ``block_num``: the block's number. ``permitted``: the setting in the state that the block builds on. ``committed``:
    whether the chain holds a transaction. ``invalid``: whether a transaction was found INVALID and is not pending.
    """

    def __init__(self, block_num: int, permitted: Permitted, committed: Knows, invalid: Knows) -> None:
        self._block_num = block_num
        self._permitted = permitted
        self._committed = committed
        self._invalid = invalid
        self._included: set[TransactionId] = set()
        self._barred: dict[FamilyVersion, str | Withdrawn | None] = {}
        self.due: list[Permission] = []
        """The versions whose migration this block may hold: not yet migrated, and with no earlier migration of the same
        state due."""
        self._awaiting: dict[FamilyVersion, str] = {}
        awaiting = awaiting_migration(self._permitted, block_num, self._is_migrated)
        for place, entry in enumerate(awaiting):
            before = next(filter(entry.overlaps, awaiting[:place]), None)
            if before is None:
                self.due.append(entry)
                why = f"{entry.family} is permitted when its migration is in a block"
            else:
                why = f"{entry.family} migrates state that {before.family} has to migrate before"
            self._awaiting.setdefault(entry.family, why)
        self._first_of = {name: entry for entry in self.due for name in migrations.transaction_ids_of(entry)}

    def include(self, batch: VerifiedBatch) -> None:
        """Append ``batch``, which ``check`` has accepted."""
        if self._first_of and self.is_migration(batch):
            done = self._first_of[batch.transactions[0].id]
            self._first_of = {name: entry for name, entry in self._first_of.items() if entry != done}
        self._included.update(transaction.id for transaction in batch.transactions)

    def includes(self, transaction_id: TransactionId) -> bool:
        """Whether the body holds this transaction so far."""
        return transaction_id in self._included

    def is_migration(self, batch: VerifiedBatch) -> bool:
        """Whether ``batch`` is a migration that this block may hold."""
        entry = self._first_of.get(batch.transactions[0].id)
        return entry is not None and migrations.is_of(batch, entry)

    def check(self, batch: VerifiedBatch) -> Rejected | Withdrawn | None:
        """None if ``batch`` may be the next of the body; Rejected if it never may, Withdrawn if it must wait."""
        own: set[TransactionId] = set()
        migrates = bool(self._first_of) and self.is_migration(batch)
        for transaction in batch.transactions:
            family = transaction.family
            if not migrates and (barred := self._bar(family)) is not None:
                if isinstance(barred, Withdrawn):
                    return barred
                return Rejected("family_not_permitted", barred, transaction.id, family=family)
            if self._committed(transaction.id):
                return Rejected(
                    "duplicate_transaction", f"transaction {transaction.id} is already committed", transaction.id
                )
            if transaction.id in self._included:
                return Withdrawn("waiting_for_dependency", dependency=transaction.id)
            for dependency in transaction.dependencies:
                if dependency in own or dependency in self._included or self._committed(dependency):
                    continue
                if self._invalid(dependency):
                    return Rejected(
                        "dependency_invalid",
                        f"it depends on transaction {dependency}, which was judged invalid",
                        transaction.id,
                    )
                return Withdrawn("waiting_for_dependency", dependency=dependency)
            own.add(transaction.id)
        return None

    def _bar(self, family: FamilyVersion) -> str | Withdrawn | None:
        """Why a family may not enter this block: a message if it never may, Withdrawn if it must wait, else None."""
        if family in self._barred:
            return self._barred[family]
        bar: str | Withdrawn | None = permission_refusal(family, self._permitted, self._block_num)
        if bar is None:
            permission = permission_for(family, self._permitted, self._block_num)
            assert permission is not None, "a family that is not refused is permitted now or later"
            if not permission.covers(self._block_num):
                bar = _waits(family, f"{family} is permitted from block {permission.from_block} on")
            elif family in self._awaiting:
                bar = _waits(family, self._awaiting[family])
        self._barred[family] = bar
        return bar

    def _is_migrated(self, permission: Permission) -> bool:
        """Whether an earlier block holds the migration of a version."""
        return any(map(self._committed, migrations.transaction_ids_of(permission)))


def _waits(family: FamilyVersion, why: str) -> Withdrawn:
    return Withdrawn("waiting_for_activation", family, message=why)
