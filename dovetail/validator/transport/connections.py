"""Counts the connections of the validator's port by address, and closes those beyond the limits.

Works on events of the socket monitor, without messages or keys: a connection counts from its acceptance, before the
peer is known.
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
"""A peer that connects again and again must not fill the log."""

_KEYS_AT_AN_OPEN_PORT: Final = "it has keys, of which this validator has none"

log = structlog.get_logger("validator.connections")


class ThrottledWarning:
    """Logs a warning at most once a second.

    The next warning reports how many were suppressed before it (``unsaid``), and how many seconds ago the last of them
    was suppressed (``unsaid_s_ago``).
    """

    def __init__(self, event: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._event = event
        self._clock_s = clock_s
        self._next_s = float("-inf")
        self._unsaid = 0
        self._unsaid_s = 0.0

    def warn(self, **values: object) -> None:
        now_s = self._clock_s()
        if now_s < self._next_s:
            self._unsaid += 1
            self._unsaid_s = now_s
            return
        suppressed = {"unsaid": self._unsaid, "unsaid_s_ago": round(now_s - self._unsaid_s, 1)} if self._unsaid else {}
        log.warning(self._event, **values, **suppressed)
        self._next_s, self._unsaid = now_s + _LOG_PAUSE_S, 0


class Connections:
    """Counts connections by descriptor, and closes those beyond the limits. ``restricted``: the port asks for keys."""

    def __init__(self, limits: Limits, *, restricted: bool = False) -> None:
        self._limits = limits
        self._cause = "it has no keys, not this validator's" if restricted else _KEYS_AT_AN_OPEN_PORT
        self._port = 0
        self._open: dict[int, str] = {}
        """The address of each descriptor's peer; empty for a path."""
        self._from: Counter[str] = Counter()
        self._handshake_failed = False
        self._refused = ThrottledWarning("connection refused")

    def set_endpoint(self, endpoint: str) -> None:
        """Count connections of this endpoint."""
        port = endpoint.rpartition(":")[2]
        self._port = int(port) if port.isdigit() else 0

    @property
    def count(self) -> int:
        return len(self._open)

    def handle_event(self, frames: list[bytes]) -> bool:
        """Process one event of the monitor. True if a connection closed."""
        event = parse_monitor_message(frames)
        if event["event"] == zmq.EVENT_ACCEPTED:
            self._accepted(event["value"])
        elif event["event"] == zmq.EVENT_DISCONNECTED:
            self._closed(event["value"])
            return True
        else:
            self._handshake_failed = True  # The next EVENT_DISCONNECTED is of the same connection.
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
            # libzmq notices, closes the connection, and the monitor reports EVENT_DISCONNECTED.
            peer.shutdown(socket.SHUT_RDWR)
            self._refused.warn(address=address, reason=why)

    def _closed(self, descriptor: int) -> None:
        address = self._open.pop(descriptor, None)
        handshake_failed, self._handshake_failed = self._handshake_failed, False
        if address is None:
            return
        self._from[address] -= 1
        if not self._from[address]:
            del self._from[address]
        if handshake_failed:
            self._refused.warn(address=address, reason=f"its handshake failed: {self._cause}, or speaks no ZMTP")

    def _address(self, peer: socket.socket) -> str | None:
        """The peer's address; None if the descriptor meanwhile belongs to a socket of another port."""
        if peer.family == socket.AF_UNIX:
            return "" if self._port == 0 else None
        if peer.family not in (socket.AF_INET, socket.AF_INET6) or peer.getsockname()[1] != self._port:
            return None
        return str(peer.getpeername()[0])
