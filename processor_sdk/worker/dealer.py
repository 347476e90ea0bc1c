"""The socket to the validator, of which each life of the connection has its own. No messages, no timers."""

import functools
import operator
import uuid
from collections.abc import Iterator, Mapping
from typing import Final

import zmq
from zmq.utils.monitor import recv_monitor_message

from dovetail.ledger.hosts import needs_ipv6
from dovetail.ledger.limits import Limits
from processor_sdk.worker.keys import Keys

RECONNECT_MS_MAX: Final = 5_000
HEARTBEAT_MS: Final = 10_000
SILENCE_MS: Final = 30_000
REFUSED: Final = (
    zmq.Event.HANDSHAKE_FAILED_AUTH,
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL,
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL,
)
"""How a handshake fails: this key is not allowed; they do not speak alike; the other side closed without a word."""

_MONITORED: Final = functools.reduce(operator.or_, REFUSED, zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED)


class Dealer:
    """A DEALER that comes and goes, with the monitor that tells how it stands, both in ``poller`` while it is open."""

    def __init__(self, url: str, poller: zmq.Poller) -> None:
        self._url = url
        # Once, and not in the thread that must let the supervisor hear of it: it may take long.
        self._needs_ipv6 = needs_ipv6(url)
        self._poller = poller
        # A context of its own: its end waits for the last answers to leave, whatever else the process still holds.
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None

    def open(self, keys: Keys | None) -> None:
        """Begin to connect, under an identity that nobody had before. ``keys``: None where none are asked for."""
        self._socket = opened = self._context.socket(zmq.DEALER)
        opened.setsockopt(zmq.IDENTITY, uuid.uuid4().hex.encode())
        opened.setsockopt(zmq.IPV6, int(self._needs_ipv6))
        opened.setsockopt(zmq.MAXMSGSIZE, Limits().message_bytes_max)
        opened.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
        # A validator that is gone without a word (its host died) is noticed by its silence.
        opened.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        opened.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE_MS)
        if keys is not None:
            keys.put_on(opened)
        self._monitor = opened.get_monitor_socket(_MONITORED)
        self._poller.register(opened, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)
        opened.connect(self._url)

    def close(self, linger_ms: int) -> None:
        """This life is over; what was sent may take so long to leave, in the background."""
        if self._socket is None or self._monitor is None:
            return
        self._poller.unregister(self._socket)
        self._poller.unregister(self._monitor)
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(linger_ms)
        self._socket = self._monitor = None

    def end(self, linger_ms: int) -> None:
        """Close for good, and wait so long for what was sent to leave."""
        self.close(linger_ms)
        self._context.term()

    def abandon(self) -> None:
        """Close for good, whatever is open and however far that has come; what was not sent is not."""
        # pyzmq forgets a socket before it closes it: where that was interrupted, the context does not know of it.
        for left in (self._monitor, self._socket):
            if left is not None:
                left.close(0)
        self._context.destroy(0)

    def send(self, raw: bytes) -> bool:
        """False, and nothing is sent, where it takes no more; True also where it is closed: nobody wants it then."""
        if self._socket is not None:
            try:
                self._socket.send(raw, zmq.NOBLOCK)
            except zmq.Again:
                return False
        return True

    def has_messages(self, ready: Mapping[object, int]) -> bool:
        """Whether what the poller found ready says so."""
        return self._socket in ready

    def has_events(self, ready: Mapping[object, int]) -> bool:
        """The same of ``happened``."""
        return self._monitor in ready

    def received(self) -> Iterator[bytes]:
        """The last frame of every message that is there, until it is closed."""
        while self._socket is not None:
            try:
                yield self._socket.recv_multipart(zmq.NOBLOCK)[-1]
            except zmq.Again:
                return

    def happened(self) -> Iterator[int]:
        """HANDSHAKE_SUCCEEDED, DISCONNECTED and those of REFUSED, as they came, until it is closed."""
        while self._monitor is not None:
            try:
                yield recv_monitor_message(self._monitor, zmq.NOBLOCK)["event"]
            except zmq.Again:
                return
