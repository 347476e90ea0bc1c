"""What an open proposal for the permitted families would change, in words: for those who vote on it."""

from typing import TYPE_CHECKING, NamedTuple

from dovetail.commands.upgrade.proposing import Setting, window_text

if TYPE_CHECKING:
    from families.settings.candidates import Candidate


class Effects(NamedTuple):
    """``changes``: a sentence for each version. ``late``: what comes at once because its block has passed."""

    changes: list[str]
    late: list[str]


def effects(setting: Setting, candidate: "Candidate") -> Effects:
    """Of a proposal for TRANSACTION_FAMILIES, were it accepted in the next block, for those after it."""
    from ledger.errors import NotDecodable
    from ledger.permitted import decode_permitted_families

    try:
        proposed = decode_permitted_families(candidate.proposal.value)
    except NotDecodable as error:
        return Effects([str(error)], [])
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
    return told
