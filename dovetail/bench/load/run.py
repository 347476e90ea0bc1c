"""One benchmark from its options to its report: sign, measure the ceiling, start, prepare, send, verify, count.

The order of these steps lives here; each step lives in a module of its own.
"""

import asyncio
import hashlib
import os
import platform
import secrets
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from dovetail.bench.chain import block_sizes, head_number, verify_committed
from dovetail.bench.families import intkey_processors
from dovetail.bench.load import figures
from dovetail.bench.load.figures import Machine, Report, Run
from dovetail.bench.load.idle_baseline import Baseline, measure_baseline
from dovetail.bench.load.parked import park, sign_parked
from dovetail.bench.load.plot import draw
from dovetail.bench.load.post_loop import Sent, send
from dovetail.bench.load.queue_watch import QueueWatch
from dovetail.bench.node import Node, with_node
from dovetail.bench.preload import preload
from dovetail.bench.process_costs import ProcessFigures, ProcessWatch, bytes_on_disk, filesystem_of
from dovetail.bench.progress import Steps
from dovetail.bench.signed_load import Ceiling, Load, Post, measure_ceiling, sign
from dovetail.common.errors import Refused
from dovetail.common.workers import Workers
from dovetail.ledger.limits import Limits

if TYPE_CHECKING:
    from rich.progress import Progress

_PREPARED_SHAPE: Final = 100
_PREPARED_PER_POST: Final = 10
_PREPARED_POSTS_AT_ONCE: Final = 50
"""Signed and sent piece by piece: a million names must not all lie in memory."""

_PENDING_PREPARED: Final = 10_000
_LOAD_STEP: Final = 4


@dataclass(frozen=True)
class Options:
    """What ``dovetail bench`` is asked for; its help says what each means."""

    transactions: int
    shape: int
    per_post: int
    names: int
    conflict: int
    families: int
    leaves: int
    parked: int
    legacy: bool
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

    plot: Path | None

    def loads(self) -> list[int]:
        """``pending`` of each point of the plot, rising fourfold from one POST, or of the only one."""
        if self.plot is None:
            return [self.pending]
        a_post = self.shape * self.per_post
        posts = self.pending // a_post
        falling = [self.pending]
        while posts := posts // _LOAD_STEP:
            falling.append(posts * a_post)
        if falling[-1] > a_post:
            falling.append(a_post)
        return falling[::-1]


class _Measured(NamedTuple):
    seconds: float
    latencies_s: list[float]
    refusals: int
    queued_batches_max: int
    blocks: figures.Blocks
    disk_bytes: int | None
    processes: tuple[ProcessFigures, ...]
    others_cpu_s: float | None


