"""The figures of a benchmark and how they read: one type that JSON and the table both come from. Measures nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import TYPE_CHECKING, Final

from dovetail.bench.load.idle_baseline import Baseline
from dovetail.bench.process_costs import ProcessFigures
from dovetail.bench.signed_load import Ceiling

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PERCENTILES: Final = ("P50 MS", "P95 MS", "P99 MS")
_NAMES: Final = frozenset({"PROCESS", "REQUEST"})
"""Columns of words; all others are of figures."""

_CORE_SHARE_MIN: Final = 0.95
_OTHERS_SHARE_MAX: Final = 0.10


@dataclass(frozen=True)
class Spread:
    """Several runs of one figure."""

    median: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class Latency:
    """How long what was asked for took, in milliseconds: a load's POSTs until their commit, else each request."""

    samples: int
    p50_ms: float
    p95_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Blocks:
    """The blocks made during the run, and transactions in one."""

    count: int
    transactions_min: int
    transactions_median: float
    transactions_max: int


@dataclass(frozen=True)
class Machine:
    """What the figures hold for."""

    cores: int
    python: str
    system: str
    filesystem: str | None
    """Of the node's data; None for a node that was running already."""

    def show(self, options: dict[str, object], console: "Console") -> None:
        """Two lines: what was measured on, and with what."""
        on = f", data on {self.filesystem}" if self.filesystem else ""
        console.print(f"{self.cores} cores, Python {self.python}, {self.system}{on}")
        console.print(" ".join(f"{name}={value}" for name, value in options.items()), style="dim", soft_wrap=True)


@dataclass(frozen=True)
class Run:
    """One run: every transaction was found COMMITTED afterwards."""

    transactions: int
    seconds: float
    transactions_per_s: float
    ceiling: Ceiling
    ratio: float
    latency: Latency
    blocks: Blocks
    refusals: int
    queued_batches_max: int
    """The most that were pending at one time, sampled twice a second."""

    disk_bytes: int | None
    """By how much the store grew; None for a node that was running already."""

    processes: tuple[ProcessFigures, ...]
    others_cpu_s: float | None
    """What everything else on the machine took meanwhile, the system's own work included; None as above."""

    baseline: Baseline | None
    """Where one batch at a time was sent to a node of the benchmark's own."""

    p50_by_baseline: float | None
    """The median latency divided by the baseline's sum; None as above."""

    def disturbance(self, cores: int) -> str:
        """What took so much of the machine that its figures mean little; empty where nothing did.

        The ceiling is no figure of an idle node.
        """
        found = [taken_by_others(self.others_cpu_s, self.seconds, cores)]
        if self.baseline is None and self.ceiling.core_share < _CORE_SHARE_MIN:
            share = self.ceiling.core_share
            found.append(f"while the ceiling was measured, others left each worker {share:.0%} of a core")
        return "; ".join(filter(None, found))


@dataclass(frozen=True)
class Point:
    """The runs at one offered load: ``pending`` transactions sent and not yet seen to commit."""

    pending: int
    transactions_per_s: Spread
    latency: Latency
    """Of the median run."""


@dataclass(frozen=True)
class Report:
    """A whole benchmark. ``options`` are what it was asked for, enough to repeat it."""

    machine: Machine
    options: dict[str, object]
    runs: tuple[Run, ...]
    """At the load that was asked for."""

    transactions_per_s: Spread
    ratio: Spread
    p50_by_baseline: Spread | None
    """Where one batch at a time was sent to a node of the benchmark's own."""

    curve: tuple[Point, ...]
    """From the smallest load to the one that was asked for; empty where no plot was."""

    disturbances: tuple[str, ...]
    """Of each run: what took so much of the machine that its figures mean little; empty where nothing did."""


def latency(samples_s: Sequence[float]) -> Latency:
    """Percentiles by nearest rank of at least one sample."""
    ordered = sorted(samples_s)

    def percentile(percent: int) -> float:
        return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)] * 1000

    return Latency(len(ordered), percentile(50), percentile(95), percentile(99))


def blocks(sizes: Sequence[int]) -> Blocks:
    """From the transactions in each block, at least one."""
    return Blocks(len(sizes), min(sizes), median(sizes), max(sizes))


def point(pending: int, runs: Sequence[Run]) -> Point:
    """Of at least one run."""
    return Point(pending, spread([run.transactions_per_s for run in runs]), _median_run(runs).latency)


def report(machine: Machine, options: dict[str, object], runs: Sequence[Run], curve: Sequence[Point] = ()) -> Report:
    """Median and spread over the runs, at least one."""
    return Report(
        machine,
        options,
        tuple(runs),
        spread([run.transactions_per_s for run in runs]),
        spread([run.ratio for run in runs]),
        spread(idle) if (idle := [run.p50_by_baseline for run in runs if run.p50_by_baseline is not None]) else None,
        tuple(curve),
        tuple(run.disturbance(machine.cores) for run in runs),
    )


