"""A node of the benchmark's own: fresh data, free ports, the same processes that ``dovetail up`` starts.

Starting, watching and ending them is the supervisor's business; what they cost is ``dovetail.bench.processes``'.
"""

import asyncio
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from dovetail.errors import Refused
from dovetail.genesis import STORE_NAME, prepare
from dovetail.home import node_key_file
from dovetail.supervisor import Events, Part, supervise

_INTKEY: Final = "families.intkey.handler:IntkeyHandler"
_SETTINGS: Final = "families.settings.handler:SettingsHandler"
_LOOPBACK: Final = "127.0.0.1"
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

T = TypeVar("T")


class Node(NamedTuple):
    """Where a started node is reached, and where its ledger lies."""

    url: str
    store: Path


class Interrupted(Exception):
    """A signal ended the node while it was in use."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number


async def with_node(folder: Path, *, processors: int, profile: Path | None, use: Callable[[Node], Awaitable[T]]) -> T:
    """Start a node with its data in ``folder`` (not there yet), run ``use`` once everything serves, and end it.

    ``processors``: how many intkey processes. ``profile``: where cProfile of the validator's main process goes. Raises
    Refused, also when a part dies, since figures of a node that was started again mean nothing; and Interrupted.
    """
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    broken: asyncio.Future[str] = loop.create_future()
    signalled: asyncio.Future[signal.Signals] = loop.create_future()

    def on_ready() -> None:
        # From here on a signal ends the work before the node, so that the work does not see a node that is ending.
        for number in _ENDING:
            loop.add_signal_handler(number, on_signal, number)
        ready.set_result(None)

    def on_signal(number: signal.Signals) -> None:
        signalled.set_result(number)
        for handled in _ENDING:
            loop.remove_signal_handler(handled)
            # A second one ends this process at once, and the lifeline ends the node.
            signal.signal(handled, signal.SIG_DFL)

    def on_told(line: str) -> None:
        if not ready.done():
            ready.set_exception(Refused(line))
        elif not broken.done():
            broken.set_result(line)

    validator_port, rest_port = _free_ports(2)
    node = Node(f"http://{_LOOPBACK}:{rest_port}", folder / STORE_NAME)
    prepare(folder, node_key_file(folder), folder / "keys" / "user.priv", make_user_key=True)
    parts = _parts(folder, validator_port, rest_port, processors, profile)

    async def work() -> T:
        await ready
        return await use(node)

    supervising = asyncio.create_task(
        supervise(parts, folder / "logs", Events(lambda _: None, on_ready, on_told, lambda *_: None))
    )
    working = asyncio.create_task(work())
    awaited: list[asyncio.Future[Any]] = [supervising, working, broken, signalled]
    try:
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if signalled.done():
            raise Interrupted(signalled.result())
        if broken.done():
            raise Refused(f"the node did not hold: {broken.result()}")
        if working.done():
            return working.result()
        raise Interrupted(supervising.result())
    finally:
        working.cancel()
        supervising.cancel()
        await asyncio.gather(working, supervising, return_exceptions=True)


def _parts(folder: Path, validator_port: int, rest_port: int, processors: int, profile: Path | None) -> Sequence[Part]:
    endpoint = f"tcp://{_LOOPBACK}:{validator_port}"

    def command(*words: str, under: Sequence[str] = ()) -> list[str]:
        return [sys.executable, *under, "-m", "dovetail", *words]

    key_file = str(node_key_file(folder))
    profiler = [] if profile is None else ["-m", "cProfile", "-o", str(profile)]
    validator = command(
        "validator", "--data-dir", str(folder), "--key-file", key_file, "--bind", endpoint, under=profiler
    )
    return [
        Part("validator", validator, ends=2),
        Part("rest-api", command("rest-api", "--bind", f"{_LOOPBACK}:{rest_port}", "--validator", endpoint), ends=1),
        Part("settings", command("processor", _SETTINGS, "--connect", endpoint), ends=0),
        *(
            Part(f"intkey-{number}", command("processor", _INTKEY, "--connect", endpoint), ends=0)
            for number in range(1, processors + 1)
        ),
    ]


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on. All are held while they are looked for, so that they differ."""
    held = [socket.create_server((_LOOPBACK, 0)) for _ in range(count)]
    try:
        return [int(listener.getsockname()[1]) for listener in held]
    finally:
        for listener in held:
            listener.close()
