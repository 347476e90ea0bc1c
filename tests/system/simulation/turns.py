"""A turn of one of the processes that run seeds: one after the other, each with a limit on real time."""

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
"""A seed that takes longer never ends."""


def quiet() -> None:
    """No log lines: the transcript tells what happens."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def run_turn(seeds: range) -> list[tuple[Outcome, str]]:
    """How each seed ended, and what failed in words, empty where nothing did."""
    quiet()
    signal.signal(signal.SIGALRM, _never_ends)
    ended = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            signal.alarm(_SEED_S_MAX)
            outcome = run_world(seed, Path(folder))
            signal.alarm(0)
            failure = "" if outcome.failure is None else f"{type(outcome.failure).__name__}: {outcome.failure}"
            # An exception may hold what cannot be sent.
            ended.append((outcome._replace(failure=None), failure))
    return ended


def _never_ends(number: int, frame: FrameType | None) -> Never:
    raise Stuck(f"no end after {_SEED_S_MAX} s")
