"""The setting that permits families in blocks: encoding, queries, and the refusals of other families.

The value is a JSON array of objects with ``family`` and ``version``, as in the 1.x line, and three members of Dovetail:
``from_block`` and ``until_block`` (inclusive), and ``migrate``, the prefixes whose state the version migrates before
its first transaction (docs/how-to/upgrades.md).
"""

import json
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple

from dovetail.ledger import settings
from dovetail.ledger.addresses import NAMESPACE_CHARACTERS, is_prefix
from dovetail.ledger.errors import NotDecodable, some_of
from dovetail.ledger.settings import NAMESPACE, SETTINGS, TRANSACTION_FAMILIES, FamilyVersion

PERMITTED_AT: Final = settings.setting_address(TRANSACTION_FAMILIES)
"""The address of the setting's leaf."""

BLOCK_NUM_MAX: Final = 2**63 - 1
ENTRIES_MAX: Final = 1_000
MIGRATING_ENTRIES_MAX: Final = 100
MIGRATED_PREFIXES_MAX: Final = 16
"""The most prefixes that one version may migrate."""

_NESTING_MAX: Final = 16
_CACHED_MAX: Final = 4
_SHOWN_MAX: Final = 10
_SHOWN_CHARACTERS_MAX: Final = 80
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]").search


class Plan(NamedTuple):
    """The identity of a migration; ``prefixes`` in ascending order."""

    family: FamilyVersion
    from_block: int
    prefixes: tuple[str, ...]


class Permission(NamedTuple):
    """One entry of the setting. A version may have several, for several spans of blocks."""

    family: FamilyVersion
    from_block: int = 0
    until_block: int | None = None
    """The last block that may hold a transaction of this version, or None."""

    migrate: tuple[str, ...] = ()
    """The prefixes, of 6 characters or more, whose state is migrated before the version's first transaction."""

    @property
    def plan(self) -> Plan:
        """The identity of the entry's migration, which does not depend on ``until_block``."""
        return Plan(self.family, self.from_block, tuple(sorted(self.migrate)))

    def covers(self, block_num: int) -> bool:
        return self.from_block <= block_num and (self.until_block is None or block_num <= self.until_block)

    def overlaps(self, other: "Permission") -> bool:
        """Whether both migrations share some state."""
        return any(map(str.startswith, self.migrate, repeat(other.migrate))) or any(
            map(str.startswith, other.migrate, repeat(self.migrate))
        )

    def __str__(self) -> str:
        text = str(self.family)
        if self.from_block:
            text += f" from block {self.from_block}"
        if self.until_block is not None:
            text += f" until block {self.until_block}"
        return text


Permitted = tuple[Permission, ...] | None
"""The setting's entries in its order; None if it is absent, which permits every family in every block."""


def permitted_families(read: Callable[[str], bytes | None]) -> Permitted:
    """The setting in a state. An invalid value permits only the settings family, which can correct it."""
    try:
        stored = settings.decode_setting(read(PERMITTED_AT))
        value = stored.get(TRANSACTION_FAMILIES)
        return None if value is None else permitted_by(value)
    except NotDecodable:
        return (Permission(SETTINGS),)


def permitted_by(value: str) -> tuple[Permission, ...]:
    """What a stored value permits: its entries, and the settings family in every block. Raises NotDecodable.

    A value that shuts out the settings family (see ``locks``) can be in a state: a handler other than ours may have
    written it. It is read as if it named the family without limits, so that a proposal can correct it.
    """
    entries = decode_permitted_families(value)
    if _settings_bar(entries) is None:
        return entries
    return (Permission(SETTINGS), *(entry for entry in entries if entry.family != SETTINGS))


def locks(entries: Iterable[Permission]) -> str | None:
    """Why the setting may not become these entries: the settings could not be changed any more, or by another family.

    None if it may. The rule knows no block: a vote may put the value in force at any height.
    """
    entries = tuple(entries)
    bar = _settings_bar(entries)
    if bar is not None:
        return (
            f"{bar}: no setting, this one included, could be changed then; name {SETTINGS} without from_block,"
            " until_block and migrate"
        )
    for entry in entries:
        for prefix in entry.migrate:
            if prefix.startswith(NAMESPACE):
                return (
                    f"{entry.family} would migrate {prefix}, where the ledger's own settings are; name other prefixes"
                )
    return None


def _settings_bar(entries: Iterable[Permission]) -> str | None:
    """Why the settings family could not enter every block; None if it could."""
    own = [entry for entry in entries if entry.family == SETTINGS]
    if any(entry.migrate for entry in own):
        return f"{SETTINGS} could not enter a block before its migration"
    gap = first_gap(own, 0)
    return None if gap is None else f"{SETTINGS} could not enter block {gap}"


def permission_for(family: FamilyVersion, permitted: Permitted, block_num: int) -> Permission | None:
    """The entry that permits ``family`` in block ``block_num`` (see ``covers``), or else in the earliest later block.

    None if there is neither.
    """
    if permitted is None:
        return Permission(family)
    best: Permission | None = None
    for permission in permitted:
        if permission.family == family:
            if permission.covers(block_num):
                return permission
            coming = permission.from_block > block_num
            if coming and (best is None or permission.from_block < best.from_block):
                best = permission
    return best


