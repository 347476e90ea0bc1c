"""Runs many seeds on all cores, or one seed with its transcript.

Start it with ``python -m tests.system.simulation`` or ``tox -e sim``.
"""

import os
import tempfile
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.system.simulation.turns import quiet, run_turn
from tests.system.simulation.world import run_world

_SEEDS_A_TURN: Final = 25
_FAILURES_SHOWN_MAX: Final = 10


def _one(seed: int, trace: bool) -> None:
    quiet()
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_world(seed, Path(folder), print if trace else None)
    print(
        f"seed {seed}: {outcome.blocks} blocks, {outcome.batches} batches on the chain, {outcome.accepted} accepted,"
        f" {outcome.crashes} crashes, transcript {outcome.digest:08x}"
    )
    if outcome.failure is not None:
        traceback.print_exception(outcome.failure)
        raise typer.Exit(1)


def _many(first: int, count: int, processes: int) -> None:
    failures: list[tuple[int, str]] = []
    totals = dict.fromkeys(("blocks", "batches", "accepted", "crashes"), 0)
    end = first + count
    turns = [range(start, min(start + _SEEDS_A_TURN, end)) for start in range(first, end, _SEEDS_A_TURN)]
    columns = (TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with (
        Progress(*columns, TextColumn("{task.description}")) as progress,
        ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as workers,
    ):
        bar = progress.add_task("", total=count)
        for done in as_completed([workers.submit(run_turn, turn) for turn in turns]):
            for outcome, failure in done.result():
                for name in totals:
                    totals[name] += getattr(outcome, name)
                if failure:
                    failures.append((outcome.seed, failure))
                    progress.console.print(f"seed {outcome.seed}: {failure}", markup=False)
                    progress.update(bar, description=f"{len(failures)} failed")
            progress.advance(bar, len(done.result()))
            if len(failures) >= _FAILURES_SHOWN_MAX:
                workers.shutdown(cancel_futures=True)
                break
    print(", ".join(f"{value} {name}" for name, value in totals.items()))
    if failures:
        print(f"{len(failures)} seeds failed. Run one again: tox -e sim -- --seed {min(failures)[0]} --trace")
        raise typer.Exit(1)
    print(f"{count} seeds, none failed")


app = typer.Typer(add_completion=False)


@app.command()
def main(
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to run.")] = 10_000,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    seed: Annotated[int | None, typer.Option(min=0, help="Run only this seed, exactly as before.")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="With --seed: print everything that happens.")] = False,
    processes: Annotated[int, typer.Option(min=0, help="How many processes; 0: one for each core.")] = 0,
) -> None:
    """Run a node in simulated worlds, and check that nothing is lost in any of them.

    Each seed draws a world: processors, clients, faults of disk and network, crashes. Exit code 1 if a seed fails.
    """
    if seed is None:
        _many(first, seeds, processes or os.cpu_count() or 1)
    else:
        _one(seed, trace)


if __name__ == "__main__":
    app()
