"""What the reports of several benchmarks share: the machine, statistics over runs, tables. Measures no node."""

import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import median
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from dovetail.bench.process_costs import filesystem_of

PERCENTILES: Final = ("P50 MS", "P95 MS", "P99 MS")
_TEXT_COLUMNS: Final = frozenset({"PROCESS", "REQUEST", "STEP"})
_OTHERS_SHARE_MAX: Final = 0.10


@dataclass(frozen=True)
class Spread:
    """One figure over several runs."""

    median: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class Latency:
    """Milliseconds by nearest rank: from a load's POST to its commit, or from a request to its answer."""

    samples: int
    p50_ms: float
    p95_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Machine:
    """The machine that was measured."""

    cores: int
    python: str
    system: str
    filesystem: str | None
    """The filesystem of the node's data; None for a node that was running already."""

    @classmethod
    def here(cls, url: str | None, folder: Path | None) -> "Machine":
        """This machine. ``folder``: the folder of the node's data, which is unknown if ``url`` is given."""
        return cls(
            os.cpu_count() or 1,
            platform.python_version(),
            f"{platform.system()} {platform.machine()}",
            None if url else filesystem_of(folder or Path(tempfile.gettempdir())),
        )

    def show(self, options: Mapping[str, object], console: Console) -> None:
        """Print the machine and the benchmark's options, one line each."""
        on = f", data on {self.filesystem}" if self.filesystem else ""
        console.print(f"{self.cores} cores, Python {self.python}, {self.system}{on}")
        console.print(" ".join(f"{name}={value}" for name, value in options.items()), style="dim", soft_wrap=True)


def shown_options(options: Mapping[str, object]) -> dict[str, object]:
    """Options as a report holds them: those that were given, paths as text."""

    def shown(value: object) -> object:
        if isinstance(value, dict):
            return {part: shown(inner) for part, inner in value.items()}
        return str(value) if isinstance(value, Path) else value

    return {name: shown(value) for name, value in options.items() if value is not None and value != {}}


def latency(samples_s: Sequence[float]) -> Latency:
    """Percentiles of at least one sample."""
    ordered = sorted(samples_s)

    def percentile(percent: int) -> float:
        return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)] * 1000

    return Latency(len(ordered), percentile(50), percentile(95), percentile(99))


def spread(values: Sequence[float]) -> Spread:
    """The spread of at least one value."""
    return Spread(median(values), min(values), max(values))


def taken_by_others(cpu_s: float | None, seconds: float, cores: int) -> str:
    """A warning if processes outside the benchmark used over a tenth of the machine for ``seconds``; else empty."""
    share = (cpu_s or 0.0) / (seconds * cores)
    return f"other processes took {share:.0%} of the machine" if share > _OTHERS_SHARE_MAX else ""


def table(*headings: str, no_wrap: bool = False) -> Table:
    """An empty table in the style of all reports."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for heading in headings:
        made.add_column(heading, justify="left" if heading in _TEXT_COLUMNS else "right", no_wrap=no_wrap)
    return made


def brief(milliseconds: float) -> str:
    """Milliseconds with as many digits as are significant."""
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.1f}"


def percentiles(of: Latency) -> tuple[str, str, str]:
    """Table cells for the headings PERCENTILES."""
    return brief(of.p50_ms), brief(of.p95_ms), brief(of.p99_ms)


def show_disturbances(disturbances: Sequence[str], console: Console) -> None:
    """Print a warning for each disturbed run; undisturbed runs have an empty text."""
    for number, disturbance in enumerate(disturbances, 1):
        if disturbance:
            advice = "the run's figures mean little: repeat it on a quieter machine"
            console.print(f"run {number}: {disturbance}; {advice}", style="yellow")
