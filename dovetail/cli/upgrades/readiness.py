"""What would happen to each family if its block came now, in words. Takes what /status/families says, asks nothing."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dovetail.common.output import printable

_WAITS = ("waiting_for_processor", "waiting_for_activation")


class Outlook(NamedTuple):
    """One family's: a sentence, whether it tells of something that stalls, or would when the block comes, and whether
    of something that goes on and is not done.
    """

    stalls: bool
    text: str
    goes_on: bool = False


def outlook(family: Mapping[str, Any], head_num: int, *, restricted: bool) -> Outlook:
    """Of one entry of ``told.Told.families``.

    A family that the setting names stalls when nobody takes its work; where there is no setting, or it does not name
    the family, when batches wait for that.
    """
    name = f"{family['family_name']} {family['family_version']}"
    pending = sum(family["pending"].values())
    permission = family["permission"]
    if permission in ("ended", "not_permitted"):
        if not pending:
            return Outlook(False, "not permitted" if permission == "not_permitted" else "has ended")
        return Outlook(False, f"{_batches(pending)} will be INVALID: {name} is not permitted")
    in_blocks = family.get("from_block", 0) - head_num
    begins = f"from block {family['from_block']}, in {_blocks(in_blocks)}" if permission == "waiting" else ""
    waiting = sum(family["pending"].get(reason, 0) for reason in _WAITS)
    would = f"{_batches(waiting)} waiting" if waiting else f"{_batches(pending) if pending else 'batches'} would wait"
    if family["migration"] == "refused":
        why = family.get("migration_message") or "it gave no reason"
        builds = ", ".join(sorted(build for build in family.get("builds", ()) if build))
        of = f" (connected: {builds})" if builds else ""
        return Outlook(
            True,
            f"{would}: its migration was refused{of}: {why}; correct the handler and start its processor again, or call"
            f" the plan off: dovetail upgrade cancel {name}",
        )
    if not family["processors"]:
        if not restricted and not pending:
            return Outlook(False, "nobody serves it, and nothing waits for it")
        what = "serves and migrates" if family["migration"] == "due" else "serves"
        return Outlook(True, f"{would}: no processor {what} it; start one of {name} with dovetail processor")
    if family["migration"] == "due" and not family["migrating_processors"]:
        return Outlook(True, f"{would}: it migrates state, and no processor of {name} does; start one that has migrate")
    if begins and family["migration"] == "none" and family["migrating_processors"]:
        return Outlook(
            True,
            f"it would come without its migration: its processors migrate, its plan has no --migrate; plan it anew"
            f" after dovetail upgrade cancel {name}",
        )
    if begins:
        migrates = ", after its migration" if family["migration"] == "due" else ""
        return Outlook(
            False, f"ready {begins}{migrates}" + (f"; {_batches(pending)} waiting for it" if pending else "")
        )
    if family["migration"] == "due":
        return Outlook(False, "its migration is under way", goes_on=True)
    if "until_block" in family:
        return Outlook(False, f"served; ends with block {family['until_block']}")
    return Outlook(False, "served")


def stalls(families: Sequence[Mapping[str, Any]], head_num: int, *, restricted: bool) -> list[str]:
    """A sentence for each family that something stalls, now or when its block comes."""
    return [text for view, text in _sentences(families, head_num, restricted=restricted) if view.stalls]


def going_on(families: Sequence[Mapping[str, Any]], head_num: int, *, restricted: bool) -> list[str]:
    """A sentence for each family of which something is not done, and nothing stalls it."""
    return [text for view, text in _sentences(families, head_num, restricted=restricted) if view.goes_on]


def _sentences(
    families: Sequence[Mapping[str, Any]], head_num: int, *, restricted: bool
) -> Iterator[tuple[Outlook, str]]:
    for family in families:
        view = outlook(family, head_num, restricted=restricted)
        yield view, printable(f"{family['family_name']} {family['family_version']}: {view.text}")


def _batches(count: int) -> str:
    return "1 batch" if count == 1 else f"{count} batches"


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count} blocks"
