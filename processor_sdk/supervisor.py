"""The worker processes of a transaction processor: started, watched, replaced, ended.

One thread that waits for what workers say, for their end, and for its own waker. No validator and no handlers here:
they are the workers' (``processor_sdk.worker``).
"""

import logging
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import Final, NamedTuple

from processor_sdk import connection, worker
from processor_sdk.connection import back_off_s
from processor_sdk.progress import Family, FamilyCounts
from processor_sdk.watch import BEAT_S, LATE_EXIT, OVERTIME_EXIT, STOP, Beat

UNGUARDED_EXIT: Final = 72
"""Exit code of a worker whose script would start workers itself."""

START_S_MAX: Final = 60.0
"""So long a worker may take to import its handlers."""

BEAT_MARGIN_S: Final = 5.0
"""So much longer than the time limit of an apply a worker may say nothing."""

ABORT_S_MAX: Final = 2.0
"""So long a worker may take to say where it is when it is aborted; then it is killed."""

STEADY_S: Final = 30.0
"""A worker that has lived so long is replaced at once when it ends."""

_STOPS: Final = frozenset({signal.SIGTERM, signal.SIGINT})
_EXITS: Final = {
    OVERTIME_EXIT: "an apply over its time limit",
    LATE_EXIT: "work that it could not finish in time",
}

_log = logging.getLogger(__name__)
_spawn: Final = multiprocessing.get_context("spawn")


class CannotStart(RuntimeError):
    """No worker came so far that it could serve; the message says why."""


class WorkerReport(NamedTuple):
    """One worker. ``pid`` is None while it is to be started again; ``counts`` are of all its lives."""

    number: int
    pid: int | None
    registered: bool
    in_flight: int
    restarts: int
    counts: Mapping[Family, FamilyCounts]


class Report(NamedTuple):
    """A running processor. ``stopping``: it ends in order."""

    workers: tuple[WorkerReport, ...]
    stopping: bool

    @property
    def registered(self) -> int:
        """How many workers the validator has accepted with all their families."""
        return sum(entry.registered for entry in self.workers)


