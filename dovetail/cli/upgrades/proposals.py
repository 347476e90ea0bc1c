"""Describes in words, for voters, what an open proposal for the permitted families would change."""

from collections.abc import Iterator
from typing import NamedTuple

from dovetail.cli.upgrades.changes import misreadings
from dovetail.cli.upgrades.setting import Setting, window_text
from dovetail.ledger.electorate import Electorate, change_refusal
from dovetail.ledger.errors import NotDecodable
from dovetail.ledger.permitted import Permission, decode_permitted_families
from dovetail.ledger.settings import TRANSACTION_FAMILIES, FamilyVersion
from families.settings.candidates import Candidate


class Effects(NamedTuple):
    """The effects of a proposal, a sentence each.

    ``changes``: the changes of each version. ``warnings``: effects that the author may not have meant. Examples are a
    version that begins or ends at once because its block has passed, a version that is dropped or misreads state, and
    a proposal that cannot take effect.
    """

    changes: list[str]
    warnings: list[str]


def plans(setting: Setting, candidate: Candidate, family: FamilyVersion) -> bool:
    """Whether a proposal for TRANSACTION_FAMILIES gives ``family`` a first block that the setting lacks.

    An entry without a first block is no plan; neither is a new end.
    """
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


def effects(setting: Setting, candidate: Candidate) -> Effects:
    """The effects of a proposal for TRANSACTION_FAMILIES if the next block accepts it."""
    value, electorate = candidate.proposal.value, Electorate(setting.keys, setting.threshold)
    refusal = change_refusal(TRANSACTION_FAMILIES, value, electorate, candidate.base, lambda _: setting.value)
    if refusal is not None:
        return Effects([], [cannot(refusal)])
    proposed = decode_permitted_families(value)
    now = setting.entries or ()
    result = Effects([], [])
    passed = setting.head_num + 1
    for family in dict.fromkeys(entry.family for entry in (*proposed, *now)):
        old, new = ([entry for entry in among if entry.family == family] for among in (now, proposed))
        if old == new:
            continue
        result.changes.append(f"{family} {window_text(new)}")
        begun = {0, *(entry.from_block for entry in old)}
        for entry in new:
            if entry in old:
                continue
            if entry.from_block <= passed and entry.from_block not in begun:
                result.warnings.append(f"its block {entry.from_block} has passed: {family} comes with this vote")
            if entry.until_block is not None and entry.until_block <= passed:
                result.warnings.append(f"its block {entry.until_block} has passed: {family} ends with this vote")
        result.warnings.extend(_dropped(old, new, passed))
    result.warnings.extend(
        f"{entry} goes on where {migrating.family} rewrites, from block {migrating.from_block} on, what it reads"
        for entry, migrating in misreadings(now, proposed)
    )
    return result


def rival(candidate: Candidate) -> str:
    """A sentence for the author of another proposal for the same setting."""
    return (
        f"proposal {candidate.proposal_id} for the same setting is still voted on: when one of the two is accepted, the"
        " other cannot take effect any more, and has to be made anew"
    )


def cannot(refusal: str) -> str:
    """A sentence for voters on a proposal that the settings family refuses to put in force."""
    return f"this proposal cannot take effect, vote against it: {refusal}"


def _dropped(old: list[Permission], new: list[Permission], passed: int) -> Iterator[str]:
    """Entries of one version that are in force now but not after the vote, although they have no end."""
    if any(entry.covers(passed + 1) or (entry not in old and entry.until_block == passed) for entry in new):
        return
    for entry in old:
        if entry.from_block <= passed and entry.covers(passed + 1):
            since = f"since block {entry.from_block}" if entry.from_block else "now"
            text = f"{entry.family} is permitted {since}, and no more with this vote"
            if entry.migrate:
                text += "; where its migration is in a block, older versions misread what it wrote"
            yield text
