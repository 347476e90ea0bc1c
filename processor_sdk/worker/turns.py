"""Who turns the connection: the apply thread whenever it waits, and beside an apply the keeper; one at a time.

So a message wakes the thread that is to work on it and no other, while pings, signals and time limits are heeded also
where a handler runs long (docs/explanation/adr/0016-a-message-wakes-one-thread.md). No messages and no timers here.
"""

import signal
import threading
from types import TracebackType
from typing import Final

from processor_sdk.apply.progress import Task
from processor_sdk.errors import StateUnavailable
from processor_sdk.worker.connection import Connection
from protos import validator_pb2

KEEP_S: Final = 0.1
"""How long pings, signals and time limits may wait while an apply runs."""


class Turns:
    """What the apply thread calls, and the keeper's thread beside it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._turning = threading.Lock()
        self._keeper_dismissed = threading.Event()
        self._ended = _Ended()
        self.finished = False
        """There is nothing left to do; as of the last turn, whoever is in one meanwhile."""

    def next_task(self) -> Task | None:
        """The next; waits until something happens where there is none, and gives None where that was something else."""
        with self._turning:
            tasks = self._connection.tasks
            # All that is there is taken note of first: a lost connection voids the tasks that wait.
            self._turn(wait=not tasks)
            return tasks.popleft() if tasks else None

    def ask(self, task: Task, kind: validator_pb2.Message.MessageType, content: bytes) -> validator_pb2.Message:
        """The answer to a state call of ``task``. Raises StateUnavailable where the connection is lost before."""
        connection = self._connection
        with self._turning:
            connection.ask(task, kind, content)
            while connection.reply is None:
                if task.generation != connection.generation or self.finished:
                    raise StateUnavailable("the connection to the validator was lost")
                self._turn(wait=True)
            return connection.reply

    def answer(self, task: Task, content: bytes) -> None:
        """Send the answer to ``task``; of a connection that is lost by now it is dropped."""
        with self._turning:
            self._connection.answer(task, content)

    def keep(self) -> None:
        """The body of the keeper's thread, until ``dismiss_keeper``."""
        # Signals are for the thread that called TransactionProcessor.run.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        while not self._keeper_dismissed.wait(KEEP_S):
            if self._turning.acquire(blocking=False):
                try:
                    # What ended a turn of the apply thread is that one's to raise.
                    if self._ended.by is None:
                        self._turn(wait=False)
                finally:
                    self._turning.release()

    def dismiss_keeper(self) -> None:
        """``keep`` is to end."""
        self._keeper_dismissed.set()

    def finish(self) -> None:
        """Let what was sent last leave, where it is finished; it is not turned after this."""
        with self._turning:
            self._connection.end(in_order=self.finished)

    def _turn(self, *, wait: bool) -> None:
        # One that ended half-way is the last: dispatch, or the handler, may have caught what ended it.
        if self._ended.by is not None:
            raise self._ended.by
        with self._ended:
            if not self._connection.nothing_left:
                self._connection.turn(wait=wait)
        self.finished = self._connection.nothing_left


class _Ended:
    """What has ended a turn before its end, if anything did; it goes on to whoever turned."""

    by: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.by = error
