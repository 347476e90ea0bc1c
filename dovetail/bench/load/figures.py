"""The figures of ``bench load``, as JSON and as tables. Measures nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Final

from rich.console import Console

from dovetail.bench.load.ceiling import SignatureRate
from dovetail.bench.process_costs import ProcessFigures
from dovetail.bench.report import (
    PERCENTILES,
    Latency,
    Machine,
    Spread,
    percentiles,
    show_disturbances,
    spread,
    table,
    taken_by_others,
)

_CORE_SHARE_MIN: Final = 0.95


@dataclass(frozen=True)
class Blocks:
    """The blocks made during a run, and the transactions in one."""

    count: int
    transactions_min: int
    transactions_median: float
    transactions_max: int


@dataclass(frozen=True)
class Measured:
    """What one run measured. All its transactions were found COMMITTED afterwards."""

    transactions: int
    signatures: int
    """The number of signatures: one for each transaction and one for each batch."""

    seconds: float
    ceiling_before: SignatureRate
    ceiling_after: SignatureRate
    verify_batch: SignatureRate
    latency: Latency
    blocks: Blocks
    refusals: int
    queued_batches_max: int
    """The most batches that were pending at one time, sampled twice a second."""

    disk_bytes: int | None
    """Growth of the store; None for a node that was running already."""

    processes: tuple[ProcessFigures, ...]
    others_cpu_s: float | None
    """Processor time of everything else on the machine, also of the system; None if the node was running already."""


@dataclass(frozen=True)
class Run(Measured):
    """One run with the figures that follow from it."""

    transactions_per_s: float
    ceiling_transactions_per_s: float
    """The mean of the ceilings before and after the load."""

    ratio: float
    """``transactions_per_s`` divided by the ceiling."""

    cpu_ratio: float | None
    """The part of the processor time of node and client that libsecp256k1 alone needs; None if it is unknown."""

    busy_share: float | None
    """The part of all cores' time that node and client used; None if the node was running already."""


@dataclass(frozen=True)
class Point:
    """The runs at one offered load: ``pending`` transactions sent and not yet seen to commit."""

    pending: int
    transactions_per_s: Spread
    latency: Latency
    """The latency of the median run."""


@dataclass(frozen=True)
class Report:
    """A whole benchmark. ``options`` are enough to repeat it."""

    machine: Machine
    options: dict[str, object]
    runs: tuple[Run, ...]
    """The runs at the requested load."""

    transactions_per_s: Spread
    ratio: Spread
    cpu_ratio: Spread | None
    curve: tuple[Point, ...]
    """The points from the smallest load to the requested load; empty without a plot."""

    disturbances: tuple[str, ...]
    """For each run, why its figures mean little; empty if nothing disturbed it."""


def blocks(sizes: Sequence[int]) -> Blocks:
    """Summarize blocks. ``sizes``: the transactions in each block; there is at least one block."""
    return Blocks(len(sizes), min(sizes), median(sizes), max(sizes))


def run(measured: Measured, cores: int) -> Run:
    """Derive rates and ratios from ``measured``. ``cores``: the number of cores of this machine."""
    before, after = measured.ceiling_before, measured.ceiling_after
    rate = measured.transactions / measured.seconds
    ceiling = mean((before.signatures_per_s, after.signatures_per_s)) * measured.transactions / measured.signatures
    bare_cpu_s = measured.signatures * mean((before.cpu_us, after.cpu_us)) / 1e6
    cpu_s = None if measured.others_cpu_s is None else sum(process.cpu_s for process in measured.processes)
    return Run(
        **vars(measured),
        transactions_per_s=rate,
        ceiling_transactions_per_s=ceiling,
        ratio=rate / ceiling,
        cpu_ratio=bare_cpu_s / cpu_s if cpu_s else None,
        busy_share=None if cpu_s is None else cpu_s / (measured.seconds * cores),
    )


def point(pending: int, runs: Sequence[Run]) -> Point:
    """Summarize at least one run at the load ``pending``."""
    return Point(pending, spread([run.transactions_per_s for run in runs]), _median_run(runs).latency)


def report(machine: Machine, options: dict[str, object], runs: Sequence[Run], curve: Sequence[Point] = ()) -> Report:
    """Median and spread over at least one run."""
    return Report(
        machine,
        options,
        tuple(runs),
        spread([run.transactions_per_s for run in runs]),
        spread([run.ratio for run in runs]),
        spread(shares) if (shares := [run.cpu_ratio for run in runs if run.cpu_ratio is not None]) else None,
        tuple(curve),
        tuple(disturbance(run, machine.cores) for run in runs),
    )


