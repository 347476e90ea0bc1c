"""Samples how many batches are pending at a node under load, from GET /readyz."""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator

from dovetail.bench.connection import Connection, Target


class QueueWatch:
    """Asks GET /readyz when ``sample`` is called, unless an answer is still awaited."""

    def __init__(self, target: Target) -> None:
        self.batches_max = 0
        """The largest number of pending batches in any answer."""

        self._request = target.get("/readyz")
        self._free: deque[Connection] = deque()
        self._first_answer = asyncio.Event()

    @classmethod
    @contextlib.asynccontextmanager
    async def over(cls, url: str) -> AsyncIterator["QueueWatch"]:
        """Watch the queue over a separate connection. Yields after the first answer. Raises Refused."""
        target = Target.of(url)
        watch = cls(target)
        with contextlib.closing(await Connection.open(target, watch, watch._free)):
            watch.sample()
            await watch._first_answer.wait()
            yield watch

    def sample(self) -> None:
        if self._free:
            self._free.popleft().request(0, self._request)

    def on_answer(self, _: int, answer: bytes) -> None:
        self._first_answer.set()
        # A node under load may answer with an error instead.
        with contextlib.suppress(ValueError, LookupError, TypeError):
            self.batches_max = max(
                self.batches_max, int(json.loads(answer.partition(b"\r\n\r\n")[2])["data"]["pending_batches"])
            )

    def fail(self, _: str) -> None:
        # The run need not end here: the connections that send the load notice the same failure.
        self._free.clear()
        self._first_answer.set()
