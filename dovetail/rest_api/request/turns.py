"""Shares the event loop's time between connections whose clients have sent more than one turn parses."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

TURN_S: Final = 0.005
"""The time that all these connections together have in one turn of the event loop."""


class Turns:
    """Calls the waiting functions in order of arrival, for about ``TURN_S`` in one turn of the event loop."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def add(self, go_on: Callable[[], None]) -> None:
        """Call ``go_on`` once, in one of the next turns."""
        self._waiting.append(go_on)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        end = clock() + TURN_S
        try:
            # What is added meanwhile waits for the next turn.
            for _ in range(len(self._waiting)):
                self._waiting.popleft()()
                if clock() >= end:
                    break
        finally:
            self._is_scheduled = False
            if self._waiting:
                self._schedule()