def taken_by_others(cpu_s: float | None, seconds: float, cores: int) -> str:
    """In words, where what is no part of the benchmark took much of the machine for so long; empty where not."""
    share = (cpu_s or 0.0) / (seconds * cores)
    return f"other processes took {share:.0%} of the machine" if share > _OTHERS_SHARE_MAX else ""


def brief(milliseconds: float) -> str:
    """For a table: as many digits as mean something."""
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.1f}"


def spread(values: Sequence[float]) -> Spread:
    """Of at least one value."""
    return Spread(median(values), min(values), max(values))


def show(result: Report, console: "Console") -> None:
    """The report for people: the runs, and what the median run cost by process."""
    result.machine.show(result.options, console)
    if result.p50_by_baseline is None:
        _show_runs(result.runs, console)
    else:
        _show_idle_runs(result.runs, console)
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
    times = result.p50_by_baseline
    console.print(_in_words(result, chosen) if times is None else _idle_in_words(result.runs, times))
    show_disturbances(result.disturbances, console)


def show_disturbances(of_runs: Sequence[str], console: "Console") -> None:
    """A line for each run that has one."""
    for number, disturbance in enumerate(of_runs, 1):
        if disturbance:
            console.print(f"run {number}: {disturbance}; its figures mean little, repeat it", style="yellow")


def _show_runs(runs: Sequence[Run], console: "Console") -> None:
    shown = table("RUN", "TX/S", "CEILING TX/S", "RATIO", *PERCENTILES, "BLOCKS", "TX A BLOCK", "QUEUED", "429")
    for number, run in enumerate(runs, 1):
        made = run.blocks
        shown.add_row(
            str(number),
            f"{run.transactions_per_s:,.0f}",
            f"{run.ceiling.transactions_per_s:,.0f}",
            f"{run.ratio:.3f}",
            *percentiles(run.latency),
            str(made.count),
            f"{made.transactions_min}-{made.transactions_median:.0f}-{made.transactions_max}",
            f"{run.queued_batches_max:,}",
            str(run.refusals),
        )
    console.print(shown)


def _show_idle_runs(runs: Sequence[Run], console: "Console") -> None:
    shown = table("RUN", *PERCENTILES, "COMMIT MS", "ROUND TRIP MS", "TIMES", "BLOCKS")
    for number, run in enumerate(runs, 1):
        if run.baseline is not None:
            shown.add_row(
                str(number),
                *percentiles(run.latency),
                f"{run.baseline.commit_ms:.2f}",
                f"{run.baseline.round_trip_ms:.2f}",
                f"{run.p50_by_baseline:.1f}",
                str(run.blocks.count),
            )
    console.print(shown)


def table(*headings: str, no_wrap: bool = False) -> "Table":
    """One of the report's tables, empty."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in headings:
        made.add_column(heading, justify="left" if heading in _NAMES else "right", no_wrap=no_wrap)
    return made


def percentiles(of: Latency) -> tuple[str, str, str]:
    """Under the headings PERCENTILES."""
    return brief(of.p50_ms), brief(of.p95_ms), brief(of.p99_ms)


def _median_run(runs: Sequence[Run]) -> Run:
    return sorted(runs, key=lambda run: run.transactions_per_s)[(len(runs) - 1) // 2]


def _show_curve(curve: Sequence[Point], console: "Console") -> None:
    shown = table("PENDING", "TX/S", "LOWEST", "HIGHEST", *PERCENTILES)
    for at in curve:
        rate = at.transactions_per_s
        shown.add_row(
            f"{at.pending:,}",
            *(f"{value:,.0f}" for value in (rate.median, rate.lowest, rate.highest)),
            *percentiles(at.latency),
        )
    console.print(shown)


def _in_words(result: Report, chosen: Run) -> str:
    rate, ratio = result.transactions_per_s, result.ratio
    line = (
        f"{rate.median:,.0f} committed transactions/s, {ratio.median:.3f} of the ceiling"
        f" ({chosen.ceiling.batches_per_s:,.0f} batches/s, {chosen.ceiling.signatures_per_s:,.0f} signatures/s)"
    )
    if len(result.runs) > 1:
        line += (
            f"; median of {len(result.runs)}, from {rate.lowest:,.0f} to {rate.highest:,.0f}"
            f" and {ratio.lowest:.3f} to {ratio.highest:.3f}"
        )
    if chosen.disk_bytes is not None:
        line += f"; {chosen.disk_bytes / chosen.transactions:,.0f} bytes on disk a transaction"
    return line


def _idle_in_words(runs: Sequence[Run], times: Spread) -> str:
    p50_ms = median(run.latency.p50_ms for run in runs)
    bare_ms = median(run.baseline.sum_ms for run in runs if run.baseline is not None)
    line = (
        f"idle: p50 {brief(p50_ms)} ms, {times.median:.1f} times what one synced commit and two ZeroMQ round trips take"
        f" here ({bare_ms:.2f} ms)"
    )
    if len(runs) > 1:
        line += f"; median of {len(runs)}, from {times.lowest:.1f} to {times.highest:.1f} times"
    return line
