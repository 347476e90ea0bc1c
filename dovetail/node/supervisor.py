"""Keeps the processes of a node running: starts them together, restarts those that die, ends all in order.

The supervisor knows nothing of ledgers. Its parts are commands that report as in ``dovetail.node.notify`` and end on
SIGTERM.
"""

import asyncio
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from dovetail.common.errors import Refused
from dovetail.common.files import make_private_dir
from dovetail.common.output import printable
from dovetail.node.child import Child
from dovetail.node.log_files import RotatingFile
from dovetail.node.signals import handle_ending_signals
from dovetail.streams import Outlet

BACK_OFF_FIRST_S: Final = 0.5
BACK_OFF_MAX_S: Final = 5.0
SERVED_S: Final = 2.0
"""After so much service, the pause before a restart is the first, short one again."""

STOP_S: Final = 15.0
"""How long the parts that end together may take before they are killed."""

_MARGIN_S: Final = 5.0
"""How much longer than all parts the supervisor may take to end."""

_REFUSALS: Final = (1, 2)
_PROGRAM: Final = "dovetail: "
"""The prefix of a part's refusal, which the supervisor removes from the line that it passes on."""

_SOCKET_PATH_BYTES_MAX: Final = 90


class Part(NamedTuple):
    """One process to keep running. Parts with a lower ``ends`` end earlier; parts with equal ``ends`` end together."""

    name: str
    command: Sequence[str]
    ends: int


class Events(NamedTuple):
    """Callbacks for the supervisor's events, called in the event loop's thread."""

    waiting: Callable[[Mapping[str, str]], None]
    """Called with the parts that do not serve yet, and each one's status: what it waits for, or empty."""

    ready: Callable[[], None]
    """Called once, when every part serves."""

    notice: Callable[[str], None]
    """Called with a line for people: a restart, a kill, a log that cannot be written."""

    output: Callable[[str, bytes], None]
    """Called with a part's name and bytes of its output."""


def back_off(failures: int) -> float:
    """Seconds before the next start: 0.5, doubled up to 5 while the part ends before it has served for ``SERVED_S``."""
    return float(min(BACK_OFF_FIRST_S * (1 << min(failures - 1, 16)), BACK_OFF_MAX_S))


def ends_within_s(parts: Sequence[Part]) -> float:
    """How long all parts and their supervisor take to end after a signal."""
    return STOP_S * len({part.ends for part in parts}) + _MARGIN_S


async def supervise(parts: Sequence[Part], log_dir: Path, events: Events) -> signal.Signals:
    """Run ``parts`` until an ending signal, which is returned when all have ended. A second signal kills them.

    A part that exits with 1 or 2 before it ever served has refused its configuration: the others are ended, and Refused
    is raised with the part's last line. A part that ends in another way, or later, is started again. Logs go to
    ``log_dir``/NAME.log.
    """
    make_private_dir(log_dir)
    with tempfile.TemporaryDirectory(prefix="dovetail-", dir=_socket_dir()) as socket_dir:
        supervisor = _Supervisor(parts, log_dir, Path(socket_dir), events)
        restore = handle_ending_signals(supervisor.on_signal, ends_within_s(parts))
        try:
            return await supervisor.run()
        finally:
            restore()


def _socket_dir() -> str | None:
    """The parent folder of sockets: None for the system's default, /tmp if the default is too long for a socket."""
    return None if len(tempfile.gettempdir().encode()) <= _SOCKET_PATH_BYTES_MAX - 40 else "/tmp"


