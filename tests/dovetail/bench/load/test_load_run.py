"""``bench load`` as a whole: refusals before a node starts, and small real runs."""

import json
from pathlib import Path

import pytest

from dovetail.bench.load import figures, plot
from dovetail.bench.load import run as load_run
from tests.dovetail.conftest import Run

pytestmark = pytest.mark.timeout(120)

_ROOT = Path(__file__).parents[4]


def test_a_post_over_the_size_limit_is_refused_before_anything_starts(run: Run) -> None:
    outcome = run("bench", "load", "--transactions", "12000", "--shape", "5000", "--per-post", "3")
    assert outcome.code == 1
    assert "lower --per-post" in outcome.err


@pytest.mark.parametrize("name", ["transactions", "batches"])
def test_what_exceeds_the_queue_is_not_parked(run: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"DOVETAIL_LIMITS_PENDING_{name.upper()}_MAX", "12")
    outcome = run("bench", "load", "--transactions", "4", "--pending", "3", "--per-post", "1", "--parked", "10")
    assert outcome.code == 1
    reason = f"13 {name}, the node's queue holds 12 {name}: set DOVETAIL_LIMITS_PENDING_{name.upper()}_MAX=13\n"
    assert outcome.err.endswith(reason)


@pytest.mark.e2e
def test_a_tiny_run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    sizes = ("--transactions", "45", "--shape", "2", "--per-post", "5", "--processors", "2")
    outcome = run("bench", "load", *sizes, "--repeat", "2", "--ceiling", "0.01", "--dir", str(tmp_path), "--json")
    assert (outcome.code, outcome.err) == (0, "")
    report = json.loads(outcome.out)
    assert len(report["runs"]) == 2
    for made in report["runs"]:
        assert (made["transactions"], made["signatures"]) == (45, 68)
        ceilings = [made[when]["signatures_per_s"] for when in ("ceiling_before", "ceiling_after")]
        signatures_per_s = made["transactions_per_s"] * 68 / 45
        assert made["ratio"] == pytest.approx(signatures_per_s / (sum(ceilings) / 2))
        assert made["verify_batch"]["signatures_per_s"] > 0
        assert made["latency"]["samples"] == 5
        assert 1 <= made["blocks"]["count"] <= 5
        names = {process["name"] for process in made["processes"]}
        assert {"load generator", "validator", "rest-api", "processor intkey 1", "processor intkey 2"} <= names
        assert {"processor intkey worker 1", "processor intkey worker 2"} <= names
        assert made["others_cpu_s"] >= 0
        assert any(name.startswith("verifier") for name in names)
    rates = report["transactions_per_s"]
    assert rates["lowest"] <= rates["median"] <= rates["highest"]
    assert not list(tmp_path.glob("dovetail-bench-*"))


@pytest.mark.e2e
def test_a_report_is_shown_as_tables(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    profile = tmp_path / "validator.prof"
    sizes = ("--transactions", "4", "--per-post", "1", "--keys", "hot", "--pending", "1")
    outcome = run("bench", "load", *sizes, "--ceiling", "0.01", "--profile-validator", str(profile))
    assert (outcome.code, outcome.err) == (0, "")
    assert "processor intkey" in outcome.out
    assert "of the ceiling" in outcome.out
    assert profile.stat().st_size


@pytest.mark.e2e
def test_a_tiny_run_of_everything(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    load = ("--transactions", "12", "--per-post", "1", "--pending", "1", "--keys", "8", "--conflict", "50")
    node = ("--families", "2", "--leaves", "5", "--parked", "3", "--legacy")
    outcome = run("bench", "load", *load, *node, "--ceiling", "0.01", "--dir", str(tmp_path), "--json")
    assert (outcome.code, outcome.err) == (0, "")
    report = json.loads(outcome.out)
    (made,) = report["runs"]
    assert made["transactions"] == 12
    assert 3 <= made["queued_batches_max"] <= 4
    names = {process["name"] for process in made["processes"]}
    assert {"processor intkey worker", "processor intkey_2 worker"} <= names
    assert not list(tmp_path.glob("dovetail-bench-*"))


@pytest.mark.e2e
def test_a_plot_has_a_point_for_each_load(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn: list[tuple[figures.Report, Path]] = []
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    monkeypatch.setattr(plot, "load_matplotlib", lambda: None)
    monkeypatch.setattr(load_run, "draw", lambda report, file: drawn.append((report, file)))
    sizes = ("--transactions", "30", "--per-post", "2", "--pending", "6", "--keys", "3", "--ceiling", "0.01")
    outcome = run("bench", "load", *sizes, "--plot", str(tmp_path / "curve.svg"))
    assert (outcome.code, outcome.err) == (0, "")
    assert "PENDING" in outcome.out
    ((report, file),) = drawn
    assert [point.pending for point in report.curve] == [2, 6]
    assert report.curve[-1].transactions_per_s == report.transactions_per_s
    assert file == tmp_path / "curve.svg"
