"""A thread that owns one ZeroMQ socket and does all sends and receives for other threads.

The module manages the socket, sends the messages of other threads, and delivers received messages. The meaning of
messages does not belong here.
"""

import contextlib
import socket
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

import zmq

from tests.system.independent.messages import Message
from tests.system.independent.protobuf_wire import WireError

LOOPBACK_ANY_PORT = "tcp://127.0.0.1:*"
_ROUND = 64  # so many messages are received before answers are sent


class SocketOwner:
    """Owns a DEALER that connects, or a ROUTER that binds. ``on_message`` runs in its thread."""

    def __init__(self, name: str, on_message: Callable[[bytes, Message], None]) -> None:
        self.malformed: list[bytes] = []
        self._name = name
        self._on_message = on_message
        self._outbox: SimpleQueue[tuple[bytes, bytes]] = SimpleQueue()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._wake: socket.socket | None = None

    def connect(self, url: str, identity: bytes) -> None:
        """Start as a DEALER."""
        dealer = self._open(zmq.DEALER)
        dealer.setsockopt(zmq.IDENTITY, identity)
        dealer.connect(url)
        self._run(dealer)

    def bind(self, url: str = LOOPBACK_ANY_PORT) -> str:
        """Start as a ROUTER and return its address."""
        router = self._open(zmq.ROUTER)
        router.bind(url)
        url = router.getsockopt_string(zmq.LAST_ENDPOINT)
        self._run(router)
        return url

    def send(self, message: Message, identity: bytes = b"") -> None:
        """Queue a message, from any thread. A ROUTER needs the identity of the peer."""
        self.send_raw(message.encode(), identity)

    def send_raw(self, frame: bytes, identity: bytes = b"") -> None:
        """Queue any bytes."""
        self._outbox.put((identity, frame))
        self._wake_up()

    def stop(self) -> None:
        """Close the socket at once. Messages in the outbox are lost, as when a process dies."""
        thread, context, wake = self._thread, self._context, self._wake
        if thread is None or context is None or wake is None:
            return
        self._stopping.set()
        self._wake_up()
        thread.join()
        self._thread = self._context = self._wake = None
        wake.close()
        context.term()

    def _open(self, socket_type: int) -> "zmq.Socket[bytes]":
        if self._thread is not None:
            raise RuntimeError("already started")
        self._stopping.clear()
        self._context = zmq.Context()
        opened: zmq.Socket[bytes] = self._context.socket(socket_type)
        opened.setsockopt(zmq.LINGER, 0)
        return opened

    def _run(self, opened: "zmq.Socket[bytes]") -> None:
        wake_reader, self._wake = socket.socketpair()
        wake_reader.setblocking(False)
        self._wake.setblocking(False)
        self._thread = threading.Thread(target=self._loop, args=(opened, wake_reader), name=self._name, daemon=True)
        self._thread.start()

    def _wake_up(self) -> None:
        wake = self._wake
        if wake is not None:
            with contextlib.suppress(OSError):
                wake.send(b"\0")

    def _loop(self, opened: "zmq.Socket[bytes]", wake_reader: socket.socket) -> None:
        is_router = opened.getsockopt(zmq.TYPE) == zmq.ROUTER
        poller = zmq.Poller()
        poller.register(opened, zmq.POLLIN)
        poller.register(wake_reader, zmq.POLLIN)
        try:
            while not self._stopping.is_set():
                poller.poll()
                with contextlib.suppress(BlockingIOError):
                    wake_reader.recv(4096)
                self._receive(opened, is_router)
                self._flush(opened, is_router)
        finally:
            wake_reader.close()
            opened.close(linger=0)

    def _receive(self, opened: "zmq.Socket[bytes]", is_router: bool) -> None:
        for _ in range(_ROUND):
            try:
                frames = opened.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            identity = frames.pop(0) if is_router else b""
            try:
                if len(frames) != 1:
                    raise WireError("a message is one frame")
                self._on_message(identity, Message.decode(frames[0]))
            except WireError:
                self.malformed.append(b"".join(frames))

    def _flush(self, opened: "zmq.Socket[bytes]", is_router: bool) -> None:
        while True:
            try:
                identity, frame = self._outbox.get_nowait()
            except Empty:
                return
            opened.send_multipart([identity, frame] if is_router else [frame], zmq.NOBLOCK)