class _Supervisor:
    def __init__(self, parts: Sequence[Part], log_dir: Path, socket_dir: Path, events: Events) -> None:
        self._parts = parts
        self._socket_dir = socket_dir
        self._log_dir = log_dir
        self._events = events
        self._children: dict[str, Child] = {}
        self._not_ready = {part.name: "" for part in parts}
        self._served: set[str] = set()
        self._serves_since: dict[str, float] = {}
        self._all_served = False
        self._signal: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()
        self._ending = asyncio.Event()
        self._threads = ThreadPoolExecutor(max_workers=len(parts), thread_name_prefix="wait")

    async def run(self) -> signal.Signals:
        self._events.waiting(self._not_ready)
        keepers = {part.name: asyncio.create_task(self._keep(part)) for part in self._parts}
        try:
            first: list[asyncio.Future[Any]] = [self._signal, *keepers.values()]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._ending.set()
            await self._end_in_order(keepers)
            self._threads.shutdown()
        for keeper in keepers.values():
            keeper.result()
        return self._signal.result()

    def on_signal(self, number: signal.Signals) -> None:
        if not self._signal.done():
            self._signal.set_result(number)
        else:
            for child in self._children.values():
                child.kill()

    async def _keep(self, part: Part) -> None:
        """Run the part, and run it again when it ends, until all end. Raises Refused if it never serves."""
        failures = 0
        with closing(_Log(self._log_dir / f"{part.name}.log", self._events)) as log:
            while not self._ending.is_set():
                exit_code, last_line = await self._run_once(part, log)
                if self._ending.is_set():
                    return
                if exit_code in _REFUSALS and part.name not in self._served:
                    reason = last_line.removeprefix(_PROGRAM) or f"it ended with exit code {exit_code} and no output"
                    raise Refused(f"{part.name}: {printable(reason)}")
                now = time.monotonic()
                served_s = now - self._serves_since.pop(part.name, now)
                failures = 1 if served_s >= SERVED_S else failures + 1
                pause_s = back_off(failures)
                loop = f" ({failures} times in a row within {SERVED_S:g} s of service)" if failures > 1 else ""
                self._events.notice(
                    f"{part.name} {_how_it_ended(exit_code)}{loop}; starting it again in {pause_s:g} s"
                    f" (log: {log.path})"
                )
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), pause_s)

    async def _run_once(self, part: Part, log: "_Log") -> tuple[int, str]:
        def on_output(content: bytes) -> None:
            log.write(content)
            self._events.output(part.name, content)

        try:
            child = Child(
                part.command,
                socket_path=self._socket_dir / f"{part.name}.socket",
                on_notify=lambda variables: self._on_notify(part.name, variables),
                on_output=on_output,
            )
        except OSError as error:
            raise Refused(f"cannot start {part.name}: {error}") from None
        self._children[part.name] = child
        try:
            exit_code = await asyncio.get_running_loop().run_in_executor(self._threads, child.wait)
        finally:
            child.finish()
            del self._children[part.name]
        self._not_ready[part.name] = "starting again"
        return exit_code, child.last_line

    def _on_notify(self, name: str, variables: dict[str, str]) -> None:
        if self._ending.is_set():
            return
        if variables.get("READY") == "1" and name in self._not_ready:
            del self._not_ready[name]
            if name in self._served:
                self._events.notice(f"{name} serves again")
            self._served.add(name)
            self._serves_since[name] = time.monotonic()
        elif name in self._not_ready and "STATUS" in variables:
            self._not_ready[name] = variables["STATUS"]
        else:
            return
        if self._all_served:
            return
        if self._not_ready:
            self._events.waiting(self._not_ready)
        else:
            self._all_served = True
            self._events.ready()

    async def _end_in_order(self, keepers: Mapping[str, asyncio.Task[None]]) -> None:
        for rank in sorted({part.ends for part in self._parts}):
            names = [part.name for part in self._parts if part.ends == rank]
            for name in names:
                if name in self._children:
                    self._children[name].terminate()
            ending = [keepers[name] for name in names]
            _, late = await asyncio.wait(ending, timeout=STOP_S)
            if late:
                for name in names:
                    if name in self._children:
                        self._events.notice(f"{name} did not end within {STOP_S:g} s: killed")
                        self._children[name].kill()
                await asyncio.wait(ending)


class _Log:
    """A part's log file, which nobody waits for. A failure to write is reported once and ends nothing."""

    def __init__(self, path: Path, events: Events) -> None:
        self.path = path
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._failed = False
        try:
            self._file = RotatingFile(path)
        except OSError as error:
            raise Refused(f"cannot write the log {path}: {error.strerror}") from None
        self._outlet = Outlet(self._put)

    def write(self, content: bytes) -> None:
        self._outlet.write(content)

    def close(self) -> None:
        if self._outlet.close():
            self._file.close()

    def _put(self, content: memoryview) -> int:
        try:
            written = self._file.write(content)
        except OSError as error:
            if not self._failed:
                self._failed = True
                with suppress(RuntimeError):  # The loop has ended.
                    said = f"cannot write the log {self.path}: {error.strerror}"
                    self._loop.call_soon_threadsafe(self._events.notice, said)
            raise
        self._failed = False
        return written


def _how_it_ended(exit_code: int) -> str:
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"was ended by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was ended by signal {-exit_code}"
