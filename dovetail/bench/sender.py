"""Sends POSTs over a few kept-open connections, and follows a sample of them to their commit.

It knows what a POST /batches may answer, and nothing of what the batches hold.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dovetail.bench.connection import Connection, Target, retry_after_s, status_of
from dovetail.bench.load import Post
from dovetail.errors import Refused

WAIT_S: Final = 300

_FOLLOWED_AT_ONCE: Final = 32
"""POSTs that wait for their commit at one time, each on a connection of its own: the sample for latencies."""

_SILENCE_S_MAX: Final = WAIT_S + 30.0
_WATCH_S: Final = 1.0


class Sent(NamedTuple):
    """What became of a load: every POST accepted, the followed ones committed."""

    started: float
    """``time.perf_counter()`` at the first POST."""

    seconds: float
    """From there to the last answer; the last POSTs are all followed."""

    latencies_s: list[float]
    """For each followed POST: from its first attempt to the answer that all of its batches are COMMITTED."""

    refusals: int
    """How many POSTs were answered 429 and sent again after the time that the answer named."""


async def send(
    url: str, posts: Sequence[Post], *, in_flight: int, ahead: int, on_committed: Callable[[int], None]
) -> Sent:
    """Send all of ``posts``, in order, each until it is accepted.

    ``in_flight``: POSTs without an answer at one time. ``ahead``: how many POSTs may be sent beyond the last that is
    known to be committed. ``on_committed``: how many more POSTs are. Raises Refused.
    """
    sending = _Sending(url, posts, in_flight, ahead, on_committed)
    try:
        await sending.connect()
        sending.start()
        await sending.done
    finally:
        sending.close()
    return Sent(sending.started, time.perf_counter() - sending.started, sending.latencies_s, sending.refusals)


@dataclass
class _Sending:
    url: str
    posts: Sequence[Post]
    in_flight: int
    ahead: int
    on_committed: Callable[[int], None]
    started: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    refusals: int = 0

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self._queue = deque(range(len(self.posts)))
        self._plain: deque[Connection] = deque()
        self._followers: deque[Connection] = deque()
        self._connections: list[Connection] = []
        self._follow_every = max(1, -(-self.ahead // _FOLLOWED_AT_ONCE))
        self._first_sent: dict[int, float] = {}
        self._committed = -1
        self._answered = 0
        self._paused = False
        self._closed = False
        self._heard = time.perf_counter()
        self._target = Target.of(self.url)
        self._heads = [
            self._target.head("POST", f"/batches{query}", "Content-Type: application/octet-stream")
            for query in ("", f"?wait={WAIT_S}")
        ]

    async def connect(self) -> None:
        for lane in [self._plain] * self.in_flight + [self._followers] * (_FOLLOWED_AT_ONCE + self.in_flight):
            self._connections.append(await Connection.open(self._target, self, lane))

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

    def answered(self, number: int, answer: bytes) -> None:
        now = self._heard = time.perf_counter()
        status = status_of(answer)
        if status == b"429":
            self.refusals += 1
            self._queue.appendleft(number)
            self._pause(retry_after_s(answer))
            return
        if status == b"201":
            self.latencies_s.append(now - self._first_sent.pop(number))
            if number > self._committed:
                self.on_committed(number - self._committed)
                self._committed = number
        elif status != b"202":
            self.fail(_why(answer))
            return
        self._answered += 1
        if self._answered == len(self.posts):
            if not self.done.done():
                self.done.set_result(None)
        else:
            self._pump()

    def _pump(self) -> None:
        """Send whatever may be sent now."""
        while self._queue and not self._paused and not self._closed:
            post = self._queue[0]
            # The last ones are followed, so that the last answer is the last commit.
            followed = post % self._follow_every == 0 or post >= len(self.posts) - self.in_flight
            lane = self._followers if followed else self._plain
            if not lane or post > self._committed + self.ahead:
                return
            self._queue.popleft()
            if followed:
                self._first_sent.setdefault(post, time.perf_counter())
            body = self.posts[post].body
            # The connection that rested longest, so that none rests until the server closes it.
            lane.popleft().request(post, b"%bContent-Length: %d\r\n\r\n%b" % (self._heads[followed], len(body), body))

    def _pause(self, seconds: int) -> None:
        if not self._paused:
            self._paused = True
            self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._paused = False
        self._pump()

    def _watch(self) -> None:
        if time.perf_counter() - self._heard > _SILENCE_S_MAX:
            self.fail(f"no answer for {_SILENCE_S_MAX:g} s")
        if not self._closed:
            self._loop.call_later(_WATCH_S, self._watch)


def _why(answer: bytes) -> str:
    """An answer that ends the run, in one line."""
    status, body = status_of(answer).decode(errors="replace"), answer.partition(b"\r\n\r\n")[2]
    try:
        content = json.loads(body)
        if status == "200":
            word = {batch_id: word for batch_id, word in content["data"].items() if word != "COMMITTED"}
            batch_id = next(iter(word))
            why = content.get("details", {}).get(batch_id, {})
            return (
                f"{len(word)} batches of a POST did not commit within {WAIT_S} s, {batch_id} is {word[batch_id]}: {why}"
            )
        return f"POST /batches was answered {status} {content['error']['title']}: {content['error']['message']}"
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration):
        return f"POST /batches was answered {status}, not as Dovetail's REST API does"
