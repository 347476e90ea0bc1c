"""``bench http`` from its options to its report: requests a second, latency and cost of each kind of request."""

import asyncio
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from rich.progress import Progress

from dovetail.bench.chain import verify_committed
from dovetail.bench.connection import Target
from dovetail.bench.families import intkey_processors
from dovetail.bench.http import figures
from dovetail.bench.http.figures import HttpReport, RequestFigures
from dovetail.bench.node import Node, with_node
from dovetail.bench.process_costs import ProcessWatch
from dovetail.bench.progress import ProgressBars
from dovetail.bench.report import Machine, latency, shown_options
from dovetail.bench.request_loop import Following, ask
from dovetail.bench.signed_load import Load, Post, name_of, sign
from dovetail.common.workers import Workers
from families.intkey.client import intkey_address

_NAMES: Final = 100
_PREPARED_SHAPE: Final = 5
"""Transactions per prepared batch. The hundred names make twenty blocks, for GET /blocks."""

_BATCH_TRANSACTIONS: Final = 100
_LARGE_PART: Final = 10
"""The number of batches of one transaction for each batch of 100 transactions."""

_WARM_UP: Final = 50
_CEILING: Final = "GET /healthz"


@dataclass(frozen=True)
class HttpOptions:
    """The options of ``dovetail bench http``; its help says what each means."""

    requests: int
    connections: int
    pending: int
    processors: int
    repeat: int
    seed: int
    url: str | None
    folder: Path | None
    profiles: dict[str, Path]
    """The file for cProfile of a part, by the part's name."""


class _Kind(NamedTuple):
    """One kind of request, with all requests of this kind that a run sends."""

    name: str
    requests: Sequence[bytes]
    status: str
    posts: Sequence[Post] = ()


async def measure_http(options: HttpOptions, progress: Progress) -> HttpReport:
    """Run the benchmark. Raises Refused, and Interrupted when a signal ended the benchmark's own node."""
    with Workers() as workers:
        benchmark = _Benchmark(options, progress, workers)
        runs = [await benchmark.run(number) for number in range(1, options.repeat + 1)]
    return figures.report(Machine.here(options.url, options.folder), shown_options(asdict(options)), runs)


class _Benchmark:
    def __init__(self, options: HttpOptions, progress: Progress, workers: Workers) -> None:
        self._options = options
        self._step = ProgressBars(progress).step
        self._workers = workers
        self._mark = hashlib.sha256(str(options.seed).encode()).hexdigest()[:8]
        self._posts: dict[int, list[Post]] = {}

    async def run(self, number: int) -> tuple[RequestFigures, ...]:
        options = self._options
        of = f" {number}/{options.repeat}" if options.repeat > 1 else ""
        if options.url:
            # The ledger already holds the names and transactions of an earlier run.
            self._mark, self._posts = secrets.token_hex(4), {}
        if not self._posts:
            await self._sign(of)
        if options.url:
            return await self._measure(options.url, of, own_node=False)
        async with self._step(f"start a node{of}", None) as started:

            async def use(node: Node) -> tuple[RequestFigures, ...]:
                started(1)
                return await self._measure(node.url, of, own_node=True)

            processors = intkey_processors(1, options.processors, legacy=False)
            return await with_node(options.folder, processors=processors, profiles=options.profiles, use=use)

    def _load(self, shape: int) -> Load:
        posts = self._options.requests if shape == 1 else -(-self._options.requests // _LARGE_PART)
        # The two loads have the same nonces, so each has its own seed, which gives it other signers.
        return Load(
            seed=self._options.seed * 2 + (shape == 1),
            mark=self._mark,
            kind="draw",
            names=_NAMES,
            transactions=posts * shape,
            shape=shape,
            per_post=1,
        )

    async def _sign(self, of: str) -> None:
        loads = {shape: self._load(shape) for shape in (1, _BATCH_TRANSACTIONS)}
        async with self._step(f"sign{of}", sum(load.transactions for load in loads.values())) as advance:
            self._posts = {shape: await sign(self._workers, load, advance) for shape, load in loads.items()}

    async def _measure(self, url: str, of: str, *, own_node: bool) -> tuple[RequestFigures, ...]:
        async with self._step(f"prepare names{of}", None):
            await self._prepare(url)
        measured = [await self._measure_kind(url, kind, of, own_node) for kind in self._kinds(url)]
        ceiling = next(kind.requests_per_s for kind in measured if kind.name == _CEILING)
        return tuple(replace(kind, ratio=kind.requests_per_s / ceiling) for kind in measured)

    async def _prepare(self, url: str) -> None:
        """Give every name a value, with one block for each batch."""
        load = replace(self._load(1), kind="prepare", transactions=_NAMES, shape=_PREPARED_SHAPE)
        prepare = _posting(Target.of(url), await sign(self._workers, load, lambda _: None))
        following = Following([post.batch_ids[0] for post in prepare.posts], ahead=1)
        await ask(url, prepare.requests, status=prepare.status, connections=1, following=following)

    def _kinds(self, url: str) -> list[_Kind]:
        target, count = Target.of(url), self._options.requests
        leaves = [f"/state/{intkey_address(name_of(self._mark, number))}" for number in range(_NAMES)]
        return [
            _Kind(_CEILING, [target.get("/healthz")] * count, "200"),
            _Kind("GET /state/{address}", [target.get(leaves[number % _NAMES]) for number in range(count)], "200"),
            _Kind("GET /blocks?count=10", [target.get("/blocks?count=10")] * count, "200"),
            *(_posting(target, posts) for posts in self._posts.values()),
        ]

    async def _measure_kind(self, url: str, kind: _Kind, of: str, own_node: bool) -> RequestFigures:
        connections, following = self._options.connections, None
        if kind.posts:
            a_post, pending = kind.posts[0].transactions, self._options.pending
            ahead = max(connections, pending // a_post) if pending else len(kind.posts)
            following = Following([post.batch_ids[-1] for post in kind.posts], ahead)
        else:
            await ask(url, kind.requests[:_WARM_UP], status=kind.status, connections=connections)
        watch = ProcessWatch(whole_node=own_node)
        async with self._step(f"{kind.name}{of}", len(kind.requests), watch.sample) as advance:
            asked = await ask(
                url,
                kind.requests,
                status=kind.status,
                connections=connections,
                on_answered=advance,
                following=following,
            )
        processes, others_cpu_s = watch.figures()
        if kind.posts:
            async with self._step(f"verify{of}", None):
                await asyncio.to_thread(verify_committed, url, kind.posts, asked.started, asked.seconds)
        return RequestFigures(
            name=kind.name,
            requests=len(kind.requests),
            seconds=asked.seconds,
            settled_s=asked.settled_s,
            requests_per_s=len(kind.requests) / asked.seconds,
            ratio=1.0,
            latency=latency(asked.latencies_s),
            bytes_an_answer=asked.answer_bytes / len(kind.requests),
            refusals=asked.refusals,
            held_s=asked.held_s,
            processes=processes,
            others_cpu_s=others_cpu_s,
        )


def _posting(target: Target, posts: Sequence[Post]) -> _Kind:
    requests = [target.post("/batches", post.body) for post in posts]
    return _Kind(f"POST /batches of {posts[0].transactions}", requests, "202", posts)
