"""``bench steps`` from its options to its report. The steps themselves are in ``path``.

The figures are the processor time of one thread, which a busy machine hardly changes.
"""

import asyncio
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.progress import Progress

from dovetail.bench.progress import ProgressBars
from dovetail.bench.report import Machine, shown_options, table
from dovetail.bench.signed_load import Kind, Load, sign
from dovetail.bench.steps.path import PREPARED_SHAPE, Step, time_steps
from dovetail.common.workers import Workers
from dovetail.ledger.batch import decode_batch_list


@dataclass(frozen=True)
class StepsOptions:
    """The options of ``dovetail bench steps``; its help says what each means."""

    transactions: int
    shape: int
    names: int | Literal["new"]
    block_transactions: int
    seed: int
    folder: Path | None


@dataclass(frozen=True)
class StepCost:
    """Microseconds per transaction: processor time, and other time, mostly waits for the disk."""

    name: str
    cpu_us: float
    waited_us: float


@dataclass(frozen=True)
class StepsReport:
    """All steps of the load, and the blocks that it made."""

    machine: Machine
    options: dict[str, object]
    steps: tuple[StepCost, ...]
    blocks: int


async def measure_steps(options: StepsOptions, progress: Progress) -> StepsReport:
    """Sign a load, and take it through every step."""
    kind: Kind = "create" if options.names == "new" else "draw"
    names = options.names if isinstance(options.names, int) else 0
    loads = [
        Load(options.seed, "steps", "prepare", names, names, PREPARED_SHAPE, 1),
        Load(options.seed, "steps", kind, names, options.transactions, options.shape, 1),
    ]
    bars = ProgressBars(progress)
    with Workers() as workers, tempfile.TemporaryDirectory(prefix="dovetail-bench-", dir=options.folder) as folder:
        signed: list[list[bytes]] = []
        for load in loads:
            async with bars.step(f"sign {load.transactions:,} transactions", load.transactions) as advance:
                posts = await sign(workers, load, advance)
            signed.append([raw for post in posts for raw in decode_batch_list(post.body)])
        async with bars.step("one step after the other", None):
            job = workers.submit(time_steps, Path(folder), signed[0], signed[1], options.block_transactions)
            times, blocks = await asyncio.wrap_future(job)
    each = 1e6 / options.transactions
    costs = tuple(StepCost(step, times.cpu_s[step] * each, max(0.0, times.waited_s[step] * each)) for step in Step)
    return StepsReport(Machine.here(None, options.folder), shown_options(asdict(options)), costs, blocks)


def show(report: StepsReport, console: Console) -> None:
    """Print the cost of each step, and what the cores could do at that cost."""
    report.machine.show(report.options, console)
    shown = table("STEP", "µS A TX", "PART", "WAITED µS")
    all_us = sum(step.cpu_us for step in report.steps)
    for step in report.steps:
        shown.add_row(step.name, f"{step.cpu_us:.1f}", f"{step.cpu_us / all_us:.0%}", f"{step.waited_us:.1f}")
    shown.add_row("all", f"{all_us:.1f}", "", f"{sum(step.waited_us for step in report.steps):.1f}")
    console.print(shown)
    cores = report.machine.cores
    console.print(
        f"{report.blocks} blocks; at this cost {cores} free cores do {cores * 1e6 / all_us:,.0f} transactions/s,"
        f" {report.steps[0].cpu_us / all_us:.2f} of the rate at which they only verify"
    )
