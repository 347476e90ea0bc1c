"""The slot of one worker process: starts it, observes its end, and keeps the counts of its predecessors.

``processor_sdk.worker.supervisor`` decides when a process is started or ended.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection as Pipe
from multiprocessing.context import SpawnProcess
from typing import Final

from processor_sdk.apply.progress import Family, FamilyCounts
from processor_sdk.worker import process as worker
from processor_sdk.worker.watch import Beat

STOPS: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""The signals on which a supervisor stops in order."""

_spawn: Final = multiprocessing.get_context("spawn")


class Slot:
    """One worker's slot. All times are seconds of ``time.monotonic``."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: SpawnProcess | None = None
        self.pipe: Pipe[bytes, worker.WorkerMessage] | None = None
        self.end: int | None = None
        """A descriptor that is readable when the process has ended; None if the system has none."""
        self.beat: Beat | None = None
        self.announced_exit: int | None = None
        """The exit code with which the worker announced that the SDK ends it."""
        self.start_at: float | None = 0.0
        self.serves_since: float | None = None
        """When the validator had accepted all families of the process; None before."""
        self.silent_at = 0.0
        """When the worker counts as silent for too long."""
        self.aborted = False
        self.failures = 0
        self.restarts = 0
        self._kept: dict[Family, FamilyCounts] = {}
        self._lines_dropped = 0

    def start(self, orders: worker.Orders) -> None:
        """Start a fresh process. Raises OSError if the system cannot start one; the slot then stays empty."""
        # Start the resource tracker here, because a start with the first process would unblock the signals.
        resource_tracker.ensure_running()
        pipe, its_end = _spawn.Pipe()
        process = _spawn.Process(target=worker.run, args=(self.number, orders, its_end), name=f"worker-{self.number}")
        # The signals are blocked at first: a terminal's Ctrl-C would reach the process before it can stop in order.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        with its_end, contextlib.ExitStack() as undo:
            undo.enter_context(pipe)
            try:
                process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            undo.pop_all()
        self.process, self.pipe, self.end = process, pipe, _end_of(process)
        self.beat = self.announced_exit = None
        self.aborted = False

    def ended(self) -> bool:
        """Whether the process has ended. The pipes do not show it, because the process's own children hold them too."""
        return self.process is not None and self.process.exitcode is not None

    def release(self) -> None:
        """Empty the slot after the process has ended; keep its counts."""
        self._kept, self._lines_dropped = dict(self.counts()), self.lines_dropped()
        self.beat = None
        if self.pipe is not None:
            self.pipe.close()
        if self.end is not None:
            os.close(self.end)
        if self.process is not None:
            self.process.close()
        self.pipe = self.end = self.process = None

    def counts(self) -> Mapping[Family, FamilyCounts]:
        """The counts of all processes that this slot has held."""
        now = self.beat.counts if self.beat is not None else {}
        return {
            family: self._kept.get(family, FamilyCounts()).plus(now.get(family, FamilyCounts()))
            for family in {**self._kept, **now}
        }

    def lines_dropped(self) -> int:
        """How many log lines all processes that this slot has held have dropped."""
        return self._lines_dropped + (self.beat.lines_dropped if self.beat is not None else 0)

    def send_signal(self, number: signal.Signals) -> None:
        """Signal the process, if it is alive."""
        # A child that was not waited for keeps its process id, so no other process can have this id.
        if self.process is not None and self.process.is_alive() and self.process.pid is not None:
            os.kill(self.process.pid, number)


def _end_of(process: SpawnProcess) -> int | None:
    if sys.platform == "linux" and process.pid is not None:
        with contextlib.suppress(OSError):
            return os.pidfd_open(process.pid)
    return None
