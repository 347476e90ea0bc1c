"""What an open proposal for the permitted families would change, in words: for those who vote on it."""

from typing import TYPE_CHECKING, NamedTuple

from dovetail.cli.upgrades.proposing import Setting, window_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.ledger.permitted import Permission
    from dovetail.ledger.settings import FamilyVersion
    from families.settings.candidates import Candidate


class Effects(NamedTuple):
    """``changes``: a sentence for each version.

    ``late``: what its author may not have meant. It comes or ends at once because its block has passed, it takes out
    what has come since, it has a version misread state, or it locks the settings.
    """

    changes: list[str]
    late: list[str]


def plans(setting: Setting, candidate: "Candidate", family: "FamilyVersion") -> bool:
    """Whether a proposal for TRANSACTION_FAMILIES plans ``family``: it begins where it does not in the setting.

    What is permitted without a beginning is no plan; nor is another end.
    """
    from dovetail.ledger.errors import NotDecodable
    from dovetail.ledger.permitted import decode_permitted_families

    try:
        proposed = decode_permitted_families(candidate.proposal.value)
    except NotDecodable:
        return False
    begun = {(entry.from_block, entry.migrate) for entry in setting.entries or () if entry.family == family}
    return any(
        entry.family == family
        and bool(entry.from_block or entry.migrate)
        and (entry.from_block, entry.migrate) not in begun
        for entry in proposed
    )


def effects(setting: Setting, candidate: "Candidate") -> Effects:
    """Of a proposal for TRANSACTION_FAMILIES, were it accepted in the next block, for those after it."""
    from dovetail.cli.upgrades.changes import locks, misreadings
    from dovetail.ledger.errors import NotDecodable
    from dovetail.ledger.permitted import decode_permitted_families

    try:
        proposed = decode_permitted_families(candidate.proposal.value)
    except NotDecodable as error:
        return Effects([], [f"only the settings family is permitted with this vote: {error}"])
    now = setting.entries or ()
    told = Effects([], [])
    passed = setting.head_num + 1
    for family in dict.fromkeys(entry.family for entry in (*proposed, *now)):
        old, new = ([entry for entry in among if entry.family == family] for among in (now, proposed))
        if old == new:
            continue
        told.changes.append(f"{family} {window_text(new)}")
        begun = {0, *(entry.from_block for entry in old)}
        for entry in new:
            if entry in old:
                continue
            if entry.from_block <= passed and entry.from_block not in begun:
                told.late.append(f"its block {entry.from_block} has passed: {family} comes with this vote")
            if entry.until_block is not None and entry.until_block <= passed:
                told.late.append(f"its block {entry.until_block} has passed: {family} ends with this vote")
        told.late.extend(_dropped(old, new, passed))
    told.late.extend(
        f"{entry} goes on where {migrating.family} rewrites, from block {migrating.from_block} on, what it reads"
        for entry, migrating in misreadings(now, proposed)
    )
    locked = locks(proposed, setting.head_num)
    if locked:
        told.late.append(locked)
    return told


def _dropped(old: "list[Permission]", new: "list[Permission]", passed: int) -> "Iterator[str]":
    """What of one version is in force now, and in the block behind the vote no more, without an end that says so."""
    if any(entry.covers(passed + 1) or (entry not in old and entry.until_block == passed) for entry in new):
        return
    for entry in old:
        if entry.from_block <= passed and entry.covers(passed + 1):
            since = f"since block {entry.from_block}" if entry.from_block else "now"
            text = f"{entry.family} is permitted {since}, and no more with this vote"
            if entry.migrate:
                text += "; where its migration is in a block, older versions misread what it wrote"
            yield text
