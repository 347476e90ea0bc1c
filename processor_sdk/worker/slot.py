"""The place of one worker process: filled, asked for its end, emptied; and what is left of those that filled it.

When any of that is to happen is ``processor_sdk.worker.supervisor``'s to say.
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
"""The signals that end a supervisor in order."""

_spawn: Final = multiprocessing.get_context("spawn")


class Slot:
    """One worker's place. All times are seconds of ``time.monotonic``."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: SpawnProcess | None = None
        self.pipe: Pipe[bytes, worker.Word] | None = None
        self.end: int | None = None
        """A descriptor that is readable when the process has ended; None where the system has none."""
        self.beat: Beat | None = None
        self.leaving: int | None = None
        """The exit code that the SDK itself ends the process with; it says so before."""
        self.start_at: float | None = 0.0
        self.started_at = 0.0
        self.silent_at = 0.0
        """When its silence has lasted too long."""
        self.aborted = False
        self.failures = 0
        self.restarts = 0
        self._kept: dict[Family, FamilyCounts] = {}

    def start(self, orders: worker.Orders) -> None:
        """Fill it with a fresh process. Raises OSError where the system has none to give; then it stays empty."""
        # The first start would start it too, and that unblocks the signals.
        resource_tracker.ensure_running()
        pipe, its_end = _spawn.Pipe()
        process = _spawn.Process(target=worker.run, args=(self.number, orders, its_end), name=f"worker-{self.number}")
        # It begins with them blocked, and takes them when it can end in order; a terminal's Ctrl-C reaches it too.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        with its_end, contextlib.ExitStack() as undo:
            undo.enter_context(pipe)
            try:
                process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            undo.pop_all()
        self.process, self.pipe, self.end = process, pipe, _end_of(process)
        self.beat = self.leaving = None
        self.aborted = False

    def ended(self) -> bool:
        """Whether there was a process and it has ended. Its pipes do not tell: what it started itself has them too."""
        return self.process is not None and self.process.exitcode is not None

    def release(self) -> None:
        """Empty it, when the process has ended; its counts are kept."""
        self._kept = dict(self.counts())
        self.beat = None
        if self.pipe is not None:
            self.pipe.close()
        if self.end is not None:
            os.close(self.end)
        if self.process is not None:
            self.process.close()
        self.pipe = self.end = self.process = None

    def counts(self) -> Mapping[Family, FamilyCounts]:
        """Of all processes that have been here."""
        now = self.beat.counts if self.beat is not None else {}
        return {
            family: self._kept.get(family, FamilyCounts()).plus(now.get(family, FamilyCounts()))
            for family in {**self._kept, **now}
        }

    def send_signal(self, number: signal.Signals) -> None:
        """To the process; nothing where there is none any more."""
        # It is this one's child and not waited for yet: its number is nobody else's.
        if self.process is not None and self.process.is_alive() and self.process.pid is not None:
            os.kill(self.process.pid, number)


def _end_of(process: SpawnProcess) -> int | None:
    if sys.platform == "linux" and process.pid is not None:
        with contextlib.suppress(OSError):
            return os.pidfd_open(process.pid)
    return None
