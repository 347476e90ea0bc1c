"""Repairs a damaged store: rebuilds it beside the old one, verifies the result and puts it in place."""

import multiprocessing
from pathlib import Path
from typing import Final, NamedTuple

from dovetail.ledger.limits import Limits
from dovetail.validator.maintenance.child import Ended, OnStep, Step, run_in_child
from dovetail.validator.maintenance.inspection import Inspection, inspect_store
from dovetail.validator.maintenance.rebuild import Plan, Rebuilt, rebuild
from dovetail.validator.maintenance.staging import REPAIRING, Finish, require_unread, staging_folder, swap_in
from dovetail.validator.maintenance.verification import verify_whole
from dovetail.validator.store import StorageFailed
from dovetail.validator.store.length import DATA
from dovetail.validator.store.locks import own
from dovetail.validator.store.salvage import ReadPosition, read_position, reset_marker

_ENDS_MAX: Final = 200
"""How many child processes may be killed by reading."""


class Repaired(NamedTuple):
    """``kept``: the former file. ``ended_at``: the reads that killed a child process.

    ``was_sound``: whether the former file had no damaged record or page.
    """

    rebuilt: Rebuilt
    ended_at: list[ReadPosition]
    kept: Path
    was_sound: bool


class CannotRepair(Exception):
    """A block cannot be rebuilt; the text says which is the first, why, and what to do. Nothing has changed."""


class BehindHead(Exception):
    """The last block to keep does not exist; the text names the last one. Nothing has changed."""


def repair(
    store: Path, limits: Limits, last: int | None, processes: int, on_step: OnStep, finish: Finish, removed: list[Path]
) -> Repaired:
    """Repair the store in a folder. ``last``: the last block to keep; None keeps all.

    ``processes``: the number of processes that check signatures; 0 means one for each core.

    Raises CannotRepair, BehindHead, StorageFailed and Ended.
    """
    if not (store / DATA).exists():
        raise StorageFailed(f"there is no store at {store}")
    with own(store):
        require_unread(store)
        with staging_folder(store / REPAIRING, removed) as folder:
            made = folder / "store"
            rebuilt, ended_at = _rebuild(Plan(store, made, limits, last), on_step)
            if last is not None and rebuilt.held and last >= rebuilt.held:
                raise BehindHead(
                    f"there is no block {last} to keep: as far as the file tells, its last is {rebuilt.held - 1}"
                )
            if rebuilt.lost is not None:
                raise CannotRepair(f"{rebuilt.lost}. {_advice(rebuilt.blocks)}")
            if rebuilt.blocks == 0:
                raise CannotRepair(f"no block can be read. {_advice(0)}")
            on_step(Step("verifying, blocks", 0, rebuilt.blocks))
            findings = verify_whole(on_step, made, processes)
            if len(findings):
                first = findings.kept[0]
                at = first.block_num if first.block_num is not None else rebuilt.blocks
                raise CannotRepair(
                    f"what was rebuilt is not sound, {len(findings)} findings, the first: {first}. {_advice(at)}"
                )
            was_sound = not (ended_at or rebuilt.mended or rebuilt.let_go) and _is_sound(store, on_step)
            kept = swap_in(made, store, finish, keep=True)
            assert kept is not None, "keep is true"
            return Repaired(rebuilt, ended_at, kept, was_sound)


def _is_sound(store: Path, on_step: OnStep) -> bool:
    try:
        seen: Inspection = run_in_child(on_step, inspect_store, store)
    except (StorageFailed, Ended):
        return False
    return seen.sound


def _rebuild(plan: Plan, on_step: OnStep) -> tuple[Rebuilt, list[ReadPosition]]:
    """Rebuild in child processes. Whenever a read kills the child, repeats without that read."""
    marker = multiprocessing.get_context("spawn").RawArray("q", 3)
    avoid: list[ReadPosition] = []
    while True:
        reset_marker(marker)
        try:
            return run_in_child(on_step, rebuild, plan, marker, frozenset(avoid)), avoid
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
            " gone then, though it was reported to clients as committed"
        )
    return what