def permission_refusal(family: FamilyVersion, permitted: Permitted, block_num: int) -> str | None:
    """Why ``family`` may enter neither block ``block_num`` nor a later one; None if it may.

    The text is short, because it is stored for every refused batch.
    """
    if permitted is None or permission_for(family, permitted, block_num) is not None:
        return None
    ended = [entry.until_block for entry in permitted if entry.family == family and entry.until_block is not None]
    why = f"was permitted until block {max(ended)}, this is block {block_num}" if ended else "is not permitted"
    now = sorted(str(entry) for entry in permitted if entry.until_block is None or entry.until_block >= block_num)
    listed = some_of([name[:_SHOWN_CHARACTERS_MAX] for name in now], _SHOWN_MAX) or "none"
    return f"{family} {why}; {TRANSACTION_FAMILIES} permits: {listed}"


def first_gap(entries: Iterable[Permission], block_num: int) -> int | None:
    """The first block from ``block_num`` on that none of ``entries`` covers; None if there is no such block."""
    for _, from_block, until_block, _ in sorted(entries, key=lambda entry: entry.from_block):
        if from_block > block_num:
            break
        if until_block is None:
            return None
        block_num = max(block_num, until_block + 1)
    return block_num


def awaiting_migration(
    permitted: Permitted, block_num: int, is_migrated: Callable[[Permission], bool]
) -> list[Permission]:
    """The entries that cover block ``block_num`` and still wait for their migrations, in the order of the migrations.

    Entries are ordered by ``from_block``. Entries with the same ``from_block`` keep the setting's order.
    """
    awaiting = [
        entry for entry in permitted or () if entry.migrate and entry.covers(block_num) and not is_migrated(entry)
    ]
    return sorted(awaiting, key=attrgetter("from_block"))


def encode_permitted_families(permitted: Iterable[Permission]) -> str:
    """The setting's value for these entries, without members that have their default value."""
    entries = []
    for family, from_block, until_block, migrate in permitted:
        entry: dict[str, Any] = {"family": family.name, "version": family.version}
        if from_block:
            entry["from_block"] = from_block
        if until_block is not None:
            entry["until_block"] = until_block
        if migrate:
            entry["migrate"] = list(migrate)
        entries.append(entry)
    return json.dumps(entries)


@lru_cache(maxsize=_CACHED_MAX)
def decode_permitted_families(value: str) -> tuple[Permission, ...]:
    """The entries in a value of the setting.

    Raises NotDecodable. Deep nesting is refused before parsing, so that the verdict does not depend on a node's stack.
    """
    depth = _nesting(value)
    if depth > _NESTING_MAX:
        raise NotDecodable(f"{TRANSACTION_FAMILIES} is nested {depth} deep, at most {_NESTING_MAX} is allowed")
    try:
        entries = json.loads(value)
    except ValueError as error:
        raise NotDecodable(f"{TRANSACTION_FAMILIES} is no JSON: {error}") from None
    if not isinstance(entries, list):
        raise NotDecodable(f"{TRANSACTION_FAMILIES} is a JSON {type(entries).__name__}, not an array")
    if len(entries) > ENTRIES_MAX:
        raise NotDecodable(f"{TRANSACTION_FAMILIES} has {len(entries)} entries, at most {ENTRIES_MAX} are allowed")
    permitted = tuple(map(_permission, entries))
    migrating = sum(bool(entry.migrate) for entry in permitted)
    if migrating > MIGRATING_ENTRIES_MAX:
        raise NotDecodable(
            f"{TRANSACTION_FAMILIES} has {migrating} entries that migrate, at most {MIGRATING_ENTRIES_MAX} are allowed"
        )
    return permitted


def _permission(entry: object) -> Permission:
    if not isinstance(entry, dict):
        raise NotDecodable(f"{TRANSACTION_FAMILIES}: {entry!r} is not an object")
    where = f"{TRANSACTION_FAMILIES}: {entry!r}"
    name, version = entry.get("family"), entry.get("version")
    if not isinstance(name, str) or not isinstance(version, str):
        raise NotDecodable(f"{where} does not hold the strings family and version")
    if _LONE_SURROGATE(name) or _LONE_SURROGATE(version):
        raise NotDecodable(f"{where} holds half a character, which is no text")
    from_block = entry.get("from_block", 0)
    until_block = entry.get("until_block")
    for member, number in (("from_block", from_block), ("until_block", until_block)):
        if number is not None and not (type(number) is int and 0 <= number <= BLOCK_NUM_MAX):
            raise NotDecodable(f"{where}: its {member} is no whole number from 0 to {BLOCK_NUM_MAX}")
    if from_block is None:
        raise NotDecodable(f"{where}: its from_block is null; leave it out where there is none")
    if until_block is not None and until_block < from_block:
        raise NotDecodable(f"{where}: its until_block comes before its from_block")
    return Permission(FamilyVersion(name, version), from_block, until_block, _prefixes(where, entry.get("migrate", [])))


def _prefixes(where: str, declared: object) -> tuple[str, ...]:
    if not isinstance(declared, list) or len(declared) > MIGRATED_PREFIXES_MAX:
        raise NotDecodable(f"{where}: its migrate is no array of at most {MIGRATED_PREFIXES_MAX} prefixes")
    for prefix in declared:
        if not (isinstance(prefix, str) and is_prefix(prefix) and len(prefix) >= NAMESPACE_CHARACTERS):
            raise NotDecodable(
                f"{where}: its migrate holds {prefix!r}, not an even number of lower-case hex characters,"
                f" {NAMESPACE_CHARACTERS} to 70"
            )
    for shorter in declared:
        if sum(prefix.startswith(shorter) for prefix in declared) > 1:
            raise NotDecodable(f"{where}: its migrate names what lies under {shorter} twice")
    return tuple(declared)


def _nesting(text: str) -> int:
    """How deep the arrays and objects of a JSON text are nested."""
    depth = deepest = 0
    in_string = escaped = False
    for character in text:
        if in_string:
            in_string = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            in_string = True
        elif character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest
