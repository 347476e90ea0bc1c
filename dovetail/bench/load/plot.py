"""Draws throughput and latency against offered load. Needs matplotlib, an optional dependency."""

import importlib
from pathlib import Path
from typing import Any, Final

from dovetail.bench.load.figures import Report
from dovetail.common.errors import Refused

ENDINGS: Final = (".png", ".svg", ".pdf")

_INCHES: Final = (11.0, 4.5)
_DOTS_AN_INCH: Final = 130


def load_matplotlib() -> Any:
    """Matplotlib's class Figure. Raises Refused if matplotlib is not installed."""
    try:
        # Imported here, because only a plot needs matplotlib, whose import is slow.
        return importlib.import_module("matplotlib.figure").Figure
    except ImportError:
        raise Refused("--plot needs matplotlib, which is not installed: pip install 'dovetail-ledger[plot]'") from None


def draw(report: Report, file: Path) -> None:
    """Write the picture of a report with a curve. Raises Refused."""
    figure = load_matplotlib()(figsize=_INCHES, layout="constrained")
    rates, waits = figure.subplots(1, 2)
    pending = [point.pending for point in report.curve]
    spreads = [point.transactions_per_s for point in report.curve]
    rates.fill_between(pending, [one.lowest for one in spreads], [one.highest for one in spreads], alpha=0.25)
    rates.plot(pending, [one.median for one in spreads], marker="o", label="committed")
    ceiling = report.runs[-1].ceiling_transactions_per_s
    for part in (1.0, 0.5):
        rates.axhline(ceiling * part, linestyle="--", color="0.5")
        rates.annotate("ceiling" if part == 1 else "half", (pending[0], ceiling * part), color="0.4", va="bottom")
    rates.set(title="Throughput", ylabel="transactions/s", ylim=(0, None))
    for name in ("p50_ms", "p95_ms", "p99_ms"):
        waits.plot(pending, [getattr(point.latency, name) for point in report.curve], marker="o", label=name[:3])
    waits.set(title="From POST to COMMITTED", ylabel="ms", ylim=(0, None))
    waits.legend()
    for axes in (rates, waits):
        axes.set(xlabel="transactions sent and not yet committed", xscale="log")
        axes.set_xticks(pending, [f"{transactions:,}" for transactions in pending])
        axes.minorticks_off()
        axes.grid(visible=True, alpha=0.3)
    machine = report.machine
    figure.suptitle(f"{machine.cores} cores, Python {machine.python}, {machine.system}", fontsize="small", color="0.4")
    try:
        figure.savefig(file, dpi=_DOTS_AN_INCH)
    except OSError as error:
        raise Refused(f"cannot write {file}: {error.strerror}") from None
