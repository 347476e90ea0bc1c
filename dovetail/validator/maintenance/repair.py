"""A damaged store made new beside the old one, verified, and put into its place; the old file is kept."""

import multiprocessing
from pathlib import Path
from typing import Final, NamedTuple

from dovetail.ledger.limits import Limits
from dovetail.validator.history.verification.whole import verify_whole
from dovetail.validator.maintenance.apart import Ended, Step, Tell, apart
from dovetail.validator.maintenance.looking import Look, look
from dovetail.validator.maintenance.places import REPAIRING, Finish, being_made, require_unread, swap_in
from dovetail.validator.maintenance.rebuild import Plan, Rebuilt, rebuild
from dovetail.validator.store import StorageFailed
from dovetail.validator.store.length import DATA
from dovetail.validator.store.locks import own
from dovetail.validator.store.salvage import ReadPosition, read_position, reset_marker

_ENDS_MAX: Final = 200
"""How often reading may end its process."""


class Repaired(NamedTuple):
    """``kept``: the former file. ``ended_at``: what could not even be tried again, since it ended the process.

    ``was_sound``: whether every record and page of the former file was what was written.
    """

    rebuilt: Rebuilt
    ended_at: list[ReadPosition]
    kept: Path
    was_sound: bool


class CannotRepair(Exception):
    """Not all blocks can be made; the text says which is the first, why, and what to do. Nothing has changed."""


class BehindHead(Exception):
    """The last block to keep comes after all that there are; the text says which there are. Nothing has changed."""


def repair(
    store: Path, limits: Limits, last: int | None, processes: int, tell: Tell, finish: Finish, removed: list[Path]
) -> Repaired:
    """Repair the store in a folder; ``last``: keep the blocks up to this one alone, None: all.

    ``processes``: that check signatures, 0: one a core. Raises CannotRepair, BehindHead, StorageFailed and Ended.
    """
    if not (store / DATA).exists():
        raise StorageFailed(f"there is no store at {store}")
    with own(store):
        require_unread(store)
        with being_made(store / REPAIRING, removed) as folder:
            made = folder / "store"
            rebuilt, ended_at = _rebuild(Plan(store, made, limits, last), tell)
            if last is not None and rebuilt.held and last >= rebuilt.held:
                raise BehindHead(
                    f"there is no block {last} to keep: as far as the file tells, its last is {rebuilt.held - 1}"
                )
            if rebuilt.lost is not None:
                raise CannotRepair(f"{rebuilt.lost}. {_advice(rebuilt.blocks)}")
            if rebuilt.blocks == 0:
                raise CannotRepair(f"no block can be read. {_advice(0)}")
            tell(Step("verifying, blocks", 0, rebuilt.blocks))
            findings = verify_whole(made, processes, lambda done, total: tell(Step("verifying, blocks", done, total)))
            if len(findings):
                first = findings.kept[0]
                at = first.block_num if first.block_num is not None else rebuilt.blocks
                raise CannotRepair(
                    f"what was rebuilt is not sound, {len(findings)} findings, the first: {first}. {_advice(at)}"
                )
            was_sound = not (ended_at or rebuilt.mended or rebuilt.let_go) and _is_sound(store, tell)
            kept = swap_in(made, store, finish, keep=True)
            assert kept is not None, "it was to be kept"
            return Repaired(rebuilt, ended_at, kept, was_sound)


def _is_sound(store: Path, tell: Tell) -> bool:
    try:
        seen: Look = apart(tell, look, store)
    except (StorageFailed, Ended):
        return False
    return seen.sound


def _rebuild(plan: Plan, tell: Tell) -> tuple[Rebuilt, list[ReadPosition]]:
    """Rebuild, again and again where reading ends the process: what it ended at is left out the next time."""
    marker = multiprocessing.get_context("spawn").RawArray("q", 3)
    avoid: list[ReadPosition] = []
    while True:
        reset_marker(marker)
        try:
            return apart(tell, rebuild, plan, marker, frozenset(avoid)), avoid
        except Ended as ended:
            at = read_position(marker)
            if at is None or at in avoid or len(avoid) >= _ENDS_MAX:
                raise CannotRepair(
                    f"reading the file ends the process ({ended}){'' if at is None else f', the last time at {at}'}."
                    f" {_advice(0)}"
                ) from None
            avoid.append(at)


def _advice(first_lost: int) -> str:
    what = "Restore a backup, or the store of another node."
    if first_lost > 0:
        what += (
            f" Or keep blocks 0 to {first_lost - 1} alone with --truncate-to {first_lost - 1}: whatever came later is"
            " gone then, though clients were told that it is committed"
        )
    return what