async def bench(options: Options, progress: "Progress") -> Report:
    """Run it. Raises Refused, and Interrupted when a signal ended the benchmark's own node."""
    with Workers() as workers:
        benchmark = _Benchmark(options, progress, workers)
        loads = {
            pending: [await benchmark.run(pending, number) for number in range(1, options.repeat + 1)]
            for pending in options.loads()
        }
    curve = [figures.point(pending, runs) for pending, runs in loads.items()] if options.plot else []
    report = figures.report(
        machine_for(options.url, options.folder), asked_for(asdict(options)), loads[options.pending], curve
    )
    if options.plot:
        draw(report, options.plot)
    return report


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
            families=options.families,
            conflict_percent=options.conflict,
        )
        self._posts: list[Post] = []
        self._parked: list[Post] = []

    async def run(self, pending: int, number: int) -> Run:
        of = f" {number}/{self._options.repeat}" if self._options.repeat > 1 else ""
        if self._options.plot:
            of += f", {pending} pending"
        if self._options.url:
            # A ledger remembers: the names and the transactions of an earlier run would not be new to it.
            self._load = replace(self._load, mark=secrets.token_hex(4))
            self._posts = []
        if not self._posts:
            async with self._step(f"sign{of}", self._load.transactions) as advance:
                self._posts = await sign(self._workers, self._load, advance)
            _check_bodies(self._posts)
            await self._sign_parked(of)
        async with self._step(f"measure the ceiling{of}", None):
            ceiling = await measure_ceiling(self._workers, self._posts, self._options.ceiling_s)
        if self._options.url:
            measured, baseline = await self._measure(self._options.url, None, pending, of), None
        else:
            baseline = await self._baseline(of)
            measured = await self._on_own_node(pending, of)
        return self._figures(ceiling, baseline, measured)

    async def _sign_parked(self, of: str) -> None:
        parked = self._options.parked
        if parked:
            pending = self._options.pending or self._load.transactions
            beside = max(min(pending, self._load.transactions), self._posts[0].transactions)
            async with self._step(f"sign what is parked{of}", parked) as advance:
                self._parked = await sign_parked(self._workers, self._load, parked, beside, advance)

    async def _baseline(self, of: str) -> Baseline | None:
        options = self._options
        if not options.pending == options.per_post == 1:
            return None
        async with self._step(f"measure the idle baseline{of}", None):
            return await measure_baseline(self._workers, options.folder, options.ceiling_s)

    async def _on_own_node(self, pending: int, of: str) -> _Measured:
        options = self._options

        async def fill(node: Node) -> None:
            async with self._step(f"write leaves{of}", options.leaves) as advance:
                await preload(self._workers, node.store, node.key_file, self._load.mark, options.leaves, advance)

        async with self._step(f"start a node{of}", None) as started:

            async def use(node: Node) -> _Measured:
                started(1)
                return await self._measure(node.url, node.store, pending, of)

            return await with_node(
                options.folder,
                processors=intkey_processors(options.families, options.processors, legacy=options.legacy),
                profiles=options.profiles,
                use=use,
                fill=fill if options.leaves else None,
            )

    async def _measure(self, url: str, store: Path | None, pending: int, of: str) -> _Measured:
        await self._prepare(url, of)
        if self._parked:
            async with self._step(f"park{of}", self._options.parked) as advance:
                await park(url, self._parked, advance)
        head = await asyncio.to_thread(head_number, url)
        disk_before = bytes_on_disk(store) if store else 0

        def sample() -> None:
            watch.sample()
            queue.sample()

        async with QueueWatch.over(url) as queue:
            watch = ProcessWatch(whole_node=store is not None)
            async with self._step(f"send{of}", self._load.transactions, sample) as advance:
                sent = await self._send(url, self._posts, pending, advance)
            processes, machine_cpu_s = watch.figures(), watch.machine_cpu_s()
        # Of a node that was running already, "others" would be the node itself.
        others_cpu_s = max(0.0, machine_cpu_s - sum(process.cpu_s for process in processes)) if store else None
        async with self._step(f"verify{of}", None):
            seconds = await asyncio.to_thread(verify_committed, url, self._posts, sent)
            sizes = await asyncio.to_thread(block_sizes, url, head)
        grown = bytes_on_disk(store) - disk_before if store else None
        return _Measured(
            seconds=seconds,
            latencies_s=sent.latencies_s,
            refusals=sent.refusals,
            queued_batches_max=queue.batches_max,
            blocks=figures.blocks(sizes),
            disk_bytes=grown,
            processes=processes,
            others_cpu_s=others_cpu_s,
        )

    async def _prepare(self, url: str, of: str) -> None:
        """Give every name a value that has none."""
        written = self._options.leaves
        names = max(0, self._load.names - written)
        load = replace(
            self._load,
            verb="set",
            first_name=written,
            transactions=names,
            shape=_PREPARED_SHAPE,
            per_post=_PREPARED_PER_POST,
        )
        async with self._step(f"prepare names{of}", names) as advance:
            for first in range(0, load.posts, _PREPARED_POSTS_AT_ONCE):
                posts = await sign(self._workers, load, lambda _: None, first=first, count=_PREPARED_POSTS_AT_ONCE)
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

    def _figures(self, ceiling: Ceiling, baseline: Baseline | None, measured: _Measured) -> Run:
        rate = self._load.transactions / measured.seconds
        latency = figures.latency(measured.latencies_s)
        return Run(
            transactions=self._load.transactions,
            seconds=measured.seconds,
            transactions_per_s=rate,
            ceiling=ceiling,
            ratio=rate / ceiling.transactions_per_s,
            latency=latency,
            blocks=measured.blocks,
            refusals=measured.refusals,
            queued_batches_max=measured.queued_batches_max,
            disk_bytes=measured.disk_bytes,
            processes=measured.processes,
            others_cpu_s=measured.others_cpu_s,
            baseline=baseline,
            p50_by_baseline=latency.p50_ms / baseline.sum_ms if baseline else None,
        )


def _check_bodies(posts: Sequence[Post]) -> None:
    largest = max(len(post.body) for post in posts)
    most = Limits().body_bytes_max
    if largest > most:
        raise Refused(f"a POST would have {largest} bytes, more than the {most} that are allowed; lower --per-post")
