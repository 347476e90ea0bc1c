"""One benchmark from its options to its report: sign, measure the ceiling, start, prepare, send, verify, count.

The order of these steps lives here; each step lives in a module of its own.
"""

import asyncio
import hashlib
import os
import platform
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from dovetail.bench import figures
from dovetail.bench.figures import Machine, Report, Run
from dovetail.bench.load import Ceiling, Load, Post, Workers
from dovetail.bench.loop import WAIT_S
from dovetail.bench.node import Node, with_node
from dovetail.bench.processes import ProcessFigures, ProcessWatch, bytes_on_disk, filesystem_of
from dovetail.bench.sender import Sent, send
from dovetail.bench.steps import Steps
from dovetail.client import DovetailClient
from dovetail.errors import Refused
from ledger.limits import Limits

if TYPE_CHECKING:
    from rich.progress import Progress

_PREPARED_SHAPE: Final = 100
_PREPARED_PER_POST: Final = 10
_PREPARED_POSTS_AT_ONCE: Final = 50
"""Signed and sent piece by piece: a million names must not all lie in memory."""

_PENDING_PREPARED: Final = 10_000
_STATUS_IDS: Final = Limits().status_ids_max
_BLOCKS_A_PAGE: Final = 20


@dataclass(frozen=True)
class Options:
    """What ``dovetail bench`` is asked for; its help says what each means."""

    transactions: int
    shape: int
    per_post: int
    names: int
    pending: int
    in_flight: int
    processors: int
    repeat: int
    seed: int
    ceiling_s: float
    url: str | None
    folder: Path | None
    profiles: dict[str, Path]
    """Where cProfile of a part goes, by the part's name."""


class _Measured(NamedTuple):
    seconds: float
    latencies_s: list[float]
    refusals: int
    blocks: figures.Blocks
    disk_bytes: int | None
    processes: tuple[ProcessFigures, ...]
    others_cpu_s: float | None


async def bench(options: Options, progress: "Progress") -> Report:
    """Run it. Raises Refused, and Interrupted when a signal ended the benchmark's own node."""
    with Workers() as workers:
        benchmark = _Benchmark(options, progress, workers)
        runs = [await benchmark.run(number) for number in range(1, options.repeat + 1)]
    return figures.report(machine_for(options.url, options.folder), asked_for(asdict(options)), runs)


def asked_for(options: dict[str, object]) -> dict[str, object]:
    """Options as the report shows them: those that were given, paths as text."""
    given = {name: value for name, value in options.items() if value is not None and value != {}}
    return {
        name: {part: str(file) for part, file in value.items()}
        if isinstance(value, dict)
        else str(value)
        if isinstance(value, Path)
        else value
        for name, value in given.items()
    }


def machine_for(url: str | None, folder: Path | None) -> Machine:
    """This machine, with a node's data in ``folder``, or a node of somebody else's at ``url``."""
    return Machine(
        os.cpu_count() or 1,
        platform.python_version(),
        f"{platform.system()} {platform.machine()}",
        None if url else filesystem_of(folder or Path(tempfile.gettempdir())),
    )


