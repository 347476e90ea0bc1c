"""Changes the entries of the setting for a plan, a retirement and a cancellation. Nothing here asks or prints.

``head_num`` is the newest block. A proposal enters block ``head_num + 1`` at the earliest, and takes effect in the
block after it.
"""

import re
from collections.abc import Container, Iterator, Sequence
from typing import Final

from dovetail.common.errors import Refused
from dovetail.ledger.addresses import NAMESPACE_CHARACTERS, is_prefix
from dovetail.ledger.errors import NotDecodable
from dovetail.ledger.permitted import (
    BLOCK_NUM_MAX,
    MIGRATED_PREFIXES_MAX,
    Permission,
    decode_permitted_families,
    encode_permitted_families,
    first_gap,
    locks,
)
from dovetail.ledger.settings import FamilyVersion

Entries = tuple[Permission, ...]

_is_block: Final = re.compile(r"\+?[0-9]{1,19}").fullmatch


def block_of(text: str, option: str, head_num: int) -> int:
    """The block that ``--at`` or ``--until`` names: a number, or +N for N blocks after the head. Raises Refused."""
    number = -1
    if _is_block(text):
        number = int(text) + (head_num if text.startswith("+") else 0)
    if not 0 <= number <= BLOCK_NUM_MAX:
        raise Refused(f"{option} {text!r} is no block: a number as 1200, or +100 for 100 blocks behind the head")
    return number


def planned(
    entries: Entries,
    old: FamilyVersion,
    new: FamilyVersion,
    *,
    from_block: int,
    until_block: int | None,
    migrate: Sequence[str],
    head_num: int,
) -> Entries:
    """Permit ``new`` from ``from_block`` on, and ``old`` until ``until_block``; None leaves its end unchanged.

    With ``migrate``, the prefixes that ``new`` migrates, ``old`` ends before ``from_block``. Raises Refused.
    """
    before = entries
    if old == new:
        raise Refused(f"{old} is both the old and the new version; name two")
    if from_block <= head_num + 1:
        raise Refused(
            f"--at: block {from_block} is too early, the head is block {head_num} and the next one can hold no"
            f" more than the plan itself; say --at +2 or more, and leave time to start processors of {new}"
        )
    now = _in_force(entries, old, head_num)
    if not now:
        raise Refused(f"{old} is not permitted, so there is nothing to move from; {_permitted_of(old, entries)}")
    there = _in_force(entries, new, head_num)
    if there:
        raise Refused(
            f"{there[0]} is permitted or planned already; to plan it anew, call that off first with `dovetail upgrade"
            f" cancel {new.name} {new.version}`"
        )
    if until_block is not None and until_block < from_block - 1:
        raise Refused(
            f"--until: block {until_block} comes too early, blocks {until_block + 1} to {from_block - 1} would take"
            f" neither version of {new.name}; say --until {from_block - 1} or later"
        )
    if migrate:
        _check_prefixes(migrate)
        if until_block is not None and until_block >= from_block:
            raise Refused(
                f"--until: {old} cannot go on to block {until_block}, because {new} rewrites from block {from_block} on"
                f" what it reads; leave --until out, and {old} ends with block {from_block - 1}"
            )
        until_block = from_block - 1
    if until_block is not None:
        entries = _ended(entries, old, until_block, head_num)
    return _checked(before, (*entries, Permission(new, from_block, None, tuple(migrate))))


def retired(entries: Entries, old: FamilyVersion, *, until_block: int, head_num: int) -> Entries:
    """End ``old`` with block ``until_block``, whether its present end is earlier or later. Raises Refused."""
    if not _in_force(entries, old, head_num):
        raise Refused(f"{old} is not permitted, so there is nothing to end; {_permitted_of(old, entries)}")
    if until_block <= head_num:
        raise Refused(f"--until: block {until_block} is past, the head is block {head_num}; say --until +1 or more")
    return _checked(entries, _ended(entries, old, until_block, head_num, later=True))


Unmigrated = Container[tuple[FamilyVersion, int]]
"""Version and ``from_block`` of entries whose migration is in no block. They are plans, even if their block is past."""


def coming(entries: Entries, family: FamilyVersion, *, head_num: int, unmigrated: Unmigrated = ()) -> list[Permission]:
    """The entries of ``family`` that are still plans."""
    return [
        entry
        for entry in _in_force(entries, family, head_num)
        if entry.from_block > head_num + 1 or (entry.migrate and (family, entry.from_block) in unmigrated)
    ]


def called_off(entries: Entries, new: FamilyVersion, *, head_num: int, unmigrated: Unmigrated = ()) -> Entries:
    """Remove the plan for ``new``, and the ends that it set to other versions. Raises Refused.

    Entries of ``new`` in force stay. Ends that another command set stay too, because somebody retired that version.
    """
    off = coming(entries, new, head_num=head_num, unmigrated=unmigrated)
    now = _in_force(entries, new, head_num)
    if now and not off:
        since = f"since block {now[0].from_block}" if now[0].from_block <= head_num else "from the next block on"
        back = "its migration has rewritten what older versions read" if now[0].migrate else "it may be in use"
        raise Refused(
            f"{new} is permitted {since}: that is no plan any more, and {back}. To end it, say `dovetail upgrade retire"
            f" {new.name} {new.version} --until +N`; to replace it, plan the next version with `dovetail upgrade plan"
            f" {new.name} {new.version} NEXT --at +N`"
        )
    if not off:
        raise Refused(f"{new} is not planned, so there is nothing to call off; {_permitted_of(new, entries)}")
    _check_built_upon(entries, off, head_num, unmigrated)
    first = min(entry.from_block for entry in off)
    kept = tuple(
        entry._replace(until_block=None)
        if entry.family.name == new.name and entry.family != new and entry.until_block == first - 1
        else entry
        for entry in entries
        if entry not in off
    )
    for _, later in misreadings(entries, kept):
        raise Refused(
            f"without {new} nothing ends the versions before it where {later.family} rewrites, from block"
            f" {later.from_block} on, what they read; call that off first: `dovetail upgrade cancel"
            f" {later.family.name} {later.family.version}`"
        )
    return _checked(entries, kept)


