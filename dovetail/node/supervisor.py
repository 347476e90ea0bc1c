"""Keeping the node's processes running: start together, restart what dies, end all in order.

Knows nothing of ledgers: its parts are commands that follow the protocol of ``dovetail.node.notify`` and end on
SIGTERM.
"""

import asyncio
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

from dovetail.common.errors import Refused
from dovetail.common.files import make_private_dir
from dovetail.common.output import printable
from dovetail.node.child import Child
from dovetail.node.logs import RotatingFile
from dovetail.node.signals import ending_signals

BACK_OFF_FIRST_S: Final = 0.5
BACK_OFF_MAX_S: Final = 30.0
BACK_OFF_RESET_S: Final = 60.0
"""A process that ran this long before it died starts over with the first, short pause."""

STOP_S: Final = 15.0
"""How long each rank may take to end in order before it is killed."""

_REFUSALS: Final = (1, 2)
_PROGRAM: Final = "dovetail: "
"""How this program begins a refusal; not said twice when it is handed on."""

_SOCKET_PATH_BYTES_MAX: Final = 90


class Part(NamedTuple):
    """One process to keep running. Lower ``ends`` end earlier; equal ones together."""

    name: str
    command: Sequence[str]
    ends: int


class Events(NamedTuple):
    """What the supervisor tells, always from the event loop's thread."""

    waiting: Callable[[Mapping[str, str]], None]
    """Which parts do not serve yet, and what each says it waits for; empty until it says something."""

    ready: Callable[[], None]
    """Every part serves, for the first time."""

    told: Callable[[str], None]
    """One line for people: a restart, an ending by force, a log that cannot be written."""

    output: Callable[[str, bytes], None]
    """What a part wrote, as it came."""


def back_off(previous_s: float | None, ran_s: float) -> float:
    """Seconds to pause before the next start, doubling from 0.5 to 30 while a part keeps dying within a minute."""
    if previous_s is None or ran_s >= BACK_OFF_RESET_S:
        return BACK_OFF_FIRST_S
    return min(previous_s * 2, BACK_OFF_MAX_S)


async def supervise(parts: Sequence[Part], log_dir: Path, events: Events) -> signal.Signals:
    """Run ``parts`` until one of ``ending_signals``, which is returned once all have ended; a second one kills them.

    A part that exits with 1 or 2 before it ever served has refused: the others are ended and Refused is raised with its
    last line. One that dies in another way, or later, is started again. Logs go to ``log_dir``/NAME.log.
    """
    make_private_dir(log_dir)
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory(prefix="dovetail-", dir=_socket_dir()) as socket_dir:
        supervisor = _Supervisor(parts, log_dir, Path(socket_dir), events)
        handlers = {number: signal.getsignal(number) for number in ending_signals()}
        for number in handlers:
            loop.add_signal_handler(number, supervisor.on_signal, number)
        try:
            return await supervisor.run()
        finally:
            for number, handler in handlers.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)


def _socket_dir() -> str | None:
    """A socket's name has little room: leave the usual temporary folder when that is far down."""
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
        """Start the part again and again until all end. Raises Refused when it refuses to serve at all."""
        log = _Log(self._log_dir / f"{part.name}.log", self._events)
        pause_s: float | None = None
        try:
            while not self._ending.is_set():
                started = time.monotonic()
                exit_code, last_line = await self._run_once(part, log)
                if self._ending.is_set():
                    return
                if exit_code in _REFUSALS and part.name not in self._served:
                    reason = last_line.removeprefix(_PROGRAM) or f"it ended with exit code {exit_code}, saying nothing"
                    raise Refused(f"{part.name}: {printable(reason)}")
                pause_s = back_off(pause_s, time.monotonic() - started)
                self._events.told(
                    f"{part.name} {_how_it_ended(exit_code)}; starting it again in {pause_s:g} s (log: {log.path})"
                )
                await self._pause(pause_s)
        finally:
            log.close()

    async def _run_once(self, part: Part, log: "_Log") -> tuple[int, str]:
        def on_output(content: bytes) -> None:
            log.write(content)
            self._events.output(part.name, content)

        try:
            child = Child(
                part.command,
                socket_path=self._socket_dir / f"{part.name}.socket",
                on_said=lambda said: self._on_said(part.name, said),
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

    def _on_said(self, name: str, said: dict[str, str]) -> None:
        if self._ending.is_set():
            return
        if said.get("READY") == "1" and name in self._not_ready:
            del self._not_ready[name]
            if name in self._served:
                self._events.told(f"{name} serves again")
            self._served.add(name)
        elif name in self._not_ready and "STATUS" in said:
            self._not_ready[name] = said["STATUS"]
        else:
            return
        if self._all_served:
            return
        if self._not_ready:
            self._events.waiting(self._not_ready)
        else:
            self._all_served = True
            self._events.ready()

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._ending.wait(), seconds)
        except TimeoutError:
            return

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
                        self._events.told(f"{name} did not end within {STOP_S:g} s: killed")
                        self._children[name].kill()
                await asyncio.wait(ending)


class _Log:
    """A part's log file; a disk that takes no more is told once and ends nothing."""

    def __init__(self, path: Path, events: Events) -> None:
        self.path = path
        self._events = events
        self._failed = False
        try:
            self._file = RotatingFile(path)
        except OSError as error:
            raise Refused(f"cannot write the log {path}: {error.strerror}") from None

    def write(self, content: bytes) -> None:
        try:
            self._file.write(content)
        except OSError as error:
            if not self._failed:
                self._events.told(f"cannot write the log {self.path}: {error.strerror}")
            self._failed = True
        else:
            self._failed = False

    def close(self) -> None:
        self._file.close()


def _how_it_ended(exit_code: int) -> str:
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"was ended by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was ended by signal {-exit_code}"
