"""A connection to a ZeroMQ port without libzmq: bytes of ZMTP 3.0, valid or not.

This module sends greetings, handshakes and frames. Rules on how the port must react do not belong here.
"""

import socket
import struct
from typing import Final

GREETING: Final = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
"""Signature, version, mechanism, as a client: 64 bytes."""

_LONG: Final = 2
_MORE: Final = 1
_COMMAND: Final = 4


def _property(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value


READY: Final = b"\x05READY" + _property(b"Socket-Type", b"DEALER") + _property(b"Identity", b"")


def command(body: bytes) -> bytes:
    """A short command frame."""
    return bytes([_COMMAND, len(body)]) + body


def frame(body: bytes, *, announced: int | None = None, more: bool = False) -> bytes:
    """A long frame. ``announced``: a length that differs from the real one."""
    length = len(body) if announced is None else announced
    return bytes([_LONG | (_MORE if more else 0)]) + struct.pack(">Q", length) + body


def connect(port: int, timeout_s: float, *, shake_hands: bool = True) -> socket.socket:
    """A connection to a port of this machine, with or without a completed handshake."""
    connection = socket.create_connection(("127.0.0.1", port), timeout_s)
    if shake_hands:
        connection.sendall(GREETING)
        _receive(connection, len(GREETING))
        connection.sendall(command(READY))
    return connection


def is_ended(connection: socket.socket) -> bool:
    """Whether the other side closes the stream. Reads all bytes before the end."""
    try:
        while connection.recv(65_536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def _receive(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        piece = connection.recv(count - len(received))
        if not piece:
            raise ConnectionError(f"closed after {len(received)} of {count} bytes")
        received += piece
    return received
