"""Verifies batches in worker processes. Each submission gets one answer for all its batches.

The event loop sends jobs of several batches to the workers over pipes (``pipe``). Workers are stateless, so a dead one
is replaced and its jobs are repeated. ``dovetail.ledger.batch.verify_batch`` defines a valid batch; the workers call it
(``verifier_process``).
"""

import asyncio
import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.errors import RefusedBatch
from dovetail.validator.admission.pipe import Ends, Pipe
from protos import raw_pb2

Verified = list[VerifiedBatch] | RefusedBatch

_JOB_BYTES: Final = 64 * 1024
"""About 64 signatures: enough that the transfer costs little, and few enough to share work among workers."""

_TURN_BYTES: Final = 8 * _JOB_BYTES
"""How much of one submission is sent before the next one has its turn; most submissions are smaller."""

VERIFIER_DIED: Final = "verifier_died"
"""The only refusal that is no statement about the batch itself."""

_JOBS_IN_FLIGHT: Final = 16
"""Jobs per worker: as many as a worker verifies while the loop builds and writes a block."""

_PIPE_BYTES_MAX: Final = 1024 * 1024
"""The capacity of a pipe: as much as one side processes while the other is busy."""

_PIPES_BYTES_MAX: Final = 16 * _PIPE_BYTES_MAX
"""The capacity of all pipes together. Linux allows a user 64 MiB. Beyond this sum, each new pipe of the user holds 8
KiB."""

_DEATHS_MAX: Final = 3
"""A job is refused after this many workers died with it."""

log = structlog.get_logger("validator.verifier")


class _Submission:
    """Batches that are accepted or refused together."""

    __slots__ = ("left", "on_verified", "refusal", "results")

    def __init__(self, count: int, on_verified: Callable[[Verified], None]) -> None:
        self.results: list[VerifiedBatch | None] = [None] * count
        self.left = count
        self.refusal: RefusedBatch | None = None
        self.on_verified = on_verified

    def add_result(self, position: int, result: VerifiedBatch | RefusedBatch) -> None:
        if isinstance(result, RefusedBatch):
            self.refusal = self.refusal or result
        else:
            self.results[position] = result
        self.left -= 1
        if not self.left:
            self.on_verified(self.refusal or [batch for batch in self.results if batch is not None])


@dataclass(slots=True)
class _Waiting:
    """A submission whose batches from index ``next`` on are not sent to a worker yet."""

    submission: _Submission
    raw_batches: list[bytes]
    next: int = 0


@dataclass(slots=True)
class _Job:
    """The batches of one message to a worker, from one or several submissions."""

    batches: list[tuple[_Submission, int, bytes]] = field(default_factory=list)
    deaths: int = 0
    data_bytes: int = 0

    def add_from(self, waiting: _Waiting, data_bytes_max: int) -> int:
        """Add batches of a submission until the job is full or ``data_bytes_max`` is reached. Returns the added
        bytes."""
        added = 0
        for position in range(waiting.next, len(waiting.raw_batches)):
            raw = waiting.raw_batches[position]
            self.batches.append((waiting.submission, position, raw))
            self.data_bytes += len(raw)
            added += len(raw)
            waiting.next = position + 1
            if self.data_bytes > _JOB_BYTES or added >= data_bytes_max:
                break
        return added

    def split(self) -> list["_Job"]:
        """One job for each batch, after a worker died with this job."""
        return [_Job([entry], self.deaths + 1) for entry in self.batches]


