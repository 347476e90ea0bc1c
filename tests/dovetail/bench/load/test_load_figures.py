"""The figures of ``bench load``: what follows from a measured run, and how a report reads."""

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dovetail.bench.load import figures, plot
from dovetail.bench.load.ceiling import SignatureRate
from dovetail.bench.process_costs import ProcessFigures
from dovetail.bench.report import Machine, Spread, latency

_RATE = SignatureRate(signatures_per_s=100.0, cpu_us=20_000.0, core_share=1.0)
_MEASURED = figures.Measured(
    transactions=40,
    signatures=50,
    seconds=2.0,
    ceiling_before=_RATE,
    ceiling_after=replace(_RATE, signatures_per_s=300.0, cpu_us=40_000.0),
    verify_batch=replace(_RATE, signatures_per_s=50.0),
    latency=latency([0.1]),
    blocks=figures.blocks([40]),
    refusals=0,
    queued_batches_max=0,
    disk_bytes=None,
    processes=(ProcessFigures("validator", 2.0, 1.0, 1.0, None), ProcessFigures("load generator", 1.0, 1.0, 1.0, None)),
    others_cpu_s=0.0,
)
_MACHINE = Machine(2, "3", "x", None)


def _shown(*measured: figures.Measured) -> str:
    output = StringIO()
    report = figures.report(_MACHINE, {}, [figures.run(one, 2) for one in measured])
    figures.show(report, Console(file=output, width=120))
    return output.getvalue()


def test_block_sizes() -> None:
    assert figures.blocks([5, 1, 3, 9]) == figures.Blocks(4, 1, 4.0, 9)


def test_the_ratio_is_against_the_mean_of_both_ceilings() -> None:
    run = figures.run(_MEASURED, cores=2)
    assert (run.transactions_per_s, run.ceiling_transactions_per_s) == (20.0, 160.0)
    assert run.ratio == 0.125


def test_the_cpu_ratio_is_what_the_signatures_alone_need_of_the_processor_time() -> None:
    run = figures.run(_MEASURED, cores=2)
    assert run.cpu_ratio == pytest.approx(50 * 0.03 / 3.0)
    assert run.busy_share == 0.75
    elsewhere = figures.run(replace(_MEASURED, others_cpu_s=None), cores=2)
    assert (elsewhere.cpu_ratio, elsewhere.busy_share) == (None, None)


@pytest.mark.parametrize(
    ("core_share", "others_cpu_s", "disturbed"),
    [(1.0, 0.4, False), (1.0, None, False), (0.9, 0.0, True), (1.0, 0.6, True)],
)
@pytest.mark.parametrize("which", ["ceiling_before", "ceiling_after"])
def test_a_disturbed_run_is_reported(
    which: str, core_share: float, others_cpu_s: float | None, disturbed: bool
) -> None:
    changed: dict[str, Any] = {which: replace(_RATE, core_share=core_share), "others_cpu_s": others_cpu_s}
    assert bool(figures.disturbance(replace(_MEASURED, **changed), cores=2)) is disturbed


def test_all_causes_of_a_disturbance_are_reported() -> None:
    disturbed = replace(_MEASURED, ceiling_after=replace(_RATE, core_share=0.9), others_cpu_s=0.6)
    first, second = figures.disturbance(disturbed, cores=2).split("; ")
    assert first == "other processes took 15% of the machine"
    assert second == "while the ceiling was measured, others left each worker 90% of a core"


def test_the_report_shows_both_ceilings_and_verify_batch() -> None:
    shown = _shown(_MEASURED)
    assert "20 committed transactions/s, 0.125 of the ceiling\n" in shown
    assert "ceiling: 100 signatures/s before the load, 300 after it" in shown
    assert "verify_batch alone on all cores: 40 transactions/s, 0.250 of the ceiling\n" in shown
    assert "cpu: 0.500 of node's and client's processor time" in shown
    assert "75% of the cores busy" in " ".join(shown.split())


def _report_with_curve() -> figures.Report:
    runs = [figures.run(replace(_MEASURED, seconds=seconds), 2) for seconds in (10.0, 8.0, 5.0)]
    return figures.report(_MACHINE, {}, runs, [figures.point(pending, runs) for pending in (100, 400)])


def test_a_point_is_the_spread_of_its_runs() -> None:
    first, last = _report_with_curve().curve
    assert (first.pending, last.pending) == (100, 400)
    assert last.transactions_per_s == Spread(5.0, 4.0, 8.0)


def test_a_picture_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot.draw(_report_with_curve(), tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
