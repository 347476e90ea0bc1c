"""One connection, shared by two threads under a lock: the apply thread polls while waiting, the keeper otherwise.

A message wakes only the thread that works on it, and pings, signals and time limits are handled even while a handler
runs long (docs/explanation/adr/0016-a-message-wakes-one-thread.md). No messages and no timers here.
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
"""The longest time that pings, signals and time limits wait while an apply runs."""


class SharedConnection:
    """The methods that the apply thread and the keeper thread call."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._keeper_dismissed = threading.Event()
        self._ended = _Ended()
        self.finished = False
        """Whether the work was finished after the latest poll."""

    def next_task(self) -> Task | None:
        """The next task. If there is none, wait for any event; return None if the event brings no task."""
        with self._lock:
            tasks = self._connection.tasks
            # Polled first, because a lost connection voids the waiting tasks.
            self._poll(wait=not tasks)
            return tasks.popleft() if tasks else None

    def ask(self, task: Task, kind: validator_pb2.Message.MessageType, content: bytes) -> validator_pb2.Message:
        """The answer to a state call of ``task``. Raises StateUnavailable if the connection is lost."""
        connection = self._connection
        with self._lock:
            connection.ask(task, kind, content)
            while connection.reply is None:
                if task.generation != connection.generation or self.finished:
                    raise StateUnavailable("the connection to the validator was lost")
                self._poll(wait=True)
            return connection.reply

    def answer(self, task: Task, content: bytes) -> None:
        """Send the answer to ``task``; drop it if the task's connection is lost."""
        with self._lock:
            self._connection.answer(task, content)

    def keep(self) -> None:
        """The keeper thread: polls while an apply runs, until ``dismiss_keeper``."""
        # The thread that called TransactionProcessor.run receives the signals.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        while not self._keeper_dismissed.wait(KEEP_S):
            if self._lock.acquire(blocking=False):
                try:
                    # The apply thread raises the exception that ended its own poll.
                    if self._ended.by is None:
                        self._poll(wait=False)
                finally:
                    self._lock.release()

    def dismiss_keeper(self) -> None:
        """Make ``keep`` return."""
        self._keeper_dismissed.set()

    def finish(self) -> None:
        """Close the connection. If the work is finished, send the last messages before. Must be the last call."""
        with self._lock:
            self._connection.end(in_order=self.finished)

    def _poll(self, *, wait: bool) -> None:
        # Do not poll after an earlier poll has raised: dispatch or the handler may have caught that exception.
        if self._ended.by is not None:
            raise self._ended.by
        with self._ended:
            if not self._connection.nothing_left:
                self._connection.poll(wait=wait)
        self.finished = self._connection.nothing_left


class _Ended:
    """Keeps the exception that ended a poll, and lets it propagate."""

    by: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.by = error
