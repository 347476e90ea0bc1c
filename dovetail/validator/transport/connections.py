"""The connections at the validator's port: how many there are, from where, and which are too many.

Fed with what the socket's monitor tells. No messages, no keys: a connection counts from when it is accepted, long
before anybody knows who is there.
"""

import os
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog
import zmq
from zmq.utils.monitor import parse_monitor_message

from dovetail.ledger.limits import Limits

EVENTS: Final = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL

_LOG_PAUSE_S: Final = 1.0
"""Whoever knocks without end must not fill the log."""

_KEYS_AT_AN_OPEN_PORT: Final = "it has keys, of which this validator has none"

log = structlog.get_logger("validator.connections")


class Seldom:
    """A warning at most once a second.

    The next one says how many were left out before it (``unsaid``), and how many seconds ago the last of them was: that
    may be long, since nothing is logged before it comes.
    """

    def __init__(self, event: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._event = event
        self._clock_s = clock_s
        self._next_s = float("-inf")
        self._unsaid = 0
        self._unsaid_s = 0.0
        """When the last one was left out."""

    def warn(self, **values: object) -> None:
        now_s = self._clock_s()
        if now_s < self._next_s:
            self._unsaid += 1
            self._unsaid_s = now_s
            return
        left_out = {"unsaid": self._unsaid, "unsaid_s_ago": round(now_s - self._unsaid_s, 1)} if self._unsaid else {}
        log.warning(self._event, **values, **left_out)
        self._next_s, self._unsaid = now_s + _LOG_PAUSE_S, 0


class Connections:
    """Counts connections by their descriptors, and cuts those beyond the limits. ``kept``: the port asks for keys."""

    def __init__(self, limits: Limits, *, kept: bool = False) -> None:
        self._limits = limits
        self._cause = "it has no keys, not this validator's" if kept else _KEYS_AT_AN_OPEN_PORT
        self._port = 0
        self._open: dict[int, str] = {}
        """The address that each descriptor's peer has; empty for a path."""
        self._from: Counter[str] = Counter()
        self._unfit = False
        self._refused = Seldom("connection refused")

    def listens(self, endpoint: str) -> None:
        """Where the gateway listens."""
        port = endpoint.rpartition(":")[2]
        self._port = int(port) if port.isdigit() else 0

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    def take(self, frames: list[bytes]) -> bool:
        """Take one event of the monitor; whether it tells of a connection that closed."""
        told = parse_monitor_message(frames)
        if told["event"] == zmq.EVENT_ACCEPTED:
            self._accepted(told["value"])
        elif told["event"] == zmq.EVENT_DISCONNECTED:
            self._closed(told["value"])
            return True
        else:
            self._unfit = True  # The same connection's end is the next event of this kind.
        return False

    def _accepted(self, descriptor: int) -> None:
        limits = self._limits
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as peer:
            address = self._address(peer)
            if address is None:
                return
            self._closed(descriptor)
            self._open[descriptor] = address
            self._from[address] += 1
            if len(self._open) > limits.connections_max:
                why = f"{len(self._open)} connections are open, at most {limits.connections_max} are allowed"
            elif address and self._from[address] > limits.address_connections_max:
                why = (
                    f"{self._from[address]} connections of {address} are open, at most"
                    f" {limits.address_connections_max} of one address are allowed"
                )
            else:
                return
            # The library notices, closes it, and tells that it is closed.
            peer.shutdown(socket.SHUT_RDWR)
            self._refused.warn(address=address, reason=why)

    def _closed(self, descriptor: int) -> None:
        address = self._open.pop(descriptor, None)
        unfit, self._unfit = self._unfit, False
        if address is None:
            return
        self._from[address] -= 1
        if not self._from[address]:
            del self._from[address]
        if unfit:
            self._refused.warn(address=address, reason=f"its handshake failed: {self._cause}, or speaks no ZMTP")

    def _address(self, peer: socket.socket) -> str | None:
        """Of a connection to this port; None of another socket: by now the descriptor may be another's."""
        if peer.family == socket.AF_UNIX:
            return "" if self._port == 0 else None
        if peer.family not in (socket.AF_INET, socket.AF_INET6) or peer.getsockname()[1] != self._port:
            return None
        return str(peer.getpeername()[0])
