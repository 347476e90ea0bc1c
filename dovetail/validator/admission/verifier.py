"""Signature checks in worker processes: many batches a hand-over, all-or-nothing answers for each submission.

The parent talks to each worker over a pipe (``dovetail.validator.admission.pipe``); the loop drains it. A worker
holds nothing between two
hand-overs, so one that dies is replaced and its hand-overs are given out again. What makes a batch valid is
``dovetail.ledger.batch.verify_batch``, which the workers (``dovetail.validator.admission.verifier_process``) call,
and this process where one batch alone
is there to be checked.
"""

import asyncio
import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from typing import Final

import structlog

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.errors import RefusedBatch
from dovetail.validator.admission.pipe import Ends, Pipe
from protos import raw_pb2

Verified = list[VerifiedBatch] | RefusedBatch

_HAND_OVER_BYTES: Final = 64 * 1024
"""About 64 signatures: enough that handing over costs little beside checking, small enough to share among workers."""

_TURN_BYTES: Final = 8 * _HAND_OVER_BYTES
"""What one submission may hand out before the next has its turn: most of them whole."""

VERIFIER_DIED: Final = "verifier_died"
"""The one refusal that says nothing of the batch itself."""

_HAND_OVERS_IN_FLIGHT: Final = 16
"""At one worker: as much as it checks while the loop builds and writes a block (docs/explanation/performance.md)."""

_PIPE_BYTES_MAX: Final = 1024 * 1024
"""Of a pipe to or from a worker: what one side goes through while the other does not look."""

_PIPES_BYTES_MAX: Final = 16 * _PIPE_BYTES_MAX
"""Of all of them. Linux lets a user have 64 MiB; beyond that every new pipe of any process of his holds 8 KiB."""

_DEATHS_MAX: Final = 3
"""A hand-over that this many workers died with is refused."""

log = structlog.get_logger("validator.verifier")


class _Submission:
    """Batches that are accepted together or not at all."""

    __slots__ = ("left", "on_verified", "refusal", "results")

    def __init__(self, count: int, on_verified: Callable[[Verified], None]) -> None:
        self.results: list[VerifiedBatch | None] = [None] * count
        self.left = count
        self.refusal: RefusedBatch | None = None
        self.on_verified = on_verified

    def take(self, position: int, result: VerifiedBatch | RefusedBatch) -> None:
        if isinstance(result, RefusedBatch):
            self.refusal = self.refusal or result
        else:
            self.results[position] = result
        self.left -= 1
        if not self.left:
            self.on_verified(self.refusal or [batch for batch in self.results if batch is not None])


class _Waiting:
    """What is left to hand out of one submission."""

    __slots__ = ("next", "raw_batches", "submission")

    def __init__(self, submission: _Submission, raw_batches: list[bytes]) -> None:
        self.submission = submission
        self.raw_batches = raw_batches
        self.next = 0


class _HandOver:
    """What one message to a worker asks: batches of one or several submissions."""

    __slots__ = ("batches", "data_bytes", "deaths")

    def __init__(self) -> None:
        self.batches: list[tuple[_Submission, int, bytes]] = []
        self.data_bytes = 0
        self.deaths = 0

    def take(self, waiting: _Waiting, data_bytes_max: int) -> int:
        """Take batches of one submission until it holds its fill, or has so many bytes of them; how many it has."""
        taken = 0
        for position in range(waiting.next, len(waiting.raw_batches)):
            raw = waiting.raw_batches[position]
            self.batches.append((waiting.submission, position, raw))
            self.data_bytes += len(raw)
            taken += len(raw)
            waiting.next = position + 1
            if self.data_bytes > _HAND_OVER_BYTES or taken >= data_bytes_max:
                break
        return taken

    def apart(self) -> list["_HandOver"]:
        """The same batches, one a hand-over, after a worker died with them."""
        parts = []
        for entry in self.batches:
            part = _HandOver()
            part.batches = [entry]
            part.deaths = self.deaths + 1
            parts.append(part)
        return parts


