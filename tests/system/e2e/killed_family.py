"""A family whose applies report to a test's port that they have begun, and wait until it lets them continue.

This module holds the handler and the listener at the port, which kills processes. Each transaction adds one to a leaf
that all share, and extends a chain of hashes at the leaf of its line. So a repeated, missing or reordered transaction
changes the result.
"""

import json
import os
import signal
import socket
import threading
from contextlib import closing, suppress
from hashlib import sha512
from random import Random
from typing import Any, ClassVar

from processor_sdk import Context, TransactionHandler

FAMILY = "e2e_killed"
HANDLER = "tests.system.e2e.killed_family:KilledHandler"
NAMESPACE = sha512(FAMILY.encode()).hexdigest()[:6]
TOTAL = NAMESPACE + "0" * 64
_GO_ON = b"g"
_PID_BYTES = 4
_DEADLINE_S = 60.0


def line(number: int) -> str:
    """The address of a line's chain of hashes."""
    return NAMESPACE + sha512(b"line %d" % number).hexdigest()[:64]


def payload(port: int, number: int) -> bytes:
    """The payload of a transaction in a line; ``port``: where its applies report."""
    return json.dumps([port, number]).encode()


class KilledHandler(TransactionHandler[Any]):
    """Reports after it has read and written, then writes again."""

    family_name: ClassVar[str] = FAMILY
    family_version: ClassVar[str] = "1.0"
    namespaces: ClassVar[tuple[str, ...]] = (NAMESPACE,)

    def apply(self, transaction: Any, context: Context) -> None:
        port, number = json.loads(transaction.payload)
        total = int(context.get(TOTAL) or b"0")
        context.set(TOTAL, b"%d" % (total + 1))
        with socket.create_connection(("127.0.0.1", port), _DEADLINE_S) as killer:
            killer.sendall(os.getpid().to_bytes(_PID_BYTES, "big"))
            killer.recv(1)
        chain = context.get(line(number)) or b""
        context.set(line(number), sha512(chain + transaction.id.encode()).digest())


class Killer:
    """Listens on ``port``. Kills the process whose apply has reported or lets it continue, as the seed decides."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._left = 0
        self._changed = threading.Condition()
        self.killed: list[int] = []
        self.let_go = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def kill(self, times: int) -> None:
        """Kill ``times`` processes from now on."""
        with self._changed:
            self._left = times

    def wait_until_done(self, timeout_s: float) -> None:
        """Wait until all kills are done."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._left == 0, timeout_s):
                raise TimeoutError(f"{self._left} kills are left after {timeout_s:g} s")

    def close(self) -> None:
        # A connection wakes the thread from its accept.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        while True:
            try:
                reported, _ = self._listener.accept()
            except OSError:
                return
            with closing(reported):
                self._meet(reported)

    def _meet(self, reported: socket.socket) -> None:
        reported.settimeout(_DEADLINE_S)
        pid = int.from_bytes(reported.recv(_PID_BYTES, socket.MSG_WAITALL), "big")
        if self._left and self._random.random() < 0.5:
            os.kill(pid, signal.SIGKILL)
            # The connection closes when the process ends. Until then, the process was in the middle of this apply.
            with suppress(ConnectionResetError):
                assert reported.recv(1) == b""
            with self._changed:
                self.killed.append(pid)
                self._left -= 1
                self._changed.notify_all()
        else:
            self.let_go += 1
            with suppress(BrokenPipeError):
                reported.sendall(_GO_ON)
