"""The supervisor of a transaction processor: starts, watches, replaces and ends its worker processes.

One thread waits for the workers' messages, for their end and for its own waker. The workers hold the connection and the
handlers (``processor_sdk.worker.process``); ``processor_sdk.worker.slot`` starts one process.
"""

import logging
import signal
import socket
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from typing import Final, NamedTuple

from processor_sdk.apply.progress import Family, FamilyCounts
from processor_sdk.worker import connection
from processor_sdk.worker import process as worker
from processor_sdk.worker.connection import back_off_s
from processor_sdk.worker.serving import ONE_SIGNAL_S
from processor_sdk.worker.slot import STOPS, Slot
from processor_sdk.worker.watch import BEAT_S, LATE_EXIT, OVERTIME_EXIT, STOP, Beat

UNGUARDED_EXIT: Final = 72
"""Exit code of a worker whose script has no ``__main__`` guard and would start workers itself."""

START_S_MAX: Final = 60.0
"""The time a worker has to import its handlers."""

BEAT_MARGIN_S: Final = 5.0
"""A worker may be silent for an apply's time limit plus this margin."""

ABORT_S_MAX: Final = 2.0
"""The time an aborted worker has to print its traceback; then it is killed."""

SERVED_S: Final = 2.0
"""A worker that was registered for so long is replaced without a growing back-off."""

_EXITS: Final = {OVERTIME_EXIT: "an apply over its time limit", LATE_EXIT: "work that it could not finish in time"}

_log = logging.getLogger(__name__)


class CannotStart(RuntimeError):
    """No worker could start; the message says why."""


class WorkerReport(NamedTuple):
    """One worker. ``pid``: None until it is started again; ``counts``, ``lines_dropped``: of all its processes."""

    number: int
    pid: int | None
    registered: bool
    in_flight: int
    restarts: int
    counts: Mapping[Family, FamilyCounts]
    lines_dropped: int = 0


class Report(NamedTuple):
    """A running processor. ``stopping``: it is stopping in order."""

    workers: tuple[WorkerReport, ...]
    stopping: bool

    @property
    def registered(self) -> int:
        """The number of workers whose families the validator has all accepted."""
        return sum(entry.registered for entry in self.workers)


