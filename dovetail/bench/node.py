"""A node of the benchmark's own: fresh data, free ports, the same processes that ``dovetail up`` starts.

The supervisor starts, watches and ends the processes; ``process_costs`` counts what they cost.
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
from dovetail.node.parts import node_parts
from dovetail.node.signals import handle_ending_signals
from dovetail.node.supervisor import Events, ends_within_s, supervise

_LOOPBACK: Final = "127.0.0.1"

T = TypeVar("T")


class Node(NamedTuple):
    """The URL of a node's REST API, the folder of its store, and its key file."""

    url: str
    store: Path
    key_file: Path


class Interrupted(Exception):
    """A signal ended the benchmark."""

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
    """Start a node on fresh data, run ``use`` when all its parts serve, end the node and remove its data.

    ``within``: the folder in which the data's folder is made; None for the system's temporary folder. ``processors``:
    name and MODULE:HANDLER of each. ``profiles``: the file for cProfile of a part's main
    process, by the part's name. ``fill``: makes the store before the node starts; without it the node makes a genesis
    block. Raises Interrupted, and Refused, also when a part dies, because figures of a restarted node mean nothing. A
    refusal keeps the data and names their folder.
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
        # From here on a signal ends the work before the node, so that no request fails at a node that is ending.
        handle_ending_signals(on_signal, ends_within_s(parts))
        ready.set_result(None)

    def on_signal(number: signal.Signals) -> None:
        # A second signal changes nothing: the node ends within seconds, and its data are removed.
        if not signalled.done():
            note("stopping the node …")
            signalled.set_result(number)

    def on_report(line: str) -> None:
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
        processors=processors,
        under={name: ("-m", "cProfile", "-o", str(file)) for name, file in profiles.items()},
    )

    async def work() -> T:
        await ready
        return await use(node)

    supervising = asyncio.create_task(
        supervise(parts, folder / "logs", Events(lambda _: None, on_ready, on_report, lambda *_: None))
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
        # The signal came while the node was ending.
        raise Interrupted(signalled.result())
    return result


def _free_ports(count: int) -> list[int]:
    """Different ports that nobody listens on."""
    held = [socket.create_server((_LOOPBACK, 0)) for _ in range(count)]
    try:
        return [int(listener.getsockname()[1]) for listener in held]
    finally:
        for listener in held:
            listener.close()
