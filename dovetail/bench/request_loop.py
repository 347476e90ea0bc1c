"""Sends a fixed number of HTTP requests: each connection sends its next request after the answer to the last.

If batches are followed, one more connection asks for their commits. This bounds how far the requests run ahead of the
ledger. The module knows HTTP statuses; the only resource that it knows is GET /batch_status.
"""

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from dovetail.bench.closed_loop import WAIT_S, ClosedLoop
from dovetail.bench.connection import Connection, status_of

_SHOWN_BYTES: Final = 300


class Following(NamedTuple):
    """Bounds the requests that are sent beyond the last one with a committed batch.

    ``batch_ids``: the batch of each request, in order. ``ahead``: the largest number of such requests.
    """

    batch_ids: Sequence[str]
    ahead: int


class Asked(NamedTuple):
    """The outcome: every request was answered with the expected status.

    ``seconds``: from ``started`` (``time.perf_counter()``) to the last answer. ``settled_s``: from ``started`` to the
    last commit; equal to ``seconds`` if no batches are followed. ``refusals``: the number of answers 429, which have no
    latency and no bytes. ``held_s``: how long a free connection sent nothing because the ledger was too far behind.
    """

    started: float
    seconds: float
    settled_s: float
    latencies_s: list[float]
    answer_bytes: int
    refusals: int
    held_s: float


async def ask(
    url: str,
    requests: Sequence[bytes],
    *,
    status: str,
    connections: int,
    on_answered: Callable[[int], None] = lambda _: None,
    following: Following | None = None,
) -> Asked:
    """Send all ``requests`` in order, and repeat each while its answer is 429.

    ``on_answered`` gets the number of newly answered requests.
    Raises Refused, also for any other answer than ``status``.
    """
    loop = _RequestLoop(url, requests, status.encode(), connections, on_answered, following)
    await loop.run()
    return loop.asked()


class _Follower:
    """The owner of the connection that asks for commits."""

    def __init__(self, loop: "_RequestLoop") -> None:
        self.on_answer = loop.on_batch_status
        self.fail = loop.fail


class _RequestLoop(ClosedLoop):
    def __init__(
        self,
        url: str,
        requests: Sequence[bytes],
        status: bytes,
        connections: int,
        on_answered: Callable[[int], None],
        following: Following | None,
    ) -> None:
        super().__init__(url, len(requests))
        self._requests = requests
        self._status = status
        self._connection_count = min(connections, len(requests))
        self._on_answered = on_answered
        self._following = following
        self._free: deque[Connection] = deque()
        self._follower: deque[Connection] = deque()
        self._sent_at: dict[int, float] = {}
        self._answer_bytes = 0
        self._accepted = self._committed = -1
        self._answered_at = self._settled_at = 0.0
        self._held_s = 0.0
        self._held_since: float | None = None

    def asked(self) -> Asked:
        return Asked(
            self.started,
            self._answered_at - self.started,
            self._settled_at - self.started,
            self.latencies_s,
            self._answer_bytes,
            self.refusals,
            self._held_s,
        )

    async def connect(self) -> None:
        await self.open(self._free, self._connection_count)
        if self._following:
            await self.open(self._follower, 1, _Follower(self))

    def pump(self) -> None:
        if self._held_since is not None:
            self._held_s += time.perf_counter() - self._held_since
            self._held_since = None
        super().pump()

    def send(self, number: int) -> bool:
        if not self._free:
            return False
        now = time.perf_counter()
        if self._following and number > self._committed + self._following.ahead:
            self._held_since = now
            return False
        self._sent_at[number] = now
        self._free.popleft().request(number, self._requests[number])
        return True

    def accept(self, number: int, answer: bytes, now: float) -> None:
        status = status_of(answer)
        if status != self._status:
            line = self._requests[number].partition(b" HTTP")[0].decode(errors="replace")
            body = answer.partition(b"\r\n\r\n")[2][:_SHOWN_BYTES]
            self.fail(
                f"{line} was answered {status.decode(errors='replace')}: {body.decode(errors='backslashreplace')}"
            )
            return
        self.latencies_s.append(now - self._sent_at.pop(number))
        self._answer_bytes += len(answer)
        self._accepted = max(self._accepted, number)
        self._on_answered(1)
        if len(self.latencies_s) == len(self._requests):
            self._answered_at = self._settled_at = now
        self._follow()

    def on_batch_status(self, number: int, answer: bytes) -> None:
        """Note that the batch of request ``number`` is committed, or fail."""
        now = self.note_life()
        assert self._following is not None
        batch_id = self._following.batch_ids[number]
        try:
            body = json.loads(answer.partition(b"\r\n\r\n")[2])
            status, why = body["data"][batch_id], body.get("details", {}).get(batch_id, {})
        except (ValueError, LookupError, TypeError, AttributeError):
            self.fail(f"GET /batch_status was answered {status_of(answer).decode(errors='replace')}")
            return
        if status != "COMMITTED":
            self.fail(f"batch {batch_id} is {status} after {WAIT_S} s at most: {why}")
            return
        self._committed, self._settled_at = number, now
        self._follow()
        self.pump()

    def _follow(self) -> None:
        """Ask for the latest accepted batch, unless such a request is open. Finish if nothing is left to do."""
        if self._following and self._accepted > self._committed:
            if self._follower:
                path = f"/batch_status?id={self._following.batch_ids[self._accepted]}&wait={WAIT_S}"
                self._follower.popleft().request(self._accepted, self.target.get(path))
        elif self._answered_at:
            self.finish()
