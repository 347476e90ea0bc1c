"""Serving a validator from this process: the apply thread, the keeper beside it, and the signals that end them.

The caller of ``serve`` applies transactions and turns the connection whenever it waits, the keeper's thread does so
while an apply runs (``processor_sdk.worker.turns``). No verdicts here (``processor_sdk.apply.dispatch`` finds them),
and no other
processes.
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
from processor_sdk.worker.turns import Turns
from processor_sdk.worker.watch import Watch
from protos import validator_pb2

ONE_SIGNAL_S: Final = 0.5
"""Signals within this time of the first say the same once: a terminal, a service manager and ``timeout`` all signal
the whole group, each for itself."""


class Service(NamedTuple):
    """What is served to whom.

    ``max_occupancy``: how many transactions to take at once. ``build_id``: of all handlers; None for that of each one's
    code. ``keys``: None for a validator that asks for none.
    """

    url: str
    handlers: Sequence[TransactionHandler[Any]]
    max_occupancy: int
    build_id: str | None
    keys: Keys | None = None


class _StopNow(KeyboardInterrupt):
    """The second signal; a KeyboardInterrupt because nothing but that passes through an apply."""


def serve(
    service: Service,
    progress: Progress,
    waker: socket.socket,
    wake: socket.socket,
    *,
    on_ready: Callable[[], None] | None = None,
    watch: Watch | None = None,
) -> None:
    """Serve until something is written to ``waker``, whose other end ``wake`` is; see ``connection`` for the words.

    In the main thread SIGTERM and SIGINT are written there, and a second one ends the serving at once, also in the
    middle of an apply. Raises ValueError where two handlers are of the same family and version.
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
    turns = Turns(connection)
    with ThreadPoolExecutor(1, thread_name_prefix="connection-keeper") as thread:
        keeper = thread.submit(turns.keep)
        try:
            with signals_to(waker, _StopNow), contextlib.suppress(_StopNow):
                _Applier(turns, connection, dispatcher, progress, on_ready).run()
                turns.finish()
        finally:
            turns.dismiss_keeper()
            wait((keeper,))
            connection.abandon()
    keeper.result()  # Raises what a bug in its thread raised.


def tell(waker: socket.socket, what: bytes) -> None:
    """Write ``what``. Nothing happens where nobody listens any more, or it has been told often enough already."""
    with contextlib.suppress(OSError):
        waker.send(what)


@contextlib.contextmanager
def signals_to(
    waker: socket.socket,
    second: type[KeyboardInterrupt] | None,
    numbers: Collection[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
) -> Iterator[None]:
    """In the main thread: ``numbers`` go to ``waker``; one later than ONE_SIGNAL_S also raises ``second``."""
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

    # The interpreter writes to the wake-up descriptor at once, while it may run on_signal only when an apply comes back
    # from a long call of C code.
    previous_fd = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    previous = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        # A worker is started with them blocked, so that none comes before it can be heeded.
        unblocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(previous_fd)
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)


class _Applier:
    """The apply thread: takes tasks one after another, and is the link for their state calls."""

    def __init__(
        self,
        turns: Turns,
        connection: Connection,
        dispatcher: Dispatcher,
        progress: Progress,
        on_ready: Callable[[], None] | None,
    ) -> None:
        self._process = os.getpid()
        self._turns = turns
        self._connection = connection
        self._dispatcher = dispatcher
        self._progress = progress
        self._on_ready = on_ready

    def run(self) -> None:
        """Until there is nothing left to do. Raises what ended a turn, here or in the keeper's thread."""
        while not self._turns.finished:
            task = self._turns.next_task()
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
        self._turns.answer(task, content)

    def _call(self, message_type: validator_pb2.Message.MessageType, content: bytes) -> bytes:
        """A ``processor_sdk.apply.state.Link``; tasks that come meanwhile wait their turn."""
        task = self._progress.task
        assert task is not None, "states are called by applies, and those are of tasks"
        self._check_process()
        own_s = self._progress.wait_begins()
        try:
            reply = self._turns.ask(task, message_type, content)
        finally:
            self._progress.wait_ended(own_s)
        if reply.message_type != message_type + 1:  # Every request has the number before its answer's.
            raise StateUnavailable(f"the validator answered a message {message_type} by {reply.message_type}")
        return reply.content

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            os._exit(0)  # A child that a handler has forked and let go on: the transaction is its parent's.
