"""``bench load`` from its options to its report. The order of the steps is here; each step has a module of its own."""

import asyncio
import hashlib
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Literal

from rich.progress import Progress

from dovetail.bench.chain import block_sizes, head_number, verify_committed
from dovetail.bench.families import intkey_processors
from dovetail.bench.load import figures
from dovetail.bench.load.ceiling import measure_ceiling, measure_verify_batch
from dovetail.bench.load.figures import Measured, Report, Run
from dovetail.bench.load.parked import park, sign_parked
from dovetail.bench.load.plot import draw
from dovetail.bench.load.post_loop import Sent, send
from dovetail.bench.load.preload import preload
from dovetail.bench.load.queue_watch import QueueWatch
from dovetail.bench.node import Node, with_node
from dovetail.bench.process_costs import ProcessWatch, bytes_on_disk
from dovetail.bench.progress import ProgressBars
from dovetail.bench.report import Machine, latency, shown_options
from dovetail.bench.signed_load import Load, Post, sign
from dovetail.common.errors import Refused
from dovetail.common.workers import Workers
from dovetail.ledger.limits import Limits

_PREPARED_SHAPE: Final = 100
_PREPARED_PER_POST: Final = 10
_PREPARED_POSTS_AT_ONCE: Final = 50
"""POSTs per piece. Pieces are signed and sent one by one, so that memory never holds a million names."""

_PENDING_PREPARED: Final = 10_000
_LOAD_STEP: Final = 4


@dataclass(frozen=True)
class LoadOptions:
    """The options of ``dovetail bench load``; its help says what each means."""

    transactions: int
    shape: int
    per_post: int
    names: int | Literal["new"]
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
    """The file for cProfile of a part, by the part's name."""

    plot: Path | None

    def loads(self) -> list[int]:
        """The ``pending`` of each run: one run without a plot; with a plot, fourfold growth from one POST."""
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


async def measure_load(options: LoadOptions, progress: Progress) -> Report:
    """Run the benchmark. Raises Refused, and Interrupted when a signal ended the benchmark's own node."""
    with Workers() as workers:
        benchmark = _Benchmark(options, progress, workers)
        loads = {
            pending: [await benchmark.run(pending, number) for number in range(1, options.repeat + 1)]
            for pending in options.loads()
        }
    curve = [figures.point(pending, runs) for pending, runs in loads.items()] if options.plot else []
    report = figures.report(
        Machine.here(options.url, options.folder), shown_options(asdict(options)), loads[options.pending], curve
    )
    if options.plot:
        draw(report, options.plot)
    return report


