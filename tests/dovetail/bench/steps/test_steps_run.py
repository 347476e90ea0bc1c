"""``bench steps``: the processor time of each step that a transaction passes."""

import json
from pathlib import Path

import pytest

from tests.dovetail.conftest import Run

pytestmark = pytest.mark.timeout(120)

_ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("keys", ["new", "9"])
def test_every_step_has_a_cost(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keys: str) -> None:
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    load = ("--transactions", "50", "--shape", "7", "--keys", keys, "--block", "20", "--dir", str(tmp_path))
    outcome = run("bench", "steps", *load, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    made = json.loads(outcome.out)
    # Each block holds two batches of seven transactions. The last batch has a block of its own.
    assert made["blocks"] == 4
    assert len(made["steps"]) == 12
    assert all(step["cpu_us"] > 0 and step["waited_us"] >= 0 for step in made["steps"])
    assert not list(tmp_path.iterdir())