class _Slot:
    """The place of one worker: the process that fills it now, and what is left of those before."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: SpawnProcess | None = None
        self.pipe: Pipe[bytes, Beat] | None = None
        self.beat: Beat | None = None
        self.start_at: float | None = 0.0
        self.started_at = 0.0
        self.silent_at = 0.0
        """When its silence has lasted too long."""
        self.aborted = False
        self.failures = 0
        self.restarts = 0
        self.kept: dict[Family, FamilyCounts] = {}

    def report(self) -> WorkerReport:
        pid = self.process.pid if self.process is not None else None
        beat = self.beat or Beat(False, 0, {})
        return WorkerReport(self.number, pid, beat.registered, beat.in_flight, self.restarts, self.counts())

    def counts(self) -> Mapping[Family, FamilyCounts]:
        now = self.beat.counts if self.beat is not None else {}
        return {
            family: self.kept.get(family, FamilyCounts()).plus(now.get(family, FamilyCounts()))
            for family in {**self.kept, **now}
        }


class Supervisor:
    """Keeps ``workers`` workers running. ``wake``: readable with a signal's number or a word of ``connection``."""

    def __init__(
        self, orders: worker.Orders, workers: int, wake: socket.socket, on_report: Callable[[Report], None] | None
    ) -> None:
        self._orders = orders
        self._slots = [_Slot(number) for number in range(workers)]
        self._wake = wake
        self._on_report = on_report
        self._silence_s_max = orders.apply_timeout_ms / 1000 + BEAT_MARGIN_S
        self._ever_began = False
        self._stopping = False
        self._kill_at: float | None = None
        self._ended_by: signal.Signals | None = None

    def run(self) -> signal.Signals | None:
        """Returns when it was told to end and every worker has ended; the signal that told it, if one did.

        Raises CannotStart where the first workers do not come up.
        """
        try:
            while True:
                self._run_timers(time.monotonic())
                if self._on_report is not None:
                    self._on_report(Report(tuple(slot.report() for slot in self._slots), self._stopping))
                if self._stopping and not any(slot.process for slot in self._slots):
                    return self._ended_by
                self._wait()
        finally:
            for slot in self._slots:
                self._end_now(slot)

    def _wait(self) -> None:
        pipes = {slot.pipe: slot for slot in self._slots if slot.pipe is not None}
        ends = {slot.process.sentinel: slot for slot in self._slots if slot.process is not None}
        before = time.monotonic()
        timeout_s = min(BEAT_S, max(0.0, self._next_at() - before))
        ready = wait([self._wake, *pipes, *ends], timeout_s)
        overslept_s = time.monotonic() - before - timeout_s
        if overslept_s > BEAT_S:
            # This process was stopped itself: what the workers said meanwhile is still to be read.
            for slot in self._slots:
                slot.silent_at += overslept_s
        if self._wake in ready:
            self._read_wake()
        for pipe, slot in pipes.items():
            if pipe in ready:
                self._read(slot, pipe)
        for sentinel, slot in ends.items():
            if sentinel in ready:
                self._ended(slot)

    def _next_at(self) -> float:
        times = [slot.start_at for slot in self._slots if slot.start_at is not None]
        times += [slot.silent_at for slot in self._slots if slot.process is not None]
        times += [self._kill_at] if self._kill_at is not None else []
        return min(times)

    def _run_timers(self, now: float) -> None:
        if self._kill_at is not None and self._kill_at <= now:
            self._kill_at = None
            _log.error("killing the workers that did not end within %s s", self._orders.stop_s_max)
            self._kill_all()
        for slot in self._slots:
            if slot.start_at is not None and slot.start_at <= now and not self._stopping:
                self._start(slot, now)
            elif slot.process is not None and slot.silent_at <= now:
                self._abort(slot, now)

    def _start(self, slot: _Slot, now: float) -> None:
        slot.start_at = None
        slot.pipe, its_end = _spawn.Pipe()
        slot.process = _spawn.Process(
            target=worker.run, args=(slot.number, self._orders, its_end), name=f"worker-{slot.number}"
        )
        # It begins with them blocked, and takes them when it can end in order; a terminal's Ctrl-C reaches it too.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        try:
            slot.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        its_end.close()
        slot.beat = None
        slot.aborted = False
        slot.started_at = now
        slot.silent_at = now + START_S_MAX
        _log.info("worker %d is process %s", slot.number, slot.process.pid)

    def _read(self, slot: _Slot, pipe: "Pipe[bytes, Beat]") -> None:
        try:
            slot.beat = pipe.recv()
        except (EOFError, OSError):
            # It is ending; what it said before stays until its end is noticed.
            pipe.close()
            slot.pipe = None
            return
        self._ever_began = True
        if not slot.aborted:
            slot.silent_at = time.monotonic() + self._silence_s_max

    def _abort(self, slot: _Slot, now: float) -> None:
        assert slot.process is not None
        if slot.aborted:
            slot.process.kill()
            slot.silent_at = float("inf")
            return
        silence = "its handlers are not imported" if slot.beat is None else "it gives no sign of life"
        after_s = START_S_MAX if slot.beat is None else self._silence_s_max
        _log.error("worker %d (process %s) is ended: %s after %g s; where it is stands on stderr", slot.number,
                   slot.process.pid, silence, after_s)  # fmt: skip
        slot.aborted = True
        slot.silent_at = now + ABORT_S_MAX
        # Heeded also where an extension module never lets the interpreter go on (see worker.run).
        _send_signal(slot.process, signal.SIGABRT)

    def _ended(self, slot: _Slot) -> None:
        assert slot.process is not None
        # What it had still said.
        while slot.pipe is not None and slot.pipe.poll():
            self._read(slot, slot.pipe)
        slot.process.join()
        exit_code, pid = slot.process.exitcode, slot.process.pid
        began, registered = slot.beat is not None, slot.beat is not None and slot.beat.registered
        self._release(slot)
        now = time.monotonic()
        if self._stopping:
            if exit_code:
                _log.warning("worker %d (process %s) ended with %s", slot.number, pid, _how(exit_code))
            return
        if not began and not self._ever_began:
            raise CannotStart(_why_not_started(exit_code))
        # One that was ready for work is replaced at once: the validator itself puts off batches that workers die of,
        # and other families wait. One that ends before it is ready is replaced ever later.
        slot.failures = 0 if registered or now - slot.started_at > STEADY_S else slot.failures + 1
        delay_s = back_off_s(slot.failures)
        slot.restarts += 1
        slot.start_at = now + delay_s
        _log.warning(
            "worker %d (process %s) ended with %s; replaced in %.1f s", slot.number, pid, _how(exit_code), delay_s
        )

    def _release(self, slot: _Slot) -> None:
        slot.kept = dict(slot.counts())
        slot.beat = None
        if slot.pipe is not None:
            slot.pipe.close()
        if slot.process is not None:
            slot.process.close()
        slot.pipe = slot.process = None

    def _read_wake(self) -> None:
        for asked in self._wake.recv(connection.WAKE_BYTES_MAX):
            word = bytes([asked])
            if asked in _STOPS and self._stopping and self._ended_by is not None:
                _log.warning("told again to end: the workers are killed")
                self._kill_all()
            if asked in _STOPS:
                self._ended_by = self._ended_by or signal.Signals(asked)
            elif word != connection.STOP:
                continue
            if not self._stopping:
                self._stop()

    def _stop(self) -> None:
        self._stopping = True
        self._kill_at = time.monotonic() + self._orders.stop_s_max
        for slot in self._slots:
            slot.start_at = None
            if slot.pipe is None:
                continue
            try:
                slot.pipe.send_bytes(STOP)
            except OSError:
                continue  # It is ending already.

    def _kill_all(self) -> None:
        for slot in self._slots:
            if slot.process is not None:
                slot.process.kill()

    def _end_now(self, slot: _Slot) -> None:
        if slot.process is not None:
            slot.process.kill()
            slot.process.join()
            self._release(slot)


def _send_signal(process: SpawnProcess, number: signal.Signals) -> None:
    # The process is this one's child and not waited for yet: its number is nobody else's.
    if process.is_alive() and process.pid is not None:
        os.kill(process.pid, number)


def _how(exit_code: int | None) -> str:
    code = exit_code or 0
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code} ({_EXITS[code]})" if code in _EXITS else f"exit code {code}"


def _why_not_started(exit_code: int | None) -> str:
    if exit_code == UNGUARDED_EXIT:
        return (
            "each worker imports the script that runs the processor, and this one would run it there again: put the"
            ' call of run() under if __name__ == "__main__":'
        )
    return f"a worker ended with {_how(exit_code)} before it could serve; its own last words are above"
