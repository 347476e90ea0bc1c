"""Serving a validator from this process: the apply thread, and the signals that end it.

Two threads with one owner for each thing: the caller of ``serve`` applies transactions, ``processor_sdk.connection``
owns the socket. No verdicts here (``processor_sdk.dispatch`` finds them), and no other processes.
"""

import contextlib
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from types import FrameType
from typing import Any, Final, NamedTuple

import zmq

from processor_sdk import connection
from processor_sdk.connection import Connection
from processor_sdk.dispatch import Dispatcher
from processor_sdk.errors import StateUnavailable
from processor_sdk.handler import TransactionHandler
from processor_sdk.keys import Keys
from processor_sdk.progress import Progress, Task
from processor_sdk.watch import Watch
from protos import validator_pb2

ONE_SIGNAL_S: Final = 0.5
"""Signals within this time of the first say the same once: a terminal, a service manager and ``timeout`` all signal
the whole group, each for itself."""

_PAIR_URL: Final = "inproc://apply"
_TASKS: Final = {
    validator_pb2.Message.TP_PROCESS_REQUEST: validator_pb2.Message.TP_PROCESS_RESPONSE,
    validator_pb2.Message.PACKED_PROCESS_REQUEST: validator_pb2.Message.PACKED_PROCESS_RESPONSE,
}


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
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    pair = context.socket(zmq.PAIR)
    pair.set_hwm(0)
    pair.bind(_PAIR_URL)
    link = Connection(
        context,
        service.url,
        service.handlers,
        max_occupancy=service.max_occupancy,
        build_id=service.build_id,
        pair_url=_PAIR_URL,
        wake=wake,
        watch=watch,
        keys=service.keys,
    )
    with ThreadPoolExecutor(1, thread_name_prefix="validator-connection") as thread:
        ended = thread.submit(link.run)
        try:
            with signals_to(waker, _StopNow), contextlib.suppress(_StopNow):
                _Applier(pair, dispatcher, progress, on_ready).run()
        finally:
            tell(waker, connection.STOP_NOW)
            wait((ended,))
            pair.close(0)
            context.term()
        ended.result()  # Raises what a bug in the connection's thread raised.


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
        pair: "zmq.Socket[bytes]",
        dispatcher: Dispatcher,
        progress: Progress,
        on_ready: Callable[[], None] | None,
    ) -> None:
        self._process = os.getpid()
        self._pair = pair
        self._dispatcher = dispatcher
        self._progress = progress
        self._on_ready = on_ready
        self._waiting: deque[tuple[bytes, validator_pb2.Message]] = deque()
        self._generation = b"0"
        self._task_generation = b"0"
        self._calls = 0
        self._quit = False

    def run(self) -> None:
        while not self._quit:
            # All that is there is taken note of first: a lost connection voids the tasks that wait.
            if not self._waiting or self._pair.poll(0):
                self._receive()
            else:
                self._answer(*self._waiting.popleft())

    def _answer(self, generation: bytes, message: validator_pb2.Message) -> None:
        answer_type = _TASKS[message.message_type]
        self._task_generation = generation
        self._progress.task = Task(generation, message.message_type, message.correlation_id)
        if message.message_type == validator_pb2.Message.PACKED_PROCESS_REQUEST:
            content = self._dispatcher.packed(message.content, self._call)
        else:
            content = self._dispatcher.single(message.content, self._call)
        # Of a connection that is lost by now it is dropped, here or by the connection's thread.
        answer = validator_pb2.Message(message_type=answer_type, correlation_id=message.correlation_id, content=content)
        self._send(connection.ANSWER, generation, answer)

    def _call(self, message_type: validator_pb2.Message.MessageType, content: bytes) -> bytes:
        """A ``processor_sdk.state.Link``; tasks that come meanwhile wait their turn."""
        generation = self._task_generation
        if generation != self._generation or self._quit:
            raise StateUnavailable("the connection to the validator was lost")
        self._calls += 1
        correlation_id = f"call-{self._calls}"
        request = validator_pb2.Message(message_type=message_type, correlation_id=correlation_id, content=content)
        self._send(connection.CALL, generation, request)
        own_s = self._progress.wait_begins()
        try:
            reply = self._receive()
            while reply is None or reply.correlation_id != correlation_id:
                if generation != self._generation or self._quit:
                    raise StateUnavailable("the connection to the validator was lost")
                reply = self._receive()
        finally:
            self._progress.wait_ended(own_s)
        if reply.message_type != message_type + 1:  # Every request has the number before its answer's.
            raise StateUnavailable(f"the validator answered a message {message_type} by {reply.message_type}")
        return reply.content

    def _send(self, kind: bytes, generation: bytes, message: validator_pb2.Message) -> None:
        if os.getpid() != self._process:
            os._exit(0)  # A child that a handler has forked and let go on: the transaction is its parent's.
        self._pair.send_multipart([kind, generation, message.SerializeToString()])

    def _receive(self) -> validator_pb2.Message | None:
        """Wait for one thing from the connection and take note of it; the message where it is no task."""
        kind, generation, raw = self._pair.recv_multipart()
        if kind == connection.QUIT:
            self._quit = True
        elif kind == connection.LOST:
            self._generation = generation
            self._waiting.clear()
        elif kind == connection.READY:
            if self._on_ready is not None:
                self._on_ready()
                self._on_ready = None
        else:
            message = validator_pb2.Message.FromString(raw)
            if message.message_type not in _TASKS:
                return message
            self._waiting.append((generation, message))
        return None
