"""Asks a fixed number of HTTP requests in a closed loop: each connection sends its next one when it has its answer.

With batches to follow, a connection of its own asks for one commit after the other, which bounds how far the requests
run ahead of the ledger. It knows statuses, not resources.
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
    asking = _Asking(url, requests, status.encode(), connections, on_answered, following)
    await asking.run()
    return asking.asked()


class _Follower:
    """The owner of the one connection over which commits are asked for."""

    def __init__(self, asking: "_Asking") -> None:
        self._asking = asking

    def answered(self, number: int, answer: bytes) -> None:
        self._asking.settled(number, answer)

    def fail(self, reason: str) -> None:
        self._asking.fail(reason)


class _Asking(ClosedLoop):
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

    def settled(self, number: int, answer: bytes) -> None:
        """The follower's answer: the batch of request ``number`` is committed, or the run is over."""
        now = self.heard()
        assert self._following is not None
        batch_id = self._following.batch_ids[number]
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
        self.pump()

    def _follow(self) -> None:
        """Ask for the latest accepted batch when no such question is out; finish when there is nothing left to do."""
        if self._following and self._accepted > self._committed:
            if self._follower:
                path = f"/batch_status?id={self._following.batch_ids[self._accepted]}&wait={WAIT_S}"
                self._follower.popleft().request(self._accepted, self.target.head("GET", path) + b"\r\n")
        elif self._answered_at:
            self.finish()
