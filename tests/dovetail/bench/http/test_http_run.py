"""``bench http`` as a whole: a small real run."""

import json
from pathlib import Path

import pytest

from tests.dovetail.conftest import Run

pytestmark = pytest.mark.timeout(120)

_ROOT = Path(__file__).parents[4]


@pytest.mark.e2e
def test_a_tiny_run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    profile = tmp_path / "rest.prof"
    words = ("--requests", "20", "--repeat", "2", "--pending", "200", "--dir", str(tmp_path))
    outcome = run("bench", "http", *words, "--profile-rest-api", str(profile), "--json")
    assert (outcome.code, outcome.err) == (0, "")
    report = json.loads(outcome.out)
    reads = ["GET /healthz", "GET /state/{address}", "GET /blocks?count=10"]
    names = [*reads, "POST /batches of 1", "POST /batches of 100"]
    assert [kind["name"] for kind in report["requests"]] == names
    for made in report["runs"]:
        assert [kind["requests"] for kind in made] == [20, 20, 20, 20, 2]
        assert made[0]["ratio"] == 1.0
        for kind in made:
            assert kind["ratio"] == pytest.approx(kind["requests_per_s"] / made[0]["requests_per_s"])
            assert kind["latency"]["samples"] == kind["requests"]
            assert {"load generator", "rest-api", "validator"} <= {process["name"] for process in kind["processes"]}
    assert len(report["disturbances"]) == 2
    assert profile.stat().st_size
    assert not list(tmp_path.glob("dovetail-bench-*"))
