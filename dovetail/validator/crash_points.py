"""The points at which a test can end a validator at once, as ``kill -9`` or a power loss would.

Contains the list of points and the trigger only. A test arms one point through the environment; otherwise ``reach`` is
an empty function. ``docs/explanation/reliability.md`` lists the points and the tests that reach them.
"""

import os
import signal
import sys
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

VARIABLE: Final = "DOVETAIL_CRASH_AT"
"""``NAME`` or ``NAME:N``: the process ends when it reaches the point for the Nth time, by default the first."""


class CrashPoint(Enum):
    """The points, in the order in which a node reaches them."""

    GENESIS_BEFORE_WRITE = 1
    GENESIS_BEFORE_SYNC = 2
    GENESIS_AFTER_SYNC = 3
    MAP_BEFORE_GROWTH = 4
    MAP_AFTER_GROWTH = 5
    PENDING_BEFORE_WRITE = 6
    PENDING_BEFORE_SYNC = 7
    PENDING_AFTER_SYNC = 8
    ACCEPTED_AFTER_REPLY = 9
    TASKS_GIVEN = 10
    EXECUTED = 11
    SEALED = 12
    COMMIT_BEFORE_WRITE = 13
    COMMIT_BEFORE_SYNC = 14
    COMMIT_AFTER_SYNC = 15
    SETTLED_BEFORE_REPLY = 16
    SETTLED_AFTER_REPLY = 17
    VERDICTS_BEFORE_WRITE = 18
    VERDICTS_BEFORE_SYNC = 19
    VERDICTS_AFTER_SYNC = 20
    PRUNE_BEFORE_SYNC = 21

    @property
    def label(self) -> str:
        """The point's name in the environment variable and in the documentation."""
        return self.name.lower()


class Armed(NamedTuple):
    """The point that ends the process when it is reached for the ``time``-th time."""

    point: CrashPoint
    time: int


def read_armed(text: str) -> Armed | None:
    """Parse the variable's value; None for an empty one. Raises ValueError that names the allowed values."""
    if not text:
        return None
    label, _, time = text.partition(":")
    points = {point.label: point for point in CrashPoint}
    if label not in points:
        raise ValueError(f"{VARIABLE}={text}: there is no point {label}; the points are {', '.join(points)}")
    if time and not (time.isascii() and time.isdigit() and int(time[:9]) > 0):
        raise ValueError(f"{VARIABLE}={text}: {time} is no count from 1")
    return Armed(points[label], int(time or 1))


def make_reach(armed: Armed | None) -> Callable[[CrashPoint], None]:
    """The function to call at every point; an empty one for None."""
    if armed is None:
        return _pass
    left = armed.time

    def count(point: CrashPoint) -> None:
        nonlocal left
        if point is armed.point:
            left -= 1
            if not left:
                _end(armed)

    return count


def _pass(point: CrashPoint) -> None:
    """Does nothing: no point is armed."""


def _end(armed: Armed) -> None:
    # Write without buffers, because the process ends without flushing them.
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"crash point {armed.point.label}\n".encode())
    os.kill(os.getpid(), signal.SIGKILL)


def _from_environment() -> Callable[[CrashPoint], None]:
    try:
        return make_reach(read_armed(os.environ.get(VARIABLE, "")))
    except ValueError as error:
        # Fail loudly: a test whose point is misspelt must not pass.
        raise SystemExit(str(error)) from None


reach: Final = _from_environment()
"""To be called at each point."""
