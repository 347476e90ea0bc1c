"""asyncio's own loop on a simulated clock: when no callback is ready, the clock moves to the next timer.

Time is a whole number of milliseconds. With one loop in one thread, callbacks run in the same order every time.
"""

import asyncio
import selectors
from collections.abc import Mapping
from math import ceil
from typing import Any, Final

_ROUNDING_S: Final = 1e-6
"""The error of a time in floating point; far less than a millisecond."""


class Stuck(Exception):
    """No callback will ever run again, or too many rounds ran."""


class _Selector(selectors.BaseSelector):
    """A selector that watches no files. Instead of waiting, it moves the clock."""

    def __init__(self, rounds_max: int) -> None:
        self.now_ms = 0
        self.rounds = 0
        self._rounds_max = rounds_max
        self._keys: dict[int, selectors.SelectorKey] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck("nobody waits for anything")
        self.rounds += 1
        if self.rounds > self._rounds_max:
            raise Stuck(f"no end after {self._rounds_max} rounds of the loop, at {self.now_ms} ms")
        if timeout > 0:
            self.now_ms += max(1, ceil((timeout - _ROUNDING_S) * 1000))
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data)
        self._keys[key.fd] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class SimulatedLoop(asyncio.SelectorEventLoop):
    """asyncio's loop on a simulated clock that begins at 0. Raises Stuck after ``rounds_max`` rounds."""

    def __init__(self, rounds_max: int) -> None:
        self._simulated = _Selector(rounds_max)
        super().__init__(self._simulated)
        self._clock_resolution = _ROUNDING_S

    @property
    def now_ms(self) -> int:
        return self._simulated.now_ms

    @property
    def rounds(self) -> int:
        """How many rounds the loop has made."""
        return self._simulated.rounds

    def time(self) -> float:
        return self._simulated.now_ms / 1000

    def stand_still(self, ms: int) -> None:
        """Let time pass inside a callback, as with a slow disk."""
        self._simulated.now_ms += ms


async def pause(ms: int) -> None:
    """Let this much simulated time pass."""
    await asyncio.sleep(ms / 1000)
