"""Fifty seeds of the simulation: none fails, seeds are reproducible, and enough events happen in them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.system.simulation import __main__ as command
from tests.system.simulation.clock import SimulatedLoop, Stuck, pause
from tests.system.simulation.model import Violated
from tests.system.simulation.turns import run_turn
from tests.system.simulation.world import Outcome, run_world

ROOT = Path(__file__).parents[3]
DIGESTS = """
from tests.system.simulation.turns import run_turn
print(*(outcome.digest for outcome, _ in run_turn(range(40, 43))))
"""


@pytest.mark.parametrize("first", range(0, 50, 25))
def test_nothing_is_lost(first: int) -> None:
    ended = run_turn(range(first, first + 25))
    assert [(outcome.seed, failure) for outcome, failure in ended if failure] == []
    # A world in which nothing happens would pass whatever the node does.
    assert sum(outcome.blocks for outcome, _ in ended) > 100
    assert sum(outcome.batches for outcome, _ in ended) > 150
    assert sum(outcome.crashes for outcome, _ in ended) > 5


def test_a_seed_is_reproducible(tmp_path: Path) -> None:
    transcripts: list[list[str]] = [[], []]
    for lines in transcripts:
        run_world(41, tmp_path, lines.append)
    assert len(transcripts[0]) > 200
    assert transcripts[0] == transcripts[1]


def test_a_seed_is_reproducible_in_any_process() -> None:
    """A seed gives the same run in processes that iterate sets in different orders."""
    told = [
        subprocess.run(
            [sys.executable, "-c", DIGESTS], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True, timeout=120,
        ).stdout.split()
        for seed in ("1", "2")
    ]  # fmt: skip
    assert told[0] == told[1]
    assert len(set(told[0])) == 3


def test_a_failing_seed_ends_with_1_and_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(seed: int, folder: Path, show: object) -> Outcome:
        return Outcome(seed, Violated("no cookies"), 1, 2, 3, 4, 5, 6)

    monkeypatch.setattr(command, "run_world", fails)
    done = CliRunner().invoke(command.app, ["--seed", "7"])
    assert done.exit_code == 1
    assert "seed 7: 2 blocks, 3 batches on the chain, 4 accepted, 5 crashes, transcript 00000001" in done.output


def test_many_seeds_end_with_0_and_a_summary() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.system.simulation", "--seeds", "2", "--processes", "1"], cwd=ROOT,
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "2 seeds, none failed" in done.stdout


def test_the_clock_moves_to_the_next_timer() -> None:
    loop = SimulatedLoop(1_000)
    fired: list[tuple[str, int]] = []

    def fire(name: str) -> None:
        fired.append((name, loop.now_ms))

    for name, ms in (("later", 86_400_000), ("soon", 7), ("at once", 0)):
        loop.call_later(ms / 1000, fire, name)
    loop.run_until_complete(pause(86_400_001))
    assert fired == [("at once", 0), ("soon", 7), ("later", 86_400_000)]
    loop.close()


def test_a_loop_without_an_end_is_stopped() -> None:
    loop = SimulatedLoop(1_000)

    def again() -> None:
        loop.call_soon(again)

    again()
    with pytest.raises(Stuck, match="no end after 1000 rounds"):
        loop.run_forever()
    loop.close()


def test_a_loop_without_timers_is_stopped() -> None:
    loop = SimulatedLoop(1_000)
    with pytest.raises(Stuck, match="nobody waits"):
        loop.run_forever()
    loop.close()