class _Benchmark:
    def __init__(self, options: Options, progress: "Progress", workers: Workers) -> None:
        self._options = options
        self._step = Steps(progress).step
        self._workers = workers
        self._load = Load(
            seed=options.seed,
            mark=hashlib.sha256(str(options.seed).encode()).hexdigest()[:8],
            verb="inc",
            names=options.names,
            transactions=options.transactions,
            shape=options.shape,
            per_post=options.per_post,
        )
        self._posts: list[Post] = []

    async def run(self, number: int) -> Run:
        of = f" {number}/{self._options.repeat}" if self._options.repeat > 1 else ""
        if self._options.url:
            # A ledger remembers: the names and the transactions of an earlier run would not be new to it.
            self._load = replace(self._load, mark=secrets.token_hex(4))
            self._posts = []
        if not self._posts:
            async with self._step(f"sign{of}", self._load.transactions) as advance:
                self._posts = await self._workers.sign(self._load, advance)
            _check_bodies(self._posts)
        async with self._step(f"measure the ceiling{of}", None):
            ceiling = await self._workers.measure_ceiling(self._posts, self._options.ceiling_s)
        if self._options.url:
            measured = await self._measure(self._options.url, None, of)
        else:
            measured = await self._on_own_node(of)
        return self._figures(ceiling, measured)

    async def _on_own_node(self, of: str) -> _Measured:
        async with self._step(f"start a node{of}", None) as started:

            async def use(node: Node) -> _Measured:
                started(1)
                return await self._measure(node.url, node.store, of)

            options = self._options
            return await with_node(options.folder, processors=options.processors, profiles=options.profiles, use=use)

    async def _measure(self, url: str, store: Path | None, of: str) -> _Measured:
        await self._prepare(url, of)
        head = await asyncio.to_thread(_head_number, url)
        disk_before = bytes_on_disk(store) if store else 0
        watch = ProcessWatch(whole_node=store is not None)
        async with self._step(f"send{of}", self._load.transactions, watch.sample) as advance:
            sent = await self._send(url, self._posts, self._options.pending, advance)
        processes, machine_cpu_s = watch.figures(), watch.machine_cpu_s()
        # Of a node that was running already, "others" would be the node itself.
        others_cpu_s = max(0.0, machine_cpu_s - sum(process.cpu_s for process in processes)) if store else None
        async with self._step(f"verify{of}", None):
            seconds = await asyncio.to_thread(verify_committed, url, self._posts, sent)
            sizes = await asyncio.to_thread(_block_sizes, url, head)
        grown = bytes_on_disk(store) - disk_before if store else None
        return _Measured(
            seconds, sent.latencies_s, sent.refusals, figures.blocks(sizes), grown, processes, others_cpu_s
        )

    async def _prepare(self, url: str, of: str) -> None:
        """Give every name a value."""
        names = self._options.names
        load = replace(self._load, verb="set", transactions=names, shape=_PREPARED_SHAPE, per_post=_PREPARED_PER_POST)
        async with self._step(f"prepare names{of}", names) as advance:
            for first in range(0, load.posts, _PREPARED_POSTS_AT_ONCE):
                posts = await self._workers.sign(load, lambda _: None, first=first, count=_PREPARED_POSTS_AT_ONCE)
                sent = await self._send(url, posts, _PENDING_PREPARED, advance)
                await asyncio.to_thread(verify_committed, url, posts, sent)

    async def _send(self, url: str, posts: Sequence[Post], pending: int, advance: Callable[[int], None]) -> Sent:
        a_post = posts[0].transactions
        ahead = max(1, pending // a_post) if pending else len(posts)
        return await send(
            url,
            posts,
            in_flight=self._options.in_flight,
            ahead=ahead,
            on_committed=lambda committed: advance(committed * a_post),
        )

    def _figures(self, ceiling: Ceiling, measured: _Measured) -> Run:
        rate = self._load.transactions / measured.seconds
        return Run(
            transactions=self._load.transactions,
            seconds=measured.seconds,
            transactions_per_s=rate,
            ceiling=ceiling,
            ratio=rate / ceiling.transactions_per_s,
            latency=figures.latency(measured.latencies_s),
            blocks=measured.blocks,
            refusals=measured.refusals,
            disk_bytes=measured.disk_bytes,
            processes=measured.processes,
            others_cpu_s=measured.others_cpu_s,
        )


def _check_bodies(posts: Sequence[Post]) -> None:
    largest = max(len(post.body) for post in posts)
    most = Limits().body_bytes_max
    if largest > most:
        raise Refused(f"a POST would have {largest} bytes, more than the {most} that are allowed; lower --per-post")


def verify_committed(url: str, posts: Sequence[Post], sent: Sent) -> float:
    """Ask for every batch; the seconds of ``sent``, or more where one was found to commit later. Raises Refused."""
    ids = [batch_id for post in posts for batch_id in post.batch_ids]
    seconds = sent.seconds
    with DovetailClient(url) as client:
        for start in range(0, len(ids), _STATUS_IDS):
            asked = ids[start : start + _STATUS_IDS]
            statuses = client.batch_status(asked)
            late = [batch_id for batch_id in asked if statuses[batch_id].status == "PENDING"]
            if late:
                statuses |= client.batch_status(late, wait_s=WAIT_S)
                seconds = time.perf_counter() - sent.started
            failed = [statuses[batch_id] for batch_id in asked if statuses[batch_id].status != "COMMITTED"]
            if failed:
                raise Refused(
                    f"{len(failed)} batches did not commit; {failed[0].id} is {failed[0].status}: {failed[0].why}"
                )
    return seconds


def _head_number(url: str) -> int:
    with DovetailClient(url) as client:
        return int(next(client.items("blocks", count=1))["header"]["block_num"])


def _block_sizes(url: str, head: int) -> list[int]:
    """Transactions in each block above ``head``."""
    sizes = []
    with DovetailClient(url) as client:
        for block in client.items("blocks", count=_BLOCKS_A_PAGE):
            if int(block["header"]["block_num"]) <= head:
                break
            sizes.append(sum(len(batch["transactions"]) for batch in block["batches"]))
    return sizes
