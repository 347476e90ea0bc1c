"""Reports a process's state to its supervisor, and notices the supervisor's end.

Reports follow systemd's notify protocol (sd_notify(3): datagrams to NOTIFY_SOCKET), so that systemd and Dovetail's own
supervisor both understand them. The lifeline is a pipe whose writing end only the supervisor holds: its end of file
means that the supervisor is gone. Processes are started in ``dovetail.node.child``.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Final

NOTIFY_SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG_USEC: Final = "WATCHDOG_USEC"
WATCHDOG_PID: Final = "WATCHDOG_PID"
LIFELINE_FD: Final = "DOVETAIL_LIFELINE_FD"

_DATAGRAM_BYTES_MAX: Final = 4096
_STATUS_CHARACTERS_MAX: Final = 400
AGAIN_S: Final = 5.0
"""The seconds after which an unsent report is sent again."""

ORPHAN_GRACE_S: Final = 20.0
"""Seconds until an orphaned process is killed. A part takes less to end in order: a processor at most 15 s."""


class Notifier:
    """Sends READY=1, STATUS=…, WATCHDOG=1 and STOPPING=1 to a notify socket, if there is one.

    Never waits for the listener: if the socket is full, a report is sent together with the next one.
    """

    def __init__(
        self, address: str | None, watchdog_s: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``address``: a path, ``@name`` for one of Linux's abstract sockets, or None for no listener.

        ``watchdog_s``: how long the listener tolerates silence; None for no limit. ``clock``: monotonic seconds.
        """
        self._address = "\0" + address[1:] if address and address.startswith("@") else address
        self._watchdog_s = watchdog_s
        self.alive_s = min(AGAIN_S, watchdog_s / 4 if watchdog_s else AGAIN_S) if address else None
        """The longest allowed pause between calls of ``alive``, in seconds; None without a listener."""
        self._clock = clock
        self._alive_at = 0.0
        self._unsent: dict[str, str] = {}

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> "Notifier":
        """Take NOTIFY_SOCKET and its companions out of ``environ``, so that child processes do not inherit them."""
        address, usec = environ.pop(NOTIFY_SOCKET, None), environ.pop(WATCHDOG_USEC, "")
        mine = environ.pop(WATCHDOG_PID, str(os.getpid())) == str(os.getpid())
        return cls(address, int(usec) / 1_000_000 if mine and usec.isascii() and usec.isdigit() else None)

    def ready(self) -> None:
        """Report that this process serves."""
        self._send(READY="1", STATUS="ready")

    def status(self, text: str) -> None:
        """Report in one line what this process does or waits for."""
        self._send(STATUS=" ".join(text.split())[:_STATUS_CHARACTERS_MAX])

    def alive(self) -> None:
        """Report that this process works. Calls may come at any rate; reports go out only as often as needed."""
        if self._watchdog_s and (now := self._clock()) >= self._alive_at:
            # The factor 0.9 is a margin: calls at exactly this interval would otherwise be skipped every other time.
            self._alive_at = now + 0.9 * self._watchdog_s / 4
            self._send(WATCHDOG="1")
        elif self._unsent:
            self._send()

    def stopping(self) -> None:
        """Report that this process is ending."""
        self._send(STOPPING="1")

    def _send(self, **variables: str) -> None:
        if not self._address:
            return
        self._unsent |= variables
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            try:
                sender.connect(self._address)
                sender.send("\n".join(f"{name}={value}" for name, value in self._unsent.items()).encode())
            except OSError:
                # A listener that is gone is no reason to stop serving; the lifeline deals with it.
                return
        self._unsent.clear()


class NotifyListener:
    """The receiving end: one socket for one child process."""

    def __init__(self, path: Path) -> None:
        """``path``: short enough for a socket's name, in a folder that only this user can enter."""
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(path))

    def fileno(self) -> int:
        """The descriptor, readable when a datagram has arrived."""
        return self._socket.fileno()

    def drain(self) -> list[dict[str, str]]:
        """The variables of each datagram that has arrived."""
        received: list[dict[str, str]] = []
        while True:
            try:
                datagram = self._socket.recv(_DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                return received
            lines = datagram.decode(errors="replace").splitlines()
            received.append(dict(line.split("=", 1) for line in lines if "=" in line))

    def close(self) -> None:
        """Close the socket and remove its name."""
        self._socket.close()
        self.path.unlink(missing_ok=True)


def watch_lifeline(environ: MutableMapping[str, str], on_lost: Callable[[], None] | None = None) -> None:
    """End this process in order when its supervisor is gone, and kill it if it has not ended 20 s later.

    Does nothing if the environment names no lifeline. ``on_lost`` replaces the ending.
    """
    named = environ.pop(LIFELINE_FD, None)
    if named is None:
        return
    descriptor = int(named)
    os.set_inheritable(descriptor, False)
    threading.Thread(
        target=_wait_for_end, args=(descriptor, on_lost or _end_self), name="lifeline", daemon=True
    ).start()


def _wait_for_end(descriptor: int, on_lost: Callable[[], None]) -> None:
    while os.read(descriptor, 1):
        pass
    on_lost()


def _end_self() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(ORPHAN_GRACE_S)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