class _Worker:
    """One process: requests come by its standard input, and it ends with that."""

    def __init__(self, pipe_bytes: int, on_readable: Callable[[], None]) -> None:
        """Raises OSError where there are no descriptors or processes left, and leaves nothing behind."""
        ends = Ends.new(pipe_bytes)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dovetail.validator.admission.verifier_process", str(ends.answers_out)],
                stdin=ends.requests_in,
                pass_fds=(ends.answers_out,),
                # Ctrl-C is for the parent. No session of its own: the system shares out cores by session, then by
                # niceness.
                process_group=0,
            )
        except OSError:
            os.close(ends.requests_out)
            os.close(ends.answers_in)
            raise
        finally:
            os.close(ends.requests_in)
            os.close(ends.answers_out)
        self.pipe = Pipe(asyncio.get_running_loop(), ends.requests_out, ends.answers_in, on_readable)
        self.in_flight: deque[_HandOver] = deque()

    def close(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.wait()


class VerifierPool:
    """``processes`` workers; 0: one for each processor core. ``on_results`` is called after results were handed on."""

    def __init__(self, processes: int, on_results: Callable[[], None]) -> None:
        self._on_results = on_results
        self._again: deque[_HandOver] = deque()
        """What a worker held that died: before all others."""
        self._waiting: deque[_Waiting] = deque()
        """Whose turn it is."""
        self._turn_bytes = _TURN_BYTES
        """What is left of the turn of the first of them."""
        count = processes or os.cpu_count() or 1
        self._pipe_bytes = min(_PIPE_BYTES_MAX, _PIPES_BYTES_MAX // (2 * count))
        self._workers = [self._start_worker() for _ in range(count)]

    def verify(self, raw_batches: list[bytes], on_verified: Callable[[Verified], None]) -> None:
        """Check serialized batches; ``on_verified`` gets all of them verified, or the first refusal that was found."""
        self._waiting.append(_Waiting(_Submission(len(raw_batches), on_verified), raw_batches))
        self._hand_out()

    def watch(self) -> None:
        """Replace workers that died."""
        for index, worker in enumerate(self._workers):
            if worker.process.poll() is not None:
                try:
                    self._workers[index] = self._start_worker()
                except OSError as error:
                    log.error("a verifier died and none can be started, trying again", reason=str(error))
                    continue
                log.warning("verifier died, started another", exit_code=worker.process.returncode)
                # What it answered before is no hand-over that it died with.
                self._take(worker)
                worker.close()
                held = list(worker.in_flight)
                if held:
                    # It worked on the first: give out its batches one by one, so that they do not fall together.
                    held[:1] = held[0].apart()
                self._again.extendleft(reversed(held))
        while self._again and self._again[0].deaths >= _DEATHS_MAX:
            refusal = RefusedBatch(VERIFIER_DIED, f"checking it ended {_DEATHS_MAX} verifier processes")
            for submission, position, _ in self._again.popleft().batches:
                submission.take(position, refusal)
        self._hand_out()

    def close(self) -> None:
        for worker in self._workers:
            worker.close()

    def _start_worker(self) -> _Worker:
        return _Worker(self._pipe_bytes, self._drain)

    def _hand_out(self) -> None:
        while self._again or self._waiting:
            worker = min(self._workers, key=lambda candidate: len(candidate.in_flight))
            if len(worker.in_flight) >= _HAND_OVERS_IN_FLIGHT:
                return
            hand_over = self._again.popleft() if self._again else self._next_hand_over()
            worker.in_flight.append(hand_over)
            request = raw_pb2.RawBatchList(batches=[raw for _, _, raw in hand_over.batches])
            worker.pipe.send(request.SerializeToString())

    def _next_hand_over(self) -> _HandOver:
        """Submissions take turns: a large one keeps none that came behind it waiting for more than a turn of each."""
        hand_over = _HandOver()
        while self._waiting and hand_over.data_bytes <= _HAND_OVER_BYTES:
            first = self._waiting[0]
            self._turn_bytes -= hand_over.take(first, self._turn_bytes)
            if first.next == len(first.raw_batches):
                self._waiting.popleft()
                self._turn_bytes = _TURN_BYTES
            elif self._turn_bytes <= 0:
                self._waiting.rotate(-1)
                self._turn_bytes = _TURN_BYTES
        return hand_over

    def _drain(self) -> None:
        for worker in self._workers:
            self._take(worker)
        self._hand_out()
        self._on_results()

    def _take(self, worker: _Worker) -> None:
        """Take the answers of a worker that wait."""
        for content in worker.pipe.received():
            results: list[VerifiedBatch | RefusedBatch] = pickle.loads(content)
            hand_over = worker.in_flight.popleft()
            for (submission, position, _), result in zip(hand_over.batches, results, strict=True):
                submission.take(position, result)


async def verify_all(pool: VerifierPool, raw_batches: list[bytes]) -> Verified:
    """``VerifierPool.verify`` for those who can wait."""
    future: asyncio.Future[Verified] = asyncio.get_running_loop().create_future()
    pool.verify(raw_batches, future.set_result)
    return await future
