"""Runs a range of seeds in one process, one after the other, each with a limit of real time."""

import logging
import signal
import tempfile
from pathlib import Path
from types import FrameType
from typing import Final, Never

import structlog

from tests.system.simulation.clock import Stuck
from tests.system.simulation.world import Outcome, run_world

_SEED_S_MAX: Final = 120
"""A seed that takes longer counts as endless."""


def quiet() -> None:
    """Suppress log lines: the transcript shows what happens."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def run_turn(seeds: range) -> list[tuple[Outcome, str]]:
    """Run the seeds. Returns each outcome with its failure as text, which is empty without a failure."""
    quiet()
    signal.signal(signal.SIGALRM, _never_ends)
    ended = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            signal.alarm(_SEED_S_MAX)
            outcome = run_world(seed, Path(folder))
            signal.alarm(0)
            failure = "" if outcome.failure is None else f"{type(outcome.failure).__name__}: {outcome.failure}"
            # An exception may hold values that cannot be pickled.
            ended.append((outcome._replace(failure=None), failure))
    return ended


def _never_ends(number: int, frame: FrameType | None) -> Never:
    raise Stuck(f"no end after {_SEED_S_MAX} s")
