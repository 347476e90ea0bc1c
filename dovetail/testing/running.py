"""A real node for tests: starts its processes in a folder on free ports, waits until they serve, and ends them.

No assertions, no fixtures.
"""

import contextlib
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from dovetail.client import DovetailClient
from dovetail.common.files import make_private_dir
from dovetail.common.keys import create_key, load_signer
from dovetail.node.notify import LIFELINE_FD, NOTIFY_SOCKET, NotifyListener
from processor_sdk.handler import TransactionHandler
from processor_sdk.testing.path import python_path

__all__ = ["NotRunning", "RunningValidator"]

START_S: Final = 120.0
"""The time limit for a node or a processor to serve; far longer than they take."""

_END_S: Final = 60.0
_TAIL_BYTES: Final = 8_192


class NotRunning(Exception):
    """A process ended or did not serve in time. The message holds the end of its log."""


class RunningValidator:
    """A node as ``dovetail up`` runs it: a validator, a REST API, and the settings and intkey processors."""

    def __init__(self, folder: Path) -> None:
        """Start in the empty or missing ``folder`` and wait until everything serves. Raises NotRunning."""
        make_private_dir(folder)
        self._logs = folder / "logs"
        make_private_dir(self._logs)
        self._node_logs = folder / "data" / "logs"
        self._number = 0
        self._undo = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            # A socket's path must be short, and a test's own folder may have a long one.
            self._sockets = Path(tempfile.mkdtemp(prefix="dovetail-", dir="/tmp"))
            undo.callback(shutil.rmtree, self._sockets)
            validator_port, rest_port = ReservedPort(), ReservedPort()
            undo.callback(validator_port.close)
            undo.callback(rest_port.close)
            self.validator: str = f"tcp://127.0.0.1:{validator_port.number}"
            """The validator's endpoint, for processors and clients of the socket protocol."""
            rest_bind = f"127.0.0.1:{rest_port.number}"
            self.url: str = f"http://{rest_bind}"
            """The URL of the REST API."""
            key_file = folder / "key.priv"
            create_key(key_file, overwrite=False)
            self.signer = load_signer(key_file)
            """The key that may change the ledger's settings; also for any other transaction."""
            self._environment = {
                name: value for name, value in os.environ.items() if not name.startswith("DOVETAIL_")
            } | {
                "DOVETAIL_HOME": str(folder / "home"),
                # Enough for tests, and faster to start than one process for each core.
                "DOVETAIL_VALIDATOR_VERIFIER_PROCESSES": "1",
                "PYTHONPATH": python_path(),
                # Keeps the current folder off the module search path of the node and its child processes.
                "PYTHONSAFEPATH": "1",
            }
            places = ("--data-dir", str(folder / "data"), "--validator", self.validator, "--rest", rest_bind)
            undo.enter_context(self._started("up", ["up", *places, "--key", str(key_file)]))
            self.client = undo.enter_context(DovetailClient(self.url))
            """A client of the REST API."""
            self._undo = undo.pop_all()

    def run(self, handler: str | type[TransactionHandler[Any]]) -> None:
        """Start a processor and wait until it is registered. It ends with the node. Raises NotRunning.

        ``handler``: MODULE:CLASS, or a class at the top of a module that this process can import by name.
        """
        named = handler if isinstance(handler, str) else f"{handler.__module__}:{handler.__qualname__}"
        self._undo.enter_context(
            self._started(named.rpartition(":")[2], ["processor", named, "--connect", self.validator])
        )

    def transcript(self) -> str:
        """The end of every process's log."""
        logs = [*sorted(self._node_logs.glob("*.log")), *sorted(self._logs.glob("*.log"))]
        return "\n".join(f"=== {log.stem}\n{_tail(log)}" for log in logs)

    def close(self) -> None:
        """End all processes, processors first."""
        self._undo.close()

    @contextlib.contextmanager
    def _started(self, name: str, words: Sequence[str]) -> Iterator[None]:
        self._number += 1
        log = self._logs / f"{name}-{self._number}.log"
        listener = NotifyListener(self._sockets / f"{self._number}.socket")
        # End of file on ``gone`` means that the process has ended; on the lifeline, that this process has.
        gone, gone_end = os.pipe()
        lifeline_end, lifeline = os.pipe()
        with contextlib.ExitStack() as undo:
            undo.callback(listener.close)
            undo.callback(os.close, gone)
            undo.callback(os.close, lifeline)
            try:
                with log.open("wb") as output:
                    process = subprocess.Popen(
                        [sys.executable, "-m", "dovetail", *words],
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        start_new_session=True,
                        pass_fds=(gone_end, lifeline_end),
                        env=self._environment | {NOTIFY_SOCKET: str(listener.path), LIFELINE_FD: str(lifeline_end)},
                    )
            finally:
                os.close(gone_end)
                os.close(lifeline_end)
            undo.callback(_end, process)
            while not any(said.get("READY") == "1" for said in listener.drain()):
                readable, _, _ = select.select([listener.fileno(), gone], [], [], START_S)
                if gone in readable or not readable:
                    what = "ended before it served" if readable else f"does not serve after {START_S:g} s"
                    raise NotRunning(f"dovetail {' '.join(words)} {what}:\n{self.transcript()}")
            listener.close()  # Later notifications would stay unread.
            yield


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(log: Path) -> str:
    with log.open("rb") as content:
        content.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return content.read().decode(errors="replace")


class ReservedPort:
    """A loopback port that the kernel chose, reserved until ``close``.

    A bound socket that never listens reserves the port: the kernel gives it to no other process, but a server can bind
    it explicitly, because both sockets allow the reuse of addresses. On systems other than Linux the port is not
    reserved; it is only likely to stay free.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]
        if sys.platform != "linux":
            self._socket.close()

    def close(self) -> None:
        self._socket.close()
