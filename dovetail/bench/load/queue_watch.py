"""How full a node's queue of pending batches got while it was under load, as it tells itself."""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator

from dovetail.bench.connection import Connection, Target


class QueueWatch:
    """Asks GET /readyz whenever ``sample`` is called and the last answer has come."""

    def __init__(self, target: Target) -> None:
        self.batches_max = 0
        """The most batches that an answer named."""

        self._request = target.head("GET", "/readyz") + b"\r\n"
        self._free: deque[Connection] = deque()
        self._heard = asyncio.Event()

    @classmethod
    @contextlib.asynccontextmanager
    async def over(cls, url: str) -> AsyncIterator["QueueWatch"]:
        """With a connection of its own, after a first answer. Raises Refused."""
        target = Target.of(url)
        watch = cls(target)
        connection = await Connection.open(target, watch, watch._free)
        try:
            watch.sample()
            await watch._heard.wait()
            yield watch
        finally:
            connection.close()

    def sample(self) -> None:
        """Ask, unless a question is out."""
        if self._free:
            self._free.popleft().request(0, self._request)

    def answered(self, _: int, answer: bytes) -> None:
        """An answer that is no status is none: a node under load may not have the time to tell."""
        self._heard.set()
        with contextlib.suppress(ValueError, LookupError, TypeError):
            self.batches_max = max(
                self.batches_max, int(json.loads(answer.partition(b"\r\n\r\n")[2])["data"]["pending_batches"])
            )

    def fail(self, _: str) -> None:
        """No more is told; what it means for the run, the sender's own connections notice."""
        self._free.clear()
        self._heard.set()
