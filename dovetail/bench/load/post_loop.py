"""Sends POSTs over a few kept-open connections, and follows a sample of them to their commit.

Knows what POST /batches may answer, and nothing of the batches' content.
"""

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from dovetail.bench.closed_loop import WAIT_S, ClosedLoop
from dovetail.bench.connection import Connection, status_of
from dovetail.bench.signed_load import Post

_FOLLOWED_AT_ONCE: Final = 32
"""POSTs that wait for their commit at one time, each on its own connection: the sample for latencies."""


class Sent(NamedTuple):
    """The outcome: every POST was accepted, and the followed POSTs are committed.

    ``seconds``: from ``started`` (``time.perf_counter()``) to the last commit. The last POSTs are all followed.
    ``latencies_s``: from the first attempt of each followed POST to the answer that all its batches are COMMITTED.
    ``refusals``: answers 429, after which the POST was sent again.
    """

    started: float
    seconds: float
    latencies_s: list[float]
    refusals: int


async def send(
    url: str, posts: Sequence[Post], *, in_flight: int, ahead: int, on_committed: Callable[[int], None]
) -> Sent:
    """Send all ``posts`` in order, and repeat each until it is accepted.

    ``in_flight``: POSTs without an answer at one time. ``ahead``: how many POSTs may be sent beyond the last one
    that is known to be committed. ``on_committed`` gets the number of newly committed POSTs. Raises Refused.
    """
    loop = _PostLoop(url, posts, in_flight, ahead, on_committed)
    await loop.run()
    return Sent(loop.started, time.perf_counter() - loop.started, loop.latencies_s, loop.refusals)


class _PostLoop(ClosedLoop):
    def __init__(
        self, url: str, posts: Sequence[Post], in_flight: int, ahead: int, on_committed: Callable[[int], None]
    ) -> None:
        super().__init__(url, len(posts))
        self._posts = posts
        self._in_flight = in_flight
        self._ahead = ahead
        self._on_committed = on_committed
        self._plain: deque[Connection] = deque()
        self._followers: deque[Connection] = deque()
        self._follow_every = max(1, -(-ahead // _FOLLOWED_AT_ONCE))
        self._first_sent: dict[int, float] = {}
        self._committed = -1
        self._answered = 0
        self._heads = [
            self.target.head("POST", f"/batches{query}", "Content-Type: application/octet-stream")
            for query in ("", f"?wait={WAIT_S}")
        ]

    async def connect(self) -> None:
        await self.open(self._plain, self._in_flight)
        await self.open(self._followers, _FOLLOWED_AT_ONCE + self._in_flight)

    def send(self, number: int) -> bool:
        # The last POSTs are followed, so that the last answer is the last commit.
        followed = number % self._follow_every == 0 or number >= len(self._posts) - self._in_flight
        free = self._followers if followed else self._plain
        if not free or number > self._committed + self._ahead:
            return False
        if followed:
            self._first_sent.setdefault(number, time.perf_counter())
        body = self._posts[number].body
        free.popleft().request(number, b"%bContent-Length: %d\r\n\r\n%b" % (self._heads[followed], len(body), body))
        return True

    def accept(self, number: int, answer: bytes, now: float) -> None:
        status = status_of(answer)
        if status == b"201":
            self.latencies_s.append(now - self._first_sent.pop(number))
            if number > self._committed:
                self._on_committed(number - self._committed)
                self._committed = number
        elif status != b"202":
            self.fail(_why(answer))
            return
        self._answered += 1
        if self._answered == len(self._posts):
            self.finish()


def _why(answer: bytes) -> str:
    """An answer that ends the run, as a reason in one line."""
    status, body = status_of(answer).decode(errors="replace"), answer.partition(b"\r\n\r\n")[2]
    try:
        content = json.loads(body)
        if status == "200":
            others = {batch_id: status for batch_id, status in content["data"].items() if status != "COMMITTED"}
            batch_id = next(iter(others))
            why = content.get("details", {}).get(batch_id, {})
            return (
                f"{len(others)} batches of a POST did not commit within {WAIT_S} s,"
                f" {batch_id} is {others[batch_id]}: {why}"
            )
        return f"POST /batches was answered {status} {content['error']['title']}: {content['error']['message']}"
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration):
        return f"POST /batches was answered {status}, not as Dovetail's REST API does"
