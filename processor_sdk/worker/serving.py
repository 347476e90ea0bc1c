"""Serving a validator from this process: the apply thread, the keeper thread and the signals that end them.

The caller of ``serve`` is the apply thread. It polls the connection while it waits; the keeper thread polls it while an
apply runs (``processor_sdk.worker.shared_connection``). Verdicts come from ``processor_sdk.apply.dispatch``.
"""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from types import FrameType
from typing import Any, Final, NamedTuple

from processor_sdk.apply.dispatch import Dispatcher
from processor_sdk.apply.progress import Progress, Task
from processor_sdk.errors import StateUnavailable
from processor_sdk.handler import TransactionHandler
from processor_sdk.worker.connection import Connection
from processor_sdk.worker.keys import Keys
from processor_sdk.worker.shared_connection import SharedConnection
from processor_sdk.worker.watch import Watch
from protos import validator_pb2

ONE_SIGNAL_S: Final = 0.5
"""Signals within this time of the first count as one: a terminal, a service manager and ``timeout`` may each signal
the whole process group."""


class Service(NamedTuple):
    """The handlers and the validator that they serve.

    ``max_occupancy``: the number of transactions that may be in flight. ``build_id``: one for all handlers; None for
    the result of ``build_of`` for each handler. ``keys``: None if the validator asks for none.
    """

    url: str
    handlers: Sequence[TransactionHandler[Any]]
    max_occupancy: int
    build_id: str | None
    keys: Keys | None = None


class _StopNow(KeyboardInterrupt):
    """The second signal. A KeyboardInterrupt, because dispatch lets no other exception through."""


def serve(
    service: Service,
    progress: Progress,
    waker: socket.socket,
    wake: socket.socket,
    *,
    on_ready: Callable[[], None] | None = None,
    watch: Watch | None = None,
) -> None:
    """Serve until STOP or a signal's number is written to ``waker``; ``wake`` is the other end of that socket pair.

    In the main thread SIGTERM and SIGINT are written to ``waker``. A second signal ends the serving at once, even in
    the middle of an apply. Raises ValueError if two handlers have the same family and version.
    """
    progress.thread = threading.get_ident()
    dispatcher = Dispatcher(service.handlers, progress, _StopNow)
    connection = Connection(
        service.url,
        service.handlers,
        max_occupancy=service.max_occupancy,
        build_id=service.build_id,
        wake=wake,
        watch=watch,
        keys=service.keys,
    )
    shared = SharedConnection(connection)
    with ThreadPoolExecutor(1, thread_name_prefix="connection-keeper") as thread:
        keeper = thread.submit(shared.keep)
        try:
            with signals_to(waker, _StopNow), contextlib.suppress(_StopNow):
                _Applier(shared, connection, dispatcher, progress, on_ready).run()
                shared.finish()
        finally:
            shared.dismiss_keeper()
            wait((keeper,))
            connection.abandon()
    keeper.result()  # Raises the exception of a bug in the keeper thread.


def notify(waker: socket.socket, what: bytes) -> None:
    """Write ``what`` to ``waker``. Does nothing if the other end is closed or full."""
    with contextlib.suppress(OSError):
        waker.send(what)


@contextlib.contextmanager
def signals_to(
    waker: socket.socket,
    second: type[KeyboardInterrupt] | None,
    numbers: Collection[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
) -> Iterator[None]:
    """In the main thread, write signals to ``waker``. A signal ONE_SIGNAL_S after the first raises ``second``."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked_at: float | None = None

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked_at
        now = time.monotonic()
        if asked_at is None:
            asked_at = now
        elif second is not None and now - asked_at >= ONE_SIGNAL_S:
            raise second

    # The interpreter writes to the wake-up descriptor at once, but it may run on_signal only after a long call of C
    # code has returned.
    previous_fd = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    previous = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        # A worker starts with these signals blocked, so that none is lost before the handlers are set.
        unblocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(previous_fd)
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)


class _Applier:
    """The apply thread: executes one task after another and sends their state calls."""

    def __init__(
        self,
        shared: SharedConnection,
        connection: Connection,
        dispatcher: Dispatcher,
        progress: Progress,
        on_ready: Callable[[], None] | None,
    ) -> None:
        self._process = os.getpid()
        self._shared = shared
        self._connection = connection
        self._dispatcher = dispatcher
        self._progress = progress
        self._on_ready = on_ready

    def run(self) -> None:
        """Run until the work is finished. Raises the exception that ended a poll, here or in the keeper thread."""
        while not self._shared.finished:
            task = self._shared.next_task()
            if self._on_ready is not None and self._connection.registered:
                self._on_ready()
                self._on_ready = None
            if task is not None:
                self._answer(task)

    def _answer(self, task: Task) -> None:
        self._progress.task = task
        if task.message_type == validator_pb2.Message.PACKED_PROCESS_REQUEST:
            content = self._dispatcher.packed(task.content, self._call)
        else:
            content = self._dispatcher.single(task.content, self._call)
        self._check_process()
        self._shared.answer(task, content)

    def _call(self, message_type: validator_pb2.Message.MessageType, content: bytes) -> bytes:
        """A ``processor_sdk.apply.state.Link``. Tasks that arrive meanwhile wait."""
        task = self._progress.task
        assert task is not None, "only the apply of a task makes state calls"
        self._check_process()
        own_s = self._progress.wait_begins()
        try:
            reply = self._shared.ask(task, message_type, content)
        finally:
            self._progress.wait_ended(own_s)
        if reply.message_type != message_type + 1:  # An answer's type is its request's plus one.
            raise StateUnavailable(f"the validator answered a message {message_type} by {reply.message_type}")
        return reply.content

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            os._exit(0)  # A child process that a handler forked must not answer for its parent.
