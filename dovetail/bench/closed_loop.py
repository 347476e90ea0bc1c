"""A closed loop over kept-open connections: each answer lets the next request go; a refused request is sent again.

A request is only a number here. ``request_loop`` and ``load.post_loop`` know their content and the meaning of answers.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from typing import Final

from dovetail.bench.connection import Connection, Owner, Target, retry_after_s, status_of
from dovetail.common.errors import Refused

WAIT_S: Final = 300
"""The longest wait for a commit, in seconds."""

_SILENCE_S_MAX: Final = WAIT_S + 30.0
_WATCH_S: Final = 1.0


class ClosedLoop(ABC):
    """One run over ``count`` requests, in order except for refused ones. Create it in the event loop, use it once."""

    def __init__(self, url: str, count: int) -> None:
        self.target = Target.of(url)
        self.started = 0.0
        """``time.perf_counter()`` at the first request."""

        self.latencies_s: list[float] = []
        self.refusals = 0
        """The number of answers 429. Such a request is sent again after ``Retry-After``, before any other request."""

        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._queue = deque(range(count))
        self._connections: list[Connection] = []
        self._last_answer = 0.0
        self._paused = False

    async def run(self) -> None:
        """Run until ``finish`` is called. Raises Refused after ``fail``, or if no answer arrives for too long."""
        try:
            await self.connect()
            self.started = self._last_answer = time.perf_counter()
            self._watch()
            self.pump()
            await self._done
        finally:
            # Done before the connections close, so that closing them does not count as a failure.
            if not self._done.cancel() and not self._done.cancelled():
                self._done.exception()
            for connection in self._connections:
                connection.close()

    @abstractmethod
    async def connect(self) -> None:
        """Open all connections with ``open``."""

    @abstractmethod
    def send(self, number: int) -> bool:
        """Send the request with this number over a free connection. Returns False if the request must wait."""

    @abstractmethod
    def accept(self, number: int, answer: bytes, now: float) -> None:
        """Handle an answer other than 429: call ``finish`` after the last answer, ``fail`` after a wrong one."""

    async def open(self, free: deque[Connection], count: int, owner: Owner | None = None) -> None:
        """Open ``count`` connections that wait in ``free``; their answers go to ``owner`` or this loop."""
        for _ in range(count):
            self._connections.append(await Connection.open(self.target, owner or self, free))

    def pump(self) -> None:
        """Send all requests that may go now."""
        while self._queue and not self._paused and not self._done.done() and self.send(self._queue[0]):
            self._queue.popleft()

    def note_life(self) -> float:
        """Note that the REST API answered. Returns the time."""
        self._last_answer = time.perf_counter()
        return self._last_answer

    def on_answer(self, number: int, answer: bytes) -> None:
        now = self.note_life()
        if status_of(answer) == b"429":
            self.refusals += 1
            self._queue.appendleft(number)
            if not self._paused:
                self._paused = True
                self._loop.call_later(retry_after_s(answer), self._resume)
            return
        self.accept(number, answer, now)
        self.pump()

    def finish(self) -> None:
        """End the run: every request is answered."""
        if not self._done.done():
            self._done.set_result(None)

    def fail(self, reason: str) -> None:
        """End the run with ``reason``; no more requests go."""
        if not self._done.done():
            self._done.set_exception(Refused(reason))

    def _resume(self) -> None:
        self._paused = False
        self.pump()

    def _watch(self) -> None:
        if time.perf_counter() - self._last_answer > _SILENCE_S_MAX:
            self.fail(f"no answer for {_SILENCE_S_MAX:g} s")
        if not self._done.done():
            self._loop.call_later(_WATCH_S, self._watch)
