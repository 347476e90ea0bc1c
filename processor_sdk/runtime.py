"""A transaction processor as a running thing: handlers on one side, a validator's address on the other.

Two threads with one owner for each thing: the caller of ``run`` applies transactions, ``processor_sdk.connection``
owns the socket. No verdicts here: ``processor_sdk.dispatch`` finds them.
"""

import contextlib
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from types import FrameType
from typing import Final

import zmq

from processor_sdk import connection
from processor_sdk.connection import Connection
from processor_sdk.dispatch import Dispatcher
from processor_sdk.errors import StateUnavailable
from processor_sdk.handler import TransactionHandler
from protos import validator_pb2

MAX_OCCUPANCY_DEFAULT: Final = 512
"""Two full packed messages, so that the next is here when one is answered."""

_PAIR_URL: Final = "inproc://apply"
_TASKS: Final = {
    validator_pb2.Message.TP_PROCESS_REQUEST: validator_pb2.Message.TP_PROCESS_RESPONSE,
    validator_pb2.Message.PACKED_PROCESS_REQUEST: validator_pb2.Message.PACKED_PROCESS_RESPONSE,
}


class _StopNow(KeyboardInterrupt):
    """The second signal; a KeyboardInterrupt because nothing but that passes through an apply."""


class TransactionProcessor:
    """Serves the handlers added to it to one validator. Runs once."""

    def __init__(
        self,
        url: str,
        *,
        max_occupancy: int = MAX_OCCUPANCY_DEFAULT,
        on_ready: Callable[[], None] | None = None,
    ) -> None:
        """``url``: the validator's address, as ``tcp://127.0.0.1:4004``.

        ``max_occupancy``: how many transactions to take at once. ``on_ready`` is called, in the thread of ``run``, when
        the validator has accepted all families for the first time.
        """
        if not 1 <= max_occupancy <= 2**32 - 1:
            raise ValueError(f"max_occupancy is {max_occupancy}; it must be from 1 to {2**32 - 1}")
        self._url = url
        self._max_occupancy = max_occupancy
        self._on_ready = on_ready
        self._handlers: list[TransactionHandler] = []
        self._waker: socket.socket | None = None
        self._stop_asked = False

    def add_handler(self, handler: TransactionHandler) -> "TransactionProcessor":
        """Serve ``handler`` too; before ``run``."""
        self._handlers.append(handler)
        return self

    def stop(self) -> None:
        """End ``run``: unregister, finish what is in flight, return. From any thread, any number of times.

        Before ``run`` it makes that return at once.
        """
        self._stop_asked = True
        self._tell(connection.STOP)

    def run(self) -> None:
        """Connect, and serve until ``stop``. Reconnects for ever by itself.

        In the main thread SIGTERM and SIGINT stop it, and a second one ends it at once, also in the middle of an apply.
        Raises ValueError without handlers, or with two for the same family and version.
        """
        if not self._handlers:
            raise ValueError("no handler was added")
        dispatcher = Dispatcher(self._handlers)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        pair = context.socket(zmq.PAIR)
        pair.set_hwm(0)
        pair.bind(_PAIR_URL)
        waker, wake = socket.socketpair()
        waker.setblocking(False)
        link = Connection(
            context, self._url, self._handlers, max_occupancy=self._max_occupancy, pair_url=_PAIR_URL, wake=wake
        )
        with waker, wake, ThreadPoolExecutor(1, thread_name_prefix="validator-connection") as thread:
            ended = thread.submit(link.run)
            self._waker = waker
            if self._stop_asked:
                self._tell(connection.STOP)
            try:
                with _signals_to(waker), contextlib.suppress(_StopNow):
                    _Applier(pair, dispatcher, self._on_ready).run()
            finally:
                self._tell(connection.STOP_NOW)
                wait((ended,))
                pair.close(0)
                context.term()
            ended.result()  # Raises what a bug in the connection's thread raised.

    def _tell(self, what: bytes) -> None:
        if self._waker is None:
            return
        # Closed: run has returned. Full: it has been told often enough.
        with contextlib.suppress(OSError):
            self._waker.send(what)


@contextlib.contextmanager
def _signals_to(waker: socket.socket) -> Iterator[None]:
    """In the main thread: the first SIGTERM or SIGINT goes to ``waker``, as its number; the second raises _StopNow."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise _StopNow
        asked = True

    # The interpreter writes to the wake-up descriptor at once, while it may run on_signal only when an apply comes back
    # from a long call of C code.
    previous_fd = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(previous_fd)


class _Applier:
    """The apply thread: takes tasks one after another, and is the link for their state calls."""

    def __init__(self, pair: "zmq.Socket[bytes]", dispatcher: Dispatcher, on_ready: Callable[[], None] | None) -> None:
        self._pair = pair
        self._dispatcher = dispatcher
        self._on_ready = on_ready
        self._waiting: deque[tuple[bytes, bytes]] = deque()
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

    def _answer(self, generation: bytes, raw: bytes) -> None:
        message = validator_pb2.Message.FromString(raw)
        answer_type = _TASKS[message.message_type]
        self._task_generation = generation
        if message.message_type == validator_pb2.Message.PACKED_PROCESS_REQUEST:
            content = self._dispatcher.packed(message.content, self._call)
        else:
            content = self._dispatcher.single(message.content, self._call)
        # Of a connection that is lost by now it is dropped, here or by the connection's thread.
        answer = validator_pb2.Message(message_type=answer_type, correlation_id=message.correlation_id, content=content)
        self._pair.send_multipart([connection.ANSWER, generation, answer.SerializeToString()])

    def _call(self, message_type: validator_pb2.Message.MessageType, content: bytes) -> bytes:
        """A ``processor_sdk.dispatch.Link``; tasks that come meanwhile wait their turn."""
        generation = self._task_generation
        if generation != self._generation or self._quit:
            raise StateUnavailable("the connection to the validator was lost")
        self._calls += 1
        correlation_id = f"call-{self._calls}"
        request = validator_pb2.Message(message_type=message_type, correlation_id=correlation_id, content=content)
        self._pair.send_multipart([connection.CALL, generation, request.SerializeToString()])
        while True:
            reply = self._receive()
            if generation != self._generation or self._quit:
                raise StateUnavailable("the connection to the validator was lost")
            if reply is None or reply.correlation_id != correlation_id:
                continue
            if reply.message_type != message_type + 1:  # Every request of the 1.x protocol is followed by its answer.
                raise StateUnavailable(f"the validator answered a message {message_type} by {reply.message_type}")
            return reply.content

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
            self._waiting.append((generation, raw))
        return None
