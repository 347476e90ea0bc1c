"""Sends POSTs over a few kept-open connections, as cheaply as Python can: bytes in, one callback an answer.

It shares the machine with the node that it measures, so there is no task, no header dictionary and no JSON on the way.
It knows what a POST /batches may answer, and nothing of what the batches hold.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from dovetail.bench.load import Post
from dovetail.errors import Refused

WAIT_S: Final = 300

_FOLLOWED_AT_ONCE: Final = 32
"""POSTs that wait for their commit at one time, each on a connection of its own: the sample for latencies."""

_SILENCE_S_MAX: Final = WAIT_S + 30.0
_WATCH_S: Final = 1.0
_HEAD_BYTES_MAX: Final = 64 * 1024


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


class _Connection(asyncio.Protocol):
    """One request at a time; tells its owner the answer."""

    def __init__(self, owner: "_Sending", lane: "deque[_Connection]") -> None:
        self.lane = lane
        self.post = -1
        """The POST that it waits for; -1 for none."""
        self._owner = owner
        self._answer = b""
        self._length = -1
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.lane.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._owner.fail(f"the REST API closed a connection{f': {error}' if error else ''}")

    def request(self, post: int, content: bytes) -> None:
        assert self._transport is not None
        self.post, self._answer, self._length = post, b"", -1
        self._transport.write(content)

    def data_received(self, data: bytes) -> None:
        answer = self._answer = self._answer + data
        if self._length < 0:
            head_end = answer.find(b"\r\n\r\n")
            if head_end < 0:
                if len(answer) > _HEAD_BYTES_MAX:
                    self._owner.fail("the answer is no HTTP/1.1")
                return
            length = _header(answer[: head_end + 2], b"content-length")
            if not length.isdigit():
                self._owner.fail("the answer has no Content-Length, which every answer of the REST API has")
                return
            self._length = head_end + 4 + int(length)
        if len(answer) >= self._length:
            post, self.post = self.post, -1
            self.lane.append(self)
            self._owner.answered(post, answer)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _header(head: bytes, name: bytes) -> bytes:
    _, found, rest = head.lower().partition(b"\r\n" + name + b":")
    return rest[: rest.find(b"\r\n")].strip() if found else b""


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
        self._plain: deque[_Connection] = deque()
        self._followers: deque[_Connection] = deque()
        self._connections: list[_Connection] = []
        self._follow_every = max(1, -(-self.ahead // _FOLLOWED_AT_ONCE))
        self._first_sent: dict[int, float] = {}
        self._committed = -1
        self._answered = 0
        self._paused = False
        self._closed = False
        self._heard = time.perf_counter()
        parts = urlsplit(self.url)
        self._host, self._tls = parts.hostname or "", parts.scheme == "https"
        self._port = parts.port or (443 if self._tls else 80)
        host = parts.netloc.rpartition("@")[2]
        self._heads = [
            f"POST {parts.path.rstrip('/')}/batches{query} HTTP/1.1\r\nHost: {host}\r\n"
            "Content-Type: application/octet-stream\r\nContent-Length: ".encode()
            for query in ("", f"?wait={WAIT_S}")
        ]

    async def connect(self) -> None:
        lanes = [self._plain] * self.in_flight + [self._followers] * (_FOLLOWED_AT_ONCE + self.in_flight)
        try:
            for lane in lanes:
                _, connection = await self._loop.create_connection(
                    lambda lane=lane: _Connection(self, lane),
                    self._host,
                    self._port,
                    ssl=self._tls or None,
                )
                self._connections.append(connection)
        except OSError as error:
            raise Refused(f"nothing answers at {self.url}: {error.strerror or error}") from None

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

    def answered(self, post: int, answer: bytes) -> None:
        now = self._heard = time.perf_counter()
        status = answer[9:12]
        if status == b"429":
            self.refusals += 1
            self._queue.appendleft(post)
            wait_s = _header(answer, b"retry-after")
            self._pause(int(wait_s) if wait_s.isdigit() else 1)
            return
        if status == b"201":
            self.latencies_s.append(now - self._first_sent.pop(post))
            if post > self._committed:
                self.on_committed(post - self._committed)
                self._committed = post
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
            lane.popleft().request(post, b"%b%d\r\n\r\n%b" % (self._heads[followed], len(body), body))

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
    status, body = answer[9:12].decode(errors="replace"), answer.partition(b"\r\n\r\n")[2]
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
