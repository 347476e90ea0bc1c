"""A node of the benchmark's own: fresh data, free ports, the same processes that ``dovetail up`` starts.

Starting, watching and ending them is the supervisor's business; what they cost is ``dovetail.bench.process_costs``'.
"""

import asyncio
import shutil
import signal
import socket
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from dovetail.common.errors import Refused
from dovetail.common.home import node_key_file
from dovetail.common.keys import ensure_key
from dovetail.common.output import note
from dovetail.node.genesis import STORE_NAME, prepare
from dovetail.node.parts import SETTINGS, node_parts
from dovetail.node.signals import handle_ending_signals
from dovetail.node.supervisor import Events, supervise

_LOOPBACK: Final = "127.0.0.1"

T = TypeVar("T")


class Node(NamedTuple):
    """Where a node is reached, and where its ledger and its key lie."""

    url: str
    store: Path
    key_file: Path


class Interrupted(Exception):
    """A signal ended the node while it was in use."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number


async def with_node(
    within: Path | None,
    *,
    processors: Sequence[tuple[str, str]],
    profiles: Mapping[str, Path],
    use: Callable[[Node], Awaitable[T]],
    fill: Callable[[Node], Awaitable[None]] | None = None,
) -> T:
    """Start a node on fresh data, run ``use`` once everything serves, end it and remove its data.

    ``within``: where the data's folder is made; None for the system's temporary folder. ``processors``: name and
    MODULE:HANDLER of each but that of settings. ``profiles``: where cProfile of a part's main process goes, by the
    part's name. ``fill``: makes the store of a node that has a key and is not started yet; without one it begins with
    a genesis. Raises Refused, also when a part dies, since figures of a node that was started again mean nothing; and
    Interrupted. What was refused leaves the data, and says where.
    """
    folder = Path(tempfile.mkdtemp(prefix="dovetail-bench-", dir=within))
    try:
        result = await _with_node_in(folder / "node", processors, profiles, use, fill)
    except Refused as error:
        raise Refused(f"{error}; the node's data and logs are kept in {folder}") from None
    except (Interrupted, asyncio.CancelledError):
        shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)
    return result


async def _with_node_in(
    folder: Path,
    processors: Sequence[tuple[str, str]],
    profiles: Mapping[str, Path],
    use: Callable[[Node], Awaitable[T]],
    fill: Callable[[Node], Awaitable[None]] | None,
) -> T:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    broken: asyncio.Future[str] = loop.create_future()
    signalled: asyncio.Future[signal.Signals] = loop.create_future()

    def on_ready() -> None:
        # From here on a signal ends the work before the node, so that the work does not see a node that is ending.
        handle_ending_signals(on_signal)
        ready.set_result(None)

    def on_signal(number: signal.Signals) -> None:
        # A second one changes nothing: the node ends within seconds, and its data goes behind it.
        if not signalled.done():
            note("stopping the node …")
            signalled.set_result(number)

    def on_told(line: str) -> None:
        if not ready.done():
            ready.set_exception(Refused(line))
        elif not broken.done():
            broken.set_result(line)

    validator_port, rest_port = _free_ports(2)
    node = Node(f"http://{_LOOPBACK}:{rest_port}", folder / STORE_NAME, node_key_file(folder))
    if fill is not None:
        ensure_key(node.key_file)
        await fill(node)
    prepare(folder, node.key_file, folder / "keys" / "user.priv", make_user_key=True)
    parts = node_parts(
        data_dir=folder,
        key_file=node.key_file,
        validator_bind=f"tcp://{_LOOPBACK}:{validator_port}",
        rest_bind=f"{_LOOPBACK}:{rest_port}",
        processors=[("settings", SETTINGS), *processors],
        under={name: ("-m", "cProfile", "-o", str(file)) for name, file in profiles.items()},
    )

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
        if not working.done():
            raise Interrupted(supervising.result())
        result = working.result()
    finally:
        working.cancel()
        supervising.cancel()
        await asyncio.gather(working, supervising, return_exceptions=True)
    if signalled.done():
        # It came while the node was ending: nothing is to follow.
        raise Interrupted(signalled.result())
    return result


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on. All are held while they are looked for, so that they differ."""
    held = [socket.create_server((_LOOPBACK, 0)) for _ in range(count)]
    try:
        return [int(listener.getsockname()[1]) for listener in held]
    finally:
        for listener in held:
            listener.close()