class _Worker:
    """One process, which reads requests from its standard input, and ends when its standard input is closed."""

    def __init__(self, pipe_bytes: int, on_readable: Callable[[], None]) -> None:
        """Raises OSError if descriptors or processes run out, and then leaves nothing behind."""
        ends = Ends.new(pipe_bytes)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dovetail.validator.admission.verifier_process", str(ends.answers_out)],
                stdin=ends.requests_in,
                pass_fds=(ends.answers_out,),
                # The worker has its own process group, because Ctrl-C is for the parent. It has no session of its own,
                # because Linux shares cores among sessions before it considers niceness.
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
        self.in_flight: deque[_Job] = deque()

    def close(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.wait()


class VerifierPool:
    """``processes`` workers; 0: one for each processor core. Calls ``on_results`` after each delivery of results."""

    def __init__(self, processes: int, on_results: Callable[[], None]) -> None:
        self._on_results = on_results
        self._again: deque[_Job] = deque()
        """Jobs of workers that died; they are sent before all others."""
        self._waiting: deque[_Waiting] = deque()
        """Submissions in the order of their turns."""
        self._turn_bytes = _TURN_BYTES
        """The bytes left in the turn of the first submission."""
        count = processes or os.cpu_count() or 1
        self._pipe_bytes = min(_PIPE_BYTES_MAX, _PIPES_BYTES_MAX // (2 * count))
        self._workers = [self._start_worker() for _ in range(count)]

    def verify(self, raw_batches: list[bytes], on_verified: Callable[[Verified], None]) -> None:
        """Verify serialized batches. ``on_verified`` gets all verified batches, or the first refusal."""
        self._waiting.append(_Waiting(_Submission(len(raw_batches), on_verified), raw_batches))
        self._send_jobs()

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
                # Read the dead worker's last answers first. Jobs with an answer did not kill the worker.
                self._read_answers(worker)
                worker.close()
                held = list(worker.in_flight)
                if held:
                    # The worker died with the first unanswered job. Send that job's batches one by one, so that a fatal
                    # batch fails alone.
                    held[:1] = held[0].split()
                self._again.extendleft(reversed(held))
        while self._again and self._again[0].deaths >= _DEATHS_MAX:
            refusal = RefusedBatch(VERIFIER_DIED, f"checking it ended {_DEATHS_MAX} verifier processes")
            for submission, position, _ in self._again.popleft().batches:
                submission.add_result(position, refusal)
        self._send_jobs()

    def close(self) -> None:
        for worker in self._workers:
            worker.close()

    def _start_worker(self) -> _Worker:
        return _Worker(self._pipe_bytes, self._on_answers)

    def _send_jobs(self) -> None:
        while self._again or self._waiting:
            worker = min(self._workers, key=lambda candidate: len(candidate.in_flight))
            if len(worker.in_flight) >= _JOBS_IN_FLIGHT:
                return
            job = self._again.popleft() if self._again else self._next_job()
            worker.in_flight.append(job)
            request = raw_pb2.RawBatchList(batches=[raw for _, _, raw in job.batches])
            worker.pipe.send(request.SerializeToString())

    def _next_job(self) -> _Job:
        """The next batches. Submissions take turns, so that a large submission does not delay later ones."""
        job = _Job()
        while self._waiting and job.data_bytes <= _JOB_BYTES:
            first = self._waiting[0]
            self._turn_bytes -= job.add_from(first, self._turn_bytes)
            if first.next == len(first.raw_batches):
                self._waiting.popleft()
                self._turn_bytes = _TURN_BYTES
            elif self._turn_bytes <= 0:
                self._waiting.rotate(-1)
                self._turn_bytes = _TURN_BYTES
        return job

    def _on_answers(self) -> None:
        for worker in self._workers:
            self._read_answers(worker)
        self._send_jobs()
        self._on_results()

    def _read_answers(self, worker: _Worker) -> None:
        for content in worker.pipe.received():
            results: list[VerifiedBatch | RefusedBatch] = pickle.loads(content)
            job = worker.in_flight.popleft()
            for (submission, position, _), result in zip(job.batches, results, strict=True):
                submission.add_result(position, result)


async def verify_all(pool: VerifierPool, raw_batches: list[bytes]) -> Verified:
    """``VerifierPool.verify`` as a coroutine."""
    future: asyncio.Future[Verified] = asyncio.get_running_loop().create_future()
    pool.verify(raw_batches, future.set_result)
    return await future
