"""Describes what would happen to each family if its block came now, from the entries of /status/families."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dovetail.common.output import printable

_WAITS = ("waiting_for_processor", "waiting_for_activation")


class Readiness(NamedTuple):
    """The readiness of one family. ``stalls``: work stalls now, or will when the family's block comes.

    ``text``: a sentence on the readiness. ``in_progress``: work is unfinished.
    """

    stalls: bool
    text: str
    in_progress: bool = False


def readiness(family: Mapping[str, Any], head_num: int, *, restricted: bool) -> Readiness:
    """The readiness of one entry of ``NodeFamilies.families``; ``restricted``: whether the setting is present.

    A family that the setting names stalls if no processor takes its work. Without the setting it stalls only if batches
    wait for a processor.
    """
    name = f"{family['family_name']} {family['family_version']}"
    pending = sum(family["pending"].values())
    permission = family["permission"]
    if permission in ("ended", "not_permitted"):
        if not pending:
            return Readiness(False, "not permitted" if permission == "not_permitted" else "has ended")
        return Readiness(False, f"{_batches(pending)} will be INVALID: {name} is not permitted")
    in_blocks = family.get("from_block", 0) - head_num
    begins = f"from block {family['from_block']}, in {_blocks(in_blocks)}" if permission == "waiting" else ""
    waiting = sum(family["pending"].get(reason, 0) for reason in _WAITS)
    would = f"{_batches(waiting)} waiting" if waiting else f"{_batches(pending) if pending else 'batches'} would wait"
    if family["migration"] == "refused":
        why = family.get("migration_message") or "it gave no reason"
        builds = ", ".join(sorted(build for build in family.get("builds", ()) if build))
        connected = f" (connected: {builds})" if builds else ""
        return Readiness(
            True,
            f"{would}: its migration was refused{connected}: {why}; correct the handler and start its processor again,"
            f" or call the plan off: dovetail upgrade cancel {name}",
        )
    if not family["processors"]:
        if not restricted and not pending:
            return Readiness(False, "nobody serves it, and nothing waits for it")
        what = "serves and migrates" if family["migration"] == "due" else "serves"
        return Readiness(True, f"{would}: no processor {what} it; start one of {name} with dovetail processor")
    if family["migration"] == "due" and not family["migrating_processors"]:
        return Readiness(
            True, f"{would}: it migrates state, and no processor of {name} does; start one that has migrate"
        )
    if begins and family["migration"] == "none" and family["migrating_processors"]:
        return Readiness(
            True,
            f"it would come without its migration: its processors migrate, its plan has no --migrate; plan it anew"
            f" after dovetail upgrade cancel {name}",
        )
    if begins:
        migrates = ", after its migration" if family["migration"] == "due" else ""
        return Readiness(
            False, f"ready {begins}{migrates}" + (f"; {_batches(pending)} waiting for it" if pending else "")
        )
    if family["migration"] == "due":
        return Readiness(False, "its migration is under way", in_progress=True)
    if "until_block" in family:
        return Readiness(False, f"served; ends with block {family['until_block']}")
    return Readiness(False, "served")


def stalls(families: Sequence[Mapping[str, Any]], head_num: int, *, restricted: bool) -> list[str]:
    """A sentence for each family that stalls, now or when its block comes."""
    return [text for view, text in _sentences(families, head_num, restricted=restricted) if view.stalls]


def in_progress(families: Sequence[Mapping[str, Any]], head_num: int, *, restricted: bool) -> list[str]:
    """A sentence for each family whose work is unfinished but does not stall."""
    return [text for view, text in _sentences(families, head_num, restricted=restricted) if view.in_progress]


def _sentences(
    families: Sequence[Mapping[str, Any]], head_num: int, *, restricted: bool
) -> Iterator[tuple[Readiness, str]]:
    for family in families:
        view = readiness(family, head_num, restricted=restricted)
        yield view, printable(f"{family['family_name']} {family['family_version']}: {view.text}")


def _batches(count: int) -> str:
    return "1 batch" if count == 1 else f"{count} batches"


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count} blocks"
