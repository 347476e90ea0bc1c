"""Asks a fixed number of HTTP requests in a closed loop: each connection sends its next one when it has its answer.

With batches to follow, a connection of its own asks for one commit after the other, which bounds how far the requests
run ahead of the ledger. It knows statuses, not resources.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dovetail.bench.connection import Connection, Target, retry_after_s, status_of
from dovetail.errors import Refused

WAIT_S: Final = 300

_SILENCE_S_MAX: Final = WAIT_S + 30.0
_WATCH_S: Final = 1.0
_SHOWN_BYTES: Final = 300


class Following(NamedTuple):
    """What to know of batches to follow them: the batch id to ask for after each request, and how far to run ahead."""

    batch_ids: Sequence[str]
    ahead: int
    """How many requests may be sent beyond the last whose batch is known to be committed."""


class Asked(NamedTuple):
    """What became of the requests: every one was answered with the status that was expected."""

    started: float
    """``time.perf_counter()`` at the first request."""

    seconds: float
    """From there to the last answer."""

    settled_s: float
    """From there to the last commit; the same where nothing is followed."""

    latencies_s: list[float]
    """From sending each request to its whole answer, refused ones left out."""

    answer_bytes: int
    """All answers together, their heads included."""

    refusals: int
    """Requests answered 429, and sent again after the time that the answer named."""

    held_s: float
    """How long nothing was sent by some connection because the ledger was too far behind."""


async def ask(
    url: str,
    requests: Sequence[bytes],
    *,
    status: str,
    connections: int,
    on_answered: Callable[[int], None],
    following: Following | None = None,
) -> Asked:
    """Send all ``requests``, in order, each until it is answered with ``status``. ``on_answered``: so many more are.

    Raises Refused, for any other answer but 429 too.
    """
    asking = _Asking(url, requests, status.encode(), on_answered, following)
    try:
        await asking.connect(min(connections, len(requests)))
        asking.start()
        await asking.done
    finally:
        asking.close()
    return asking.asked()


class _Follower:
    """The owner of the one connection over which commits are asked for."""

    def __init__(self, asking: "_Asking") -> None:
        self._asking = asking

    def answered(self, number: int, answer: bytes) -> None:
        self._asking.settled(number, answer)

    def fail(self, reason: str) -> None:
        self._asking.fail(reason)


@dataclass
class _Asking:
    url: str
    requests: Sequence[bytes]
    status: bytes
    on_answered: Callable[[int], None]
    following: Following | None
    started: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    answer_bytes: int = 0
    refusals: int = 0
    held_s: float = 0.0

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self._target = Target.of(self.url)
        self._queue = deque(range(len(self.requests)))
        self._free: deque[Connection] = deque()
        self._follower: deque[Connection] = deque()
        self._connections: list[Connection] = []
        self._sent_at: dict[int, float] = {}
        self._accepted = self._committed = -1
        self._answered_at = self._settled_at = self._heard = 0.0
        self._held_since: float | None = None
        self._paused = self._closed = False

    async def connect(self, connections: int) -> None:
        for _ in range(connections):
            self._connections.append(await Connection.open(self._target, self, self._free))
        if self.following:
            self._connections.append(await Connection.open(self._target, _Follower(self), self._follower))

    def start(self) -> None:
        self.started = self._heard = time.perf_counter()
        self._watch()
        self._pump()

    def close(self) -> None:
        self._closed = True
        for connection in self._connections:
            connection.close()
        if not self.done.cancel() and not self.done.cancelled():
            self.done.exception()

    def fail(self, reason: str) -> None:
        if not self._closed and not self.done.done():
            self.done.set_exception(Refused(reason))

    def asked(self) -> Asked:
        return Asked(
            self.started,
            self._answered_at - self.started,
            self._settled_at - self.started,
            self.latencies_s,
            self.answer_bytes,
            self.refusals,
            self.held_s,
        )

    def answered(self, number: int, answer: bytes) -> None:
        now = self._heard = time.perf_counter()
        sent_at = self._sent_at.pop(number)
        status = status_of(answer)
        if status == b"429":
            self.refusals += 1
            self._queue.appendleft(number)
            if not self._paused:
                self._paused = True
                self._loop.call_later(retry_after_s(answer), self._go_on)
            return
        if status != self.status:
            line = self.requests[number].partition(b" HTTP")[0].decode(errors="replace")
            body = answer.partition(b"\r\n\r\n")[2][:_SHOWN_BYTES]
            self.fail(
                f"{line} was answered {status.decode(errors='replace')}: {body.decode(errors='backslashreplace')}"
            )
            return
        self.latencies_s.append(now - sent_at)
        self.answer_bytes += len(answer)
        self._accepted = max(self._accepted, number)
        self.on_answered(1)
        if len(self.latencies_s) == len(self.requests):
            self._answered_at = self._settled_at = now
        self._follow()
        self._pump()

    def settled(self, number: int, answer: bytes) -> None:
        """The follower's answer: the batch of request ``number`` is committed, or the run is over."""
        now = self._heard = time.perf_counter()
        assert self.following is not None
        batch_id = self.following.batch_ids[number]
        try:
            body = json.loads(answer.partition(b"\r\n\r\n")[2])
            word, why = body["data"][batch_id], body.get("details", {}).get(batch_id, {})
        except (ValueError, LookupError, TypeError, AttributeError):
            self.fail(f"GET /batch_status was answered {status_of(answer).decode(errors='replace')}")
            return
        if word != "COMMITTED":
            self.fail(f"batch {batch_id} is {word} after {WAIT_S} s at most: {why}")
            return
        self._committed, self._settled_at = number, now
        self._follow()
        self._pump()

    def _follow(self) -> None:
        """Ask for the latest accepted batch when no such question is out; finish when there is nothing left to do."""
        if self.following and self._accepted > self._committed:
            if self._follower:
                path = f"/batch_status?id={self.following.batch_ids[self._accepted]}&wait={WAIT_S}"
                self._follower.popleft().request(self._accepted, self._target.head("GET", path) + b"\r\n")
        elif self._answered_at and not self.done.done():
            self.done.set_result(None)

    def _pump(self) -> None:
        """Send whatever may be sent now."""
        now = time.perf_counter()
        if self._held_since is not None:
            self.held_s += now - self._held_since
            self._held_since = None
        while self._queue and self._free and not self._paused and not self._closed:
            number = self._queue[0]
            if self.following and number > self._committed + self.following.ahead:
                self._held_since = now
                return
            self._queue.popleft()
            self._sent_at[number] = time.perf_counter()
            # The connection that rested longest, so that none rests until the server closes it.
            self._free.popleft().request(number, self.requests[number])

    def _go_on(self) -> None:
        self._paused = False
        self._pump()

    def _watch(self) -> None:
        if time.perf_counter() - self._heard > _SILENCE_S_MAX:
            self.fail(f"no answer for {_SILENCE_S_MAX:g} s")
        if not self._closed:
            self._loop.call_later(_WATCH_S, self._watch)