def disturbance(run: Measured, cores: int) -> str:
    """Why the run's figures mean little; empty if nothing disturbed it."""
    reasons = [taken_by_others(run.others_cpu_s, run.seconds, cores)]
    share = min(run.ceiling_before.core_share, run.ceiling_after.core_share)
    if share < _CORE_SHARE_MIN:
        reasons.append(f"while the ceiling was measured, others left each worker {share:.0%} of a core")
    return "; ".join(filter(None, reasons))


def show(result: Report, console: Console) -> None:
    """Print all runs, and what the median run cost by process."""
    result.machine.show(result.options, console)
    _show_runs(result.runs, console)
    if result.curve:
        _show_curve(result.curve, console)
    chosen = _median_run(result.runs)
    costs = table("PROCESS", "CPU S", "CORE %", "µS A TX", "MEMORY MIB", "OWN MIB", "WRITTEN MIB")
    for process in chosen.processes:
        costs.add_row(
            process.name,
            f"{process.cpu_s:.2f}",
            f"{process.cpu_s / chosen.seconds:.0%}",
            f"{process.cpu_s / chosen.transactions * 1e6:.1f}",
            f"{process.memory_mib_max:,.0f}",
            f"{process.own_memory_mib_max:,.0f}",
            "" if process.written_mib is None else f"{process.written_mib:,.0f}",
        )
    if chosen.others_cpu_s is not None:
        costs.add_row("everything else", f"{chosen.others_cpu_s:.2f}", f"{chosen.others_cpu_s / chosen.seconds:.0%}")
    console.print(costs)
    for line in _summary(result, chosen):
        console.print(line)
    show_disturbances(result.disturbances, console)


def _show_runs(runs: Sequence[Run], console: Console) -> None:
    ceilings = ("CEILING BEFORE", "CEILING AFTER", "RATIO", "CPU RATIO", "BUSY")
    shown = table("RUN", "TX/S", *ceilings, *PERCENTILES, "BLOCKS", "TX A BLOCK", "QUEUED", "429")
    for number, run in enumerate(runs, 1):
        made = run.blocks
        shown.add_row(
            str(number),
            f"{run.transactions_per_s:,.0f}",
            f"{_transactions_per_s(run, run.ceiling_before):,.0f}",
            f"{_transactions_per_s(run, run.ceiling_after):,.0f}",
            f"{run.ratio:.3f}",
            "" if run.cpu_ratio is None else f"{run.cpu_ratio:.3f}",
            "" if run.busy_share is None else f"{run.busy_share:.0%}",
            *percentiles(run.latency),
            str(made.count),
            f"{made.transactions_min}-{made.transactions_median:.0f}-{made.transactions_max}",
            f"{run.queued_batches_max:,}",
            str(run.refusals),
        )
    console.print(shown)


def _show_curve(curve: Sequence[Point], console: Console) -> None:
    shown = table("PENDING", "TX/S", "LOWEST", "HIGHEST", *PERCENTILES)
    for at in curve:
        rate = at.transactions_per_s
        shown.add_row(
            f"{at.pending:,}",
            *(f"{value:,.0f}" for value in (rate.median, rate.lowest, rate.highest)),
            *percentiles(at.latency),
        )
    console.print(shown)


def _median_run(runs: Sequence[Run]) -> Run:
    return sorted(runs, key=lambda run: run.transactions_per_s)[(len(runs) - 1) // 2]


def _transactions_per_s(run: Measured, rate: SignatureRate) -> float:
    return rate.signatures_per_s * run.transactions / run.signatures


def _summary(result: Report, chosen: Run) -> list[str]:
    rate, ratio = result.transactions_per_s, result.ratio
    headline = f"{rate.median:,.0f} committed transactions/s, {ratio.median:.3f} of the ceiling"
    if len(result.runs) > 1:
        headline += (
            f"; median of {len(result.runs)}, from {rate.lowest:,.0f} to {rate.highest:,.0f}"
            f" and {ratio.lowest:.3f} to {ratio.highest:.3f}"
        )
    if chosen.disk_bytes is not None:
        headline += f"; {chosen.disk_bytes / chosen.transactions:,.0f} bytes on disk a transaction"
    signatures = [rate.signatures_per_s for rate in (chosen.ceiling_before, chosen.ceiling_after)]
    own = chosen.verify_batch
    lines = [
        headline,
        f"ceiling: {signatures[0]:,.0f} signatures/s before the load, {signatures[1]:,.0f} after it, by libsecp256k1"
        " alone on all cores",
        f"verify_batch alone on all cores: {_transactions_per_s(chosen, own):,.0f} transactions/s,"
        f" {own.signatures_per_s / mean(signatures):.3f} of the ceiling",
    ]
    if result.cpu_ratio is not None:
        lines.append(
            f"cpu: {result.cpu_ratio.median:.3f} of node's and client's processor time is what libsecp256k1 alone"
            f" needs; both kept {chosen.busy_share:.0%} of the cores busy"
        )
    return lines