class Supervisor:
    """Keeps ``workers`` workers running. ``wake``: receives signal numbers and ``connection.STOP``."""

    def __init__(
        self,
        orders: worker.Orders,
        workers: int,
        wake: socket.socket,
        on_report: Callable[[Report], None] | None,
        report_s_max: float,
    ) -> None:
        self._orders = orders
        self._slots = [Slot(number) for number in range(workers)]
        self._wake = wake
        self._on_report = on_report
        self._turn_s_max = min(BEAT_S, report_s_max)
        self._silence_s_max = orders.apply_timeout_ms / 1000 + BEAT_MARGIN_S
        self._ever_began = False
        self._stopping = False
        self._kill_at: float | None = None
        self._ended_by: signal.Signals | None = None
        self._told_at = 0.0

    def run(self) -> signal.Signals | None:
        """Run until it was stopped and every worker has ended. Returns the signal that stopped it, if any.

        Raises CannotStart if the first workers do not start.
        """
        try:
            while True:
                self._run_timers(time.monotonic())
                if self._on_report is not None:
                    self._on_report(Report(tuple(map(_report, self._slots)), self._stopping))
                if self._stopping and not any(slot.process for slot in self._slots):
                    return self._ended_by
                self._wait()
        finally:
            for slot in self._slots:
                self._end_now(slot)

    def _wait(self) -> None:
        pipes = {slot.pipe: slot for slot in self._slots if slot.pipe is not None}
        ends = [slot.end for slot in self._slots if slot.end is not None]
        before = time.monotonic()
        timeout_s = min(self._turn_s_max, max(0.0, self._next_at() - before))
        ready = wait([self._wake, *pipes, *ends], timeout_s)
        overslept_s = time.monotonic() - before - timeout_s
        if overslept_s > BEAT_S:
            # This process was suspended, so the workers' messages are still unread.
            for slot in self._slots:
                slot.silent_at += overslept_s
        if self._wake in ready:
            self._read_wake()
        for pipe, slot in pipes.items():
            if pipe in ready:
                self._read(slot, pipe)
        for slot in self._slots:
            if slot.ended():
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

    def _start(self, slot: Slot, now: float) -> None:
        try:
            slot.start(self._orders)
        except OSError as error:
            if not self._ever_began:
                raise CannotStart(f"no process can be started for a worker: {error}") from None
            slot.failures += 1
            delay_s = back_off_s(slot.failures)
            slot.start_at = now + delay_s
            _log.error("no process can be started for worker %d: %s; again in %.1f s", slot.number, error, delay_s)
            return
        assert slot.process is not None
        slot.start_at = None
        slot.serves_since = None
        slot.silent_at = now + START_S_MAX
        _log.info("worker %d is process %s", slot.number, slot.process.pid)

    def _read(self, slot: Slot, pipe: "Pipe[bytes, worker.WorkerMessage]") -> None:
        try:
            word = pipe.recv()
        except (EOFError, OSError):
            # The worker is ending. ``slot.beat``, its last heartbeat, stays until the slot is released.
            pipe.close()
            slot.pipe = None
            return
        if isinstance(word, int):
            slot.announced_exit = word
            return
        slot.beat = word
        self._ever_began = True
        if word.registered and slot.serves_since is None:
            slot.serves_since = time.monotonic()
        if not slot.aborted:
            slot.silent_at = time.monotonic() + self._silence_s_max

    def _abort(self, slot: Slot, now: float) -> None:
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
        # faulthandler handles SIGABRT even if an extension module blocks the interpreter (see worker.run).
        slot.send_signal(signal.SIGABRT)

    def _ended(self, slot: Slot) -> None:
        assert slot.process is not None
        # Read the messages that the worker sent before its end.
        while slot.pipe is not None and slot.pipe.poll():
            self._read(slot, slot.pipe)
        pid, how = slot.process.pid, _how(slot.process.exitcode, slot.announced_exit)
        exit_code = slot.process.exitcode
        began = slot.beat is not None
        slot.release()
        now = time.monotonic()
        if self._stopping:
            if exit_code:
                _log.warning("worker %d (process %s) ended with %s", slot.number, pid, how)
            return
        if not began and not self._ever_began:
            raise CannotStart(_why_not_started(exit_code, how))
        # A worker that has served is replaced at once: the validator already delays batches that end workers, and other
        # families wait.
        served = slot.serves_since is not None and now - slot.serves_since >= SERVED_S
        slot.failures = 0 if served else slot.failures + 1
        delay_s = back_off_s(slot.failures)
        slot.restarts += 1
        slot.start_at = now + delay_s
        loop = f" ({slot.failures} times in a row within {SERVED_S:g} s of service)" if slot.failures > 1 else ""
        _log.warning("worker %d (process %s) ended with %s%s; replaced in %.1f s", slot.number, pid, how, loop, delay_s)

    def _read_wake(self) -> None:
        now = time.monotonic()
        for asked in self._wake.recv(connection.WAKE_BYTES_MAX):
            if asked in STOPS:
                if self._ended_by is None:
                    self._ended_by, self._told_at = signal.Signals(asked), now
                elif now - self._told_at >= ONE_SIGNAL_S:
                    _log.warning("told again to end: the workers are killed")
                    self._kill_all()
            elif bytes([asked]) != connection.STOP:
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
                continue  # The worker is ending already.

    def _kill_all(self) -> None:
        for slot in self._slots:
            if slot.process is not None:
                slot.process.kill()

    def _end_now(self, slot: Slot) -> None:
        if slot.process is not None:
            slot.process.kill()
            slot.process.join()
            slot.release()


def _report(slot: Slot) -> WorkerReport:
    pid = slot.process.pid if slot.process is not None else None
    beat = slot.beat or Beat(False, 0, {})
    return WorkerReport(
        slot.number, pid, beat.registered, beat.in_flight, slot.restarts, slot.counts(), slot.lines_dropped()
    )


def _how(exit_code: int | None, leaving: int | None) -> str:
    code = exit_code or 0
    if code < 0:
        # Only the first and the last real-time signal have names.
        named = -code in set(signal.Signals)
        return f"signal {signal.Signals(-code).name if named else -code}"
    # A handler may exit with one of these codes too, so the code counts only if the SDK announced it.
    return f"exit code {code} ({_EXITS[code]})" if code in _EXITS and code == leaving else f"exit code {code}"


def _why_not_started(exit_code: int | None, how: str) -> str:
    if exit_code == UNGUARDED_EXIT:
        return (
            "each worker imports the script that runs the processor, and this one would run it there again: put the"
            ' call of run() under if __name__ == "__main__":'
        )
    return f"a worker ended with {how} before it could serve; its own last words are above"