def value_of(entries: Entries) -> str:
    """The value of the setting. Raises Refused if nodes would not decode exactly these entries from it."""
    value = encode_permitted_families(entries)
    why = "it would be read as something else"
    try:
        if decode_permitted_families(value) == entries:
            return value
    except NotDecodable as error:
        why = str(error)
    raise Refused(f"no node would understand this, so it is not proposed: {why}")


def gap_of(entries: Entries, name: str, head_num: int) -> tuple[int, int | None] | None:
    """The next range of blocks that may hold no version of the family ``name``: its first and last block.

    The last block is None if the range has no end. Returns None if there is no such range.
    """
    versions = [entry for entry in entries if entry.family.name == name]
    first = first_gap(versions, head_num + 1)
    if first is None:
        return None
    return first, min((entry.from_block - 1 for entry in versions if entry.from_block > first), default=None)


def lifted(before: Entries, after: Entries, family: FamilyVersion) -> list[int]:
    """The ends of ``family`` that ``after`` lacks although it keeps their entries."""
    return [
        entry.until_block
        for entry in before
        if entry.family == family and entry.until_block is not None and entry._replace(until_block=None) in after
    ]


def _in_force(entries: Entries, family: FamilyVersion, head_num: int) -> list[Permission]:
    """The entries that permit ``family`` in the next block or a later one."""
    return [
        entry
        for entry in entries
        if entry.family == family and (entry.until_block is None or entry.until_block > head_num)
    ]


def _ended(entries: Entries, family: FamilyVersion, until_block: int, head_num: int, *, later: bool = False) -> Entries:
    """End ``family`` with ``until_block``. With ``later``, entries that would end before are extended to it."""
    in_force = _in_force(entries, family, head_num)
    changed = []
    for entry in entries:
        if entry not in in_force:
            changed.append(entry)
        elif entry.from_block <= until_block:
            ends_before = entry.until_block is not None and entry.until_block < until_block
            changed.append(entry if ends_before and not later else entry._replace(until_block=until_block))
    return tuple(changed)


def _checked(before: Entries, entries: Entries) -> Entries:
    """Return ``entries``. Raises Refused if they lock the settings, or newly let a version misread state."""
    locked = locks(entries)
    if locked:
        raise Refused(locked)
    for entry, migrating in misreadings(before, entries):
        raise Refused(
            f"{entry} would go on where {migrating.family} rewrites, from block {migrating.from_block} on, what"
            f" it reads; end it first: `dovetail upgrade retire {entry.family.name} {entry.family.version}"
            f" --until {migrating.from_block - 1}`"
        )
    return entries


def _check_built_upon(entries: Entries, off: Sequence[Permission], head_num: int, unmigrated: Unmigrated) -> None:
    """Raise Refused if a cancelled entry would migrate state that a later planned version needs."""
    migrating = min((entry.from_block for entry in off if entry.migrate), default=None)
    if migrating is None:
        return
    new = off[0].family
    for family in dict.fromkeys(entry.family for entry in entries):
        if family.name != new.name or family == new:
            continue
        for later in coming(entries, family, head_num=head_num, unmigrated=unmigrated):
            if later.from_block >= migrating:
                raise Refused(
                    f"{family} comes from block {later.from_block} on, on top of what {new} migrates from block"
                    f" {migrating} on; call that off first: `dovetail upgrade cancel {family.name} {family.version}`"
                )


def misreadings(before: Entries, entries: Entries) -> list[tuple[Permission, Permission]]:
    """New pairs of two versions' entries: the second migrates the state while the first is still permitted."""
    was = set(_misreadings(before))
    return [pair for pair in _misreadings(entries) if pair not in was]


def _misreadings(entries: Entries) -> Iterator[tuple[Permission, Permission]]:
    for migrating in entries:
        for entry in entries if migrating.migrate else ():
            others = entry.family.name == migrating.family.name and entry.family != migrating.family
            beyond = entry.until_block is None or entry.until_block >= migrating.from_block
            # A version that begins later is written for the migrated state.
            if others and beyond and entry.from_block < migrating.from_block:
                yield entry, migrating


def _check_prefixes(prefixes: Sequence[str]) -> None:
    if len(prefixes) > MIGRATED_PREFIXES_MAX:
        raise Refused(f"--migrate names {len(prefixes)} prefixes, at most {MIGRATED_PREFIXES_MAX} are allowed")
    for prefix in prefixes:
        if not (is_prefix(prefix) and len(prefix) >= NAMESPACE_CHARACTERS):
            raise Refused(
                f"--migrate {prefix!r} is no prefix of addresses: an even number of lower-case hex characters,"
                f" {NAMESPACE_CHARACTERS} to 70, as in 1cf126; or MODULE:HANDLER, whose namespaces are taken"
            )


def _permitted_of(family: FamilyVersion, entries: Entries) -> str:
    versions = ", ".join(str(entry) for entry in entries if entry.family.name == family.name)
    return f"of {family.name} the setting names: {versions or 'no version'}"
