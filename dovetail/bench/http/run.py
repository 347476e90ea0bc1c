"""The benchmark of the REST API by its requests: how many a second, how long each takes, and what each costs.

The order of the steps lives here; sending lives in ``asker``, the figures' shape in ``http_figures``.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from dovetail.bench.chain import verify_committed
from dovetail.bench.connection import Target
from dovetail.bench.families import intkey_processors
from dovetail.bench.http import figures as http_figures
from dovetail.bench.http.figures import HttpReport, RequestFigures
from dovetail.bench.load import figures
from dovetail.bench.load.post_loop import Sent, send
from dovetail.bench.load.run import asked_for, machine_for
from dovetail.bench.node import Node, with_node
from dovetail.bench.process_costs import ProcessWatch
from dovetail.bench.progress import Steps
from dovetail.bench.request_loop import Following, ask
from dovetail.bench.signed_load import Load, Post, sign
from dovetail.common.workers import Workers
from families.intkey.client import intkey_address

if TYPE_CHECKING:
    from rich.progress import Progress

_NAMES: Final = 100
_PREPARED_SHAPE: Final = 5
"""So that twenty blocks of five transactions stand at the end of the chain when blocks are read."""

_BATCH_TRANSACTIONS: Final = 100
_LARGE_PART: Final = 10
"""Of the requests, one in so many is made for the batches of 100."""

_WARM_UP: Final = 50
_CEILING: Final = "GET /healthz"


@dataclass(frozen=True)
class HttpOptions:
    """What ``dovetail bench --http`` is asked for; its help says what each means."""

    requests: int
    connections: int
    pending: int
    processors: int
    repeat: int
    seed: int
    url: str | None
    folder: Path | None
    profiles: dict[str, Path]
    """Where cProfile of a part goes, by the part's name."""


class _Scene(NamedTuple):
    """One kind of request, as often as it is sent."""

    name: str
    requests: Sequence[bytes]
    status: str
    posts: Sequence[Post] = ()


async def bench_http(options: HttpOptions, progress: "Progress") -> HttpReport:
    """Run it. Raises Refused, and Interrupted when a signal ended the benchmark's own node."""
    with Workers() as workers:
        benchmark = _HttpBenchmark(options, progress, workers)
        runs = [await benchmark.run(number) for number in range(1, options.repeat + 1)]
    return http_figures.report(machine_for(options.url, options.folder), asked_for(asdict(options)), runs)


class _HttpBenchmark:
    def __init__(self, options: HttpOptions, progress: "Progress", workers: Workers) -> None:
        self._options = options
        self._step = Steps(progress).step
        self._workers = workers
        self._mark = hashlib.sha256(str(options.seed).encode()).hexdigest()[:8]
        self._posts: dict[int, list[Post]] = {}

    async def run(self, number: int) -> tuple[RequestFigures, ...]:
        options = self._options
        of = f" {number}/{options.repeat}" if options.repeat > 1 else ""
        if options.url:
            # A ledger remembers: the names and the transactions of an earlier run would not be new to it.
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
        # Another seed, for other signers: transactions of both loads have the same nonces.
        return Load(
            seed=self._options.seed * 2 + (shape == 1),
            mark=self._mark,
            verb="inc",
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
        measured = [await self._play(url, scene, of, own_node) for scene in self._scenes(url)]
        ceiling = next(scene.requests_per_s for scene in measured if scene.name == _CEILING)
        return tuple(replace(scene, ratio=scene.requests_per_s / ceiling) for scene in measured)

    async def _prepare(self, url: str) -> None:
        """Give every name a value, a block for every five of them."""
        load = replace(self._load(1), verb="set", transactions=_NAMES, shape=_PREPARED_SHAPE)
        posts = await sign(self._workers, load, lambda _: None)
        sent = await send(url, posts, in_flight=1, ahead=1, on_committed=lambda _: None)
        await asyncio.to_thread(verify_committed, url, posts, sent)

    def _scenes(self, url: str) -> list[_Scene]:
        target, count = Target.of(url), self._options.requests
        addresses = [intkey_address(f"{self._mark}-{number:x}") for number in range(_NAMES)]
        leaves = [target.head("GET", f"/state/{address}") + b"\r\n" for address in addresses]

        def posting(shape: int) -> _Scene:
            posts = self._posts[shape]
            requests = [target.post("/batches", post.body) for post in posts]
            return _Scene(f"POST /batches of {shape}", requests, "202", posts)

        return [
            _Scene(_CEILING, [target.head("GET", "/healthz") + b"\r\n"] * count, "200"),
            _Scene("GET /state/{address}", [leaves[number % _NAMES] for number in range(count)], "200"),
            _Scene("GET /blocks?count=10", [target.head("GET", "/blocks?count=10") + b"\r\n"] * count, "200"),
            posting(1),
            posting(_BATCH_TRANSACTIONS),
        ]

    async def _play(self, url: str, scene: _Scene, of: str, own_node: bool) -> RequestFigures:
        connections, following = self._options.connections, None
        if scene.posts:
            a_post, pending = scene.posts[0].transactions, self._options.pending
            ahead = max(connections, pending // a_post) if pending else len(scene.posts)
            following = Following([post.batch_ids[-1] for post in scene.posts], ahead)
        else:
            await ask(
                url,
                scene.requests[:_WARM_UP],
                status=scene.status,
                connections=connections,
                on_answered=lambda _: None,
            )
        watch = ProcessWatch(whole_node=own_node)
        async with self._step(f"{scene.name}{of}", len(scene.requests), watch.sample) as advance:
            asked = await ask(
                url,
                scene.requests,
                status=scene.status,
                connections=connections,
                on_answered=advance,
                following=following,
            )
        processes, machine_cpu_s = watch.figures(), watch.machine_cpu_s()
        if scene.posts:
            async with self._step(f"verify{of}", None):
                sent = Sent(asked.started, asked.seconds, [], asked.refusals)
                await asyncio.to_thread(verify_committed, url, scene.posts, sent)
        return RequestFigures(
            name=scene.name,
            requests=len(scene.requests),
            seconds=asked.seconds,
            settled_s=asked.settled_s,
            requests_per_s=len(scene.requests) / asked.seconds,
            ratio=1.0,
            latency=figures.latency(asked.latencies_s),
            bytes_an_answer=asked.answer_bytes / len(scene.requests),
            refusals=asked.refusals,
            held_s=asked.held_s,
            processes=processes,
            others_cpu_s=max(0.0, machine_cpu_s - sum(one.cpu_s for one in processes)) if own_node else None,
        )