class _Benchmark:
    def __init__(self, options: LoadOptions, progress: Progress, workers: Workers) -> None:
        self._options = options
        self._step = ProgressBars(progress).step
        self._workers = workers
        creates = options.names == "new"
        # If names are new, each family still needs one existing name, for the transactions that conflict.
        names = options.names if isinstance(options.names, int) else options.families if options.conflict else 0
        self._load = Load(
            seed=options.seed,
            mark=hashlib.sha256(str(options.seed).encode()).hexdigest()[:8],
            kind="create" if creates else "draw",
            names=names,
            transactions=options.transactions,
            shape=options.shape,
            per_post=options.per_post,
            families=options.families,
            conflict_percent=options.conflict,
            first_name=max(names, options.leaves) if creates else 0,
        )
        self._posts: list[Post] = []
        self._parked: list[Post] = []

    async def run(self, pending: int, number: int) -> Run:
        of = f" {number}/{self._options.repeat}" if self._options.repeat > 1 else ""
        if self._options.plot:
            of += f", {pending} pending"
        if self._options.url:
            # The ledger already holds the names and transactions of an earlier run.
            self._load = replace(self._load, mark=secrets.token_hex(4))
            self._posts = []
        if not self._posts:
            async with self._step(f"sign{of}", self._load.transactions) as advance:
                self._posts = await sign(self._workers, self._load, advance)
            most = Limits().body_bytes_max
            if (largest := max(len(post.body) for post in self._posts)) > most:
                raise Refused(
                    f"a POST would have {largest} bytes, more than the {most} that are allowed; lower --per-post"
                )
            await self._sign_parked(of)
        if self._options.url:
            measured = await self._measure(self._options.url, None, pending, of)
        else:
            measured = await self._on_own_node(pending, of)
        return figures.run(measured, os.cpu_count() or 1)

    async def _sign_parked(self, of: str) -> None:
        parked = self._options.parked
        if parked:
            pending = self._options.pending or self._load.transactions
            beside = max(min(pending, self._load.transactions), self._posts[0].transactions)
            async with self._step(f"sign parked transactions{of}", parked) as advance:
                self._parked = await sign_parked(self._workers, self._load, parked, beside, advance)

    async def _on_own_node(self, pending: int, of: str) -> Measured:
        options = self._options

        async def fill(node: Node) -> None:
            async with self._step(f"write leaves{of}", options.leaves) as advance:
                await preload(self._workers, node.store, node.key_file, self._load.mark, options.leaves, advance)

        async with self._step(f"start a node{of}", None) as started:

            async def use(node: Node) -> Measured:
                started(1)
                return await self._measure(node.url, node.store, pending, of)

            return await with_node(
                options.folder,
                processors=intkey_processors(options.families, options.processors, legacy=options.legacy),
                profiles=options.profiles,
                use=use,
                fill=fill if options.leaves else None,
            )

    async def _measure(self, url: str, store: Path | None, pending: int, of: str) -> Measured:
        """Measure one run. ``store``: the store's folder if the benchmark started the node; None otherwise."""
        await self._prepare(url, of)
        if self._parked:
            async with self._step(f"park{of}", self._options.parked) as advance:
                await park(url, self._parked, advance)
        head = await asyncio.to_thread(head_number, url)
        disk_before = bytes_on_disk(store) if store else 0

        def sample() -> None:
            watch.sample()
            queue.sample()

        bare = self._workers, self._posts, self._options.ceiling_s
        async with self._step(f"measure verify_batch{of}", None):
            verify_batch = await measure_verify_batch(*bare)
        async with self._step(f"measure the ceiling{of}", None):
            before = await measure_ceiling(*bare)
        async with QueueWatch.over(url) as queue:
            watch = ProcessWatch(whole_node=store is not None)
            async with self._step(f"send{of}", self._load.transactions, sample) as advance:
                sent = await self._send(url, self._posts, pending, advance)
            processes, others_cpu_s = watch.figures()
        async with self._step(f"verify{of}", None):
            seconds = await asyncio.to_thread(verify_committed, url, self._posts, sent.started, sent.seconds)
        async with self._step(f"measure the ceiling again{of}", None):
            after = await measure_ceiling(*bare)
        sizes = await asyncio.to_thread(block_sizes, url, head)
        return Measured(
            transactions=self._load.transactions,
            signatures=self._load.transactions + self._load.batches,
            seconds=seconds,
            ceiling_before=before,
            ceiling_after=after,
            verify_batch=verify_batch,
            latency=latency(sent.latencies_s),
            blocks=figures.blocks(sizes),
            refusals=sent.refusals,
            queued_batches_max=queue.batches_max,
            disk_bytes=bytes_on_disk(store) - disk_before if store else None,
            processes=processes,
            others_cpu_s=others_cpu_s,
        )

    async def _prepare(self, url: str, of: str) -> None:
        """Set every name that the load needs, except those that were written into the state before the node started."""
        written = self._options.leaves
        load = replace(
            self._load,
            kind="prepare",
            first_name=written,
            transactions=max(0, self._load.names - written),
            shape=_PREPARED_SHAPE,
            per_post=_PREPARED_PER_POST,
        )
        async with self._step(f"prepare names{of}", load.transactions) as advance:
            for first in range(0, load.posts, _PREPARED_POSTS_AT_ONCE):
                posts = await sign(self._workers, load, lambda _: None, first=first, count=_PREPARED_POSTS_AT_ONCE)
                sent = await self._send(url, posts, _PENDING_PREPARED, advance)
                await asyncio.to_thread(verify_committed, url, posts, sent.started, sent.seconds)

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
