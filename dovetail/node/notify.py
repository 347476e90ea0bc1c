"""Telling whoever started this process that it serves, and noticing when that one is gone.

Readiness is systemd's notify protocol (NOTIFY_SOCKET, a Unix datagram socket), so that the same words serve systemd
and our own supervisor. The lifeline is a pipe whose writing end only the supervisor holds: its end of file means that
the supervisor is gone, however it went. No processes are started here.
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
"""How often what could not be said is said again."""

ORPHAN_GRACE_S: Final = 20.0
"""Longer than any part takes to end in order; a processor takes 15 s at most."""


class Notifier:
    """Says READY=1, STATUS=… and WATCHDOG=1 to a notify socket; says nothing when there is none.

    Never waits for the listener: what it has no room for now goes with what is said next.
    """

    def __init__(
        self, address: str | None, watchdog_s: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``address``: a path, or ``@name`` for Linux's abstract sockets; None for nobody.

        ``watchdog_s``: how long the listener puts up with silence, None for ever. ``clock``: seconds of a steady clock.
        """
        self._address = "\0" + address[1:] if address and address.startswith("@") else address
        self._watchdog_s = watchdog_s
        self.alive_s = min(AGAIN_S, watchdog_s / 4 if watchdog_s else AGAIN_S) if address else None
        """How often ``alive`` must be called at least; None where nobody listens."""
        self._clock = clock
        self._alive_at = 0.0
        self._unsaid: dict[str, str] = {}

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> "Notifier":
        """Takes NOTIFY_SOCKET and what belongs to it out of ``environ``: it does not mean what this process starts."""
        address, usec = environ.pop(NOTIFY_SOCKET, None), environ.pop(WATCHDOG_USEC, "")
        mine = environ.pop(WATCHDOG_PID, str(os.getpid())) == str(os.getpid())
        return cls(address, int(usec) / 1_000_000 if mine and usec.isascii() and usec.isdigit() else None)

    def ready(self) -> None:
        """This process serves."""
        self._say(READY="1", STATUS="ready")

    def status(self, text: str) -> None:
        """What this process is doing or waiting for, in one line."""
        self._say(STATUS=" ".join(text.split())[:_STATUS_CHARACTERS_MAX])

    def alive(self) -> None:
        """This process does its work. May be called as often as one likes: it is said no more often than it must be."""
        if self._watchdog_s and (now := self._clock()) >= self._alive_at:
            # A margin, so that calls at just this distance do not come out as every other one.
            self._alive_at = now + 0.9 * self._watchdog_s / 4
            self._say(WATCHDOG="1")
        elif self._unsaid:
            self._say()

    def stopping(self) -> None:
        """This process is ending in order."""
        self._say(STOPPING="1")

    def _say(self, **words: str) -> None:
        if not self._address:
            return
        self._unsaid |= words
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            try:
                sender.connect(self._address)
                sender.send("\n".join(f"{name}={value}" for name, value in self._unsaid.items()).encode())
            except OSError:
                # The listener may be gone; that is the lifeline's business, and no reason to stop serving.
                return
        self._unsaid.clear()


class NotifyListener:
    """The receiving side: one socket for one child."""

    def __init__(self, path: Path) -> None:
        """``path``: in a folder that only this user can enter, and short enough for a socket's name."""
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(path))

    def fileno(self) -> int:
        """Readable when something was said."""
        return self._socket.fileno()

    def drain(self) -> list[dict[str, str]]:
        """Every datagram that is waiting, each as its variables."""
        said: list[dict[str, str]] = []
        while True:
            try:
                datagram = self._socket.recv(_DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                return said
            lines = datagram.decode(errors="replace").splitlines()
            said.append(dict(line.split("=", 1) for line in lines if "=" in line))

    def close(self) -> None:
        """Frees the socket and its name."""
        self._socket.close()
        self.path.unlink(missing_ok=True)


def watch_lifeline(environ: MutableMapping[str, str], on_lost: Callable[[], None] | None = None) -> None:
    """End this process in order when its supervisor is gone; at once if it has not ended 20 s later.

    Does nothing when no supervisor gave a lifeline. ``on_lost`` replaces the ending.
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
