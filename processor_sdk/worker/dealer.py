"""The DEALER socket of one life of the connection. No messages, no timers."""

import functools
import operator
import uuid
from collections.abc import Iterator, Mapping
from typing import Final

import zmq
from zmq.utils.monitor import recv_monitor_message

from dovetail.ledger.hosts import needs_ipv6
from dovetail.ledger.limits import PROCESSOR_MESSAGE_BYTES_MAX
from processor_sdk.worker.keys import Keys

RECONNECT_MS_MAX: Final = 5_000
HEARTBEAT_MS: Final = 10_000
SILENCE_MS: Final = 30_000
REFUSED: Final = (
    zmq.Event.HANDSHAKE_FAILED_AUTH,
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL,
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL,
)
"""How a handshake fails: the key is not allowed; the protocols differ; the validator closed without a reason."""

_MONITORED: Final = functools.reduce(operator.or_, REFUSED, zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED)


class Dealer:
    """A DEALER socket and its monitor. Both are registered in ``poller`` while they are open."""

    def __init__(self, url: str, poller: zmq.Poller) -> None:
        self._url = url
        # Resolved once, before the thread that sends heartbeats starts: resolving may take long.
        self._needs_ipv6 = needs_ipv6(url)
        self._poller = poller
        # Its own context, because ending a context waits until every message of its sockets is sent.
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None

    def open(self, keys: Keys | None) -> None:
        """Begin to connect under a new identity. ``keys``: None if the validator asks for none."""
        self._socket = opened = self._context.socket(zmq.DEALER)
        opened.setsockopt(zmq.IDENTITY, uuid.uuid4().hex.encode())
        opened.setsockopt(zmq.IPV6, int(self._needs_ipv6))
        opened.setsockopt(zmq.MAXMSGSIZE, PROCESSOR_MESSAGE_BYTES_MAX)
        opened.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
        # Heartbeats detect a validator whose host died without closing the connection.
        opened.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        opened.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE_MS)
        if keys is not None:
            keys.set_on(opened)
        self._monitor = opened.get_monitor_socket(_MONITORED)
        self._poller.register(opened, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)
        opened.connect(self._url)

    def close(self, linger_ms: int) -> None:
        """End this life. Messages may still be sent in the background for ``linger_ms``."""
        if self._socket is None or self._monitor is None:
            return
        self._poller.unregister(self._socket)
        self._poller.unregister(self._monitor)
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(linger_ms)
        self._socket = self._monitor = None

    def end(self, linger_ms: int) -> None:
        """Close for good, and wait up to ``linger_ms`` until every message is sent."""
        self.close(linger_ms)
        self._context.term()

    def abandon(self) -> None:
        """Close for good, from any state. Messages that were not sent are lost."""
        # pyzmq removes a socket from the context before it closes the socket, and an interrupt may come in between.
        for left in (self._monitor, self._socket):
            if left is not None:
                left.close(0)
        self._context.destroy(0)

    def send(self, raw: bytes) -> bool:
        """Send ``raw``. Returns False if the queue is full, and True if the socket is closed: nobody waits then."""
        if self._socket is not None:
            try:
                self._socket.send(raw, zmq.NOBLOCK)
            except zmq.Again:
                return False
        return True

    def has_messages(self, ready: Mapping[object, int]) -> bool:
        return self._socket in ready

    def has_events(self, ready: Mapping[object, int]) -> bool:
        return self._monitor in ready

    def received(self) -> Iterator[bytes]:
        """The last frame of every waiting message, until the socket is closed."""
        while self._socket is not None:
            try:
                yield self._socket.recv_multipart(zmq.NOBLOCK)[-1]
            except zmq.Again:
                return

    def events(self) -> Iterator[int]:
        """HANDSHAKE_SUCCEEDED, DISCONNECTED and the events of REFUSED in their order, until the socket is closed."""
        while self._monitor is not None:
            try:
                yield recv_monitor_message(self._monitor, zmq.NOBLOCK)["event"]
            except zmq.Again:
                return
