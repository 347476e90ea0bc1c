"""A closed loop over kept-open connections: what may go out next goes when an answer has come, what was refused again.

Requests are numbers here. What each holds, when it may go and what its answer means stand in ``sender`` and ``asker``.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from typing import Final

from dovetail.bench.connection import Connection, Owner, Target, retry_after_s, status_of
from dovetail.common.errors import Refused

WAIT_S: Final = 300
"""How long a commit is waited for."""

_SILENCE_S_MAX: Final = WAIT_S + 30.0
_WATCH_S: Final = 1.0


class ClosedLoop(ABC):
    """One run over ``count`` requests, in order but for those that are refused; of use once, made in the event loop."""

    def __init__(self, url: str, count: int) -> None:
        self.target = Target.of(url)
        self.started = 0.0
        """``time.perf_counter()`` when the first request went."""

        self.latencies_s: list[float] = []
        self.refusals = 0
        """Answers 429; the request went again, and nothing else before it, after the time that the answer named."""

        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._queue = deque(range(count))
        self._connections: list[Connection] = []
        self._heard = 0.0
        self._paused = False

    async def run(self) -> None:
        """Until ``finish``. Raises Refused after ``fail``, and when nothing answers any more."""
        try:
            await self.connect()
            self.started = self._heard = time.perf_counter()
            self._watch()
            self.pump()
            await self._done
        finally:
            # Before the connections: what they tell of their end is no failure.
            if not self._done.cancel() and not self._done.cancelled():
                self._done.exception()
            for connection in self._connections:
                connection.close()

    @abstractmethod
    async def connect(self) -> None:
        """``open`` all connections."""

    @abstractmethod
    def send(self, number: int) -> bool:
        """Send this request over a free connection if it may go now; False: it must wait for an answer."""

    @abstractmethod
    def accept(self, number: int, answer: bytes, now: float) -> None:
        """What an answer other than 429 means; at the last one ``finish``, at a wrong one ``fail``."""

    async def open(self, lane: deque[Connection], count: int, owner: Owner | None = None) -> None:
        """Open ``count`` connections that stand in ``lane`` when free; their answers go to ``owner`` or this loop."""
        for _ in range(count):
            self._connections.append(await Connection.open(self.target, owner or self, lane))

    def pump(self) -> None:
        """Send whatever may be sent now."""
        while self._queue and not self._paused and not self._done.done() and self.send(self._queue[0]):
            self._queue.popleft()

    def heard(self) -> float:
        """The REST API lives; returns the time."""
        self._heard = time.perf_counter()
        return self._heard

    def answered(self, number: int, answer: bytes) -> None:
        """An answer came over one of this loop's own connections."""
        now = self.heard()
        if status_of(answer) == b"429":
            self.refusals += 1
            self._queue.appendleft(number)
            if not self._paused:
                self._paused = True
                self._loop.call_later(retry_after_s(answer), self._go_on)
            return
        self.accept(number, answer, now)
        self.pump()

    def finish(self) -> None:
        """Everything is answered."""
        if not self._done.done():
            self._done.set_result(None)

    def fail(self, reason: str) -> None:
        """Nothing more is sent, and the run ends with ``reason``."""
        if not self._done.done():
            self._done.set_exception(Refused(reason))

    def _go_on(self) -> None:
        self._paused = False
        self.pump()

    def _watch(self) -> None:
        if time.perf_counter() - self._heard > _SILENCE_S_MAX:
            self.fail(f"no answer for {_SILENCE_S_MAX:g} s")
        if not self._done.done():
            self._loop.call_later(_WATCH_S, self._watch)
