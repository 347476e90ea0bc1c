"""The load: intkey transactions that a seed decides, signed and packed into POST bodies, in worker processes.

The same workers measure how fast this machine can verify that load, which is the ceiling of any node on it. No
sockets.
"""

import asyncio
import hashlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Final, NamedTuple

from families.intkey.client import intkey_transaction
from families.intkey.payload import Verb
from ledger.batch import decode_batch_list, verify_batch
from ledger.building import build_batch, encode_batch_list
from ledger.signing import Signer

NAMES_MAX: Final = 10_000_000

_SIGNERS: Final = 16
_JOB_TRANSACTIONS: Final = 2_000
"""About a tenth of a second of signing: fine enough for a progress bar."""

_CEILING_TRANSACTIONS: Final = 2_000


@dataclass(frozen=True)
class Load:
    """Everything that decides the bytes: equal loads are equal bytes, on any machine."""

    seed: int
    mark: str
    """At most 8 characters, part of every name and nonce; another mark makes other names and other ids."""

    verb: Verb
    """``set`` gives each of the names its value, in their order; ``inc`` adds 1 to names drawn uniformly."""

    names: int
    transactions: int
    shape: int
    """Transactions a batch; the last batch holds what is left."""

    per_post: int
    """Batches a POST; the last POST holds what is left."""

    @property
    def batches(self) -> int:
        return -(-self.transactions // self.shape)

    @property
    def posts(self) -> int:
        return -(-self.batches // self.per_post)


class Post(NamedTuple):
    """One body of POST /batches, the ids of its batches and how many transactions they hold together."""

    body: bytes
    batch_ids: tuple[str, ...]
    transactions: int


@dataclass(frozen=True)
class Ceiling:
    """What all processor cores together verify in a second, doing nothing else."""

    batches_per_s: float
    signatures_per_s: float
    transactions_per_s: float
    core_share: float
    """How much of a core each worker got, 0 to 1: well below 1, something else took the rest of this machine."""


def sign_post(load: Load, number: int) -> Post:
    """Build the POST with this number, from 0."""
    first = number * load.per_post
    batches = []
    transactions = 0
    for batch_number in range(first, min(first + load.per_post, load.batches)):
        signer = _signer(load.seed, batch_number % _SIGNERS)
        start = batch_number * load.shape
        content = range(start, min(start + load.shape, load.transactions))
        transactions += len(content)
        batches.append(
            build_batch(
                signer,
                [
                    intkey_transaction(
                        signer,
                        signer.public_key,
                        load.verb,
                        f"{load.mark}-{_name(load, position):x}",
                        1,
                        f"{load.mark}-{load.verb}-{position:x}",
                    )
                    for position in content
                ],
            )
        )
    return Post(encode_batch_list(batches), tuple(batch.id for batch in batches), transactions)


def _name(load: Load, position: int) -> int:
    """Which name a transaction is about: a hash, so that it does not hang on who signs what in which order."""
    if load.verb == "set":
        return position
    drawn = hashlib.blake2b(f"{load.seed}/{position}".encode(), digest_size=8).digest()
    return int.from_bytes(drawn) % load.names


@lru_cache(maxsize=2 * _SIGNERS)
def _signer(seed: int, number: int) -> Signer:
    return Signer(hashlib.sha256(f"dovetail bench {seed} {number}".encode()).hexdigest())


class Workers:
    """One process for each processor core. They end with this process, however it ends."""

    def __init__(self) -> None:
        self.count = os.cpu_count() or 1
        # Fresh interpreters: a fork would take open sockets and the event loop along.
        self._pool = ProcessPoolExecutor(
            self.count, mp_context=multiprocessing.get_context("spawn"), initializer=_begin_worker
        )

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    async def sign(
        self, load: Load, on_signed: Callable[[int], None], *, first: int = 0, count: int | None = None
    ) -> list[Post]:
        """The load's POSTs, in order: all, or ``count`` from ``first``. ``on_signed``: how many more were signed."""
        posts_a_job = max(1, _JOB_TRANSACTIONS // (load.shape * load.per_post))
        end = load.posts if count is None else min(load.posts, first + count)
        jobs: list[Future[list[Post]]] = [
            self._pool.submit(_sign_posts, load, start, min(start + posts_a_job, end))
            for start in range(first, end, posts_a_job)
        ]
        signed: list[Post] = []
        for job in jobs:
            posts = await asyncio.wrap_future(job)
            signed += posts
            on_signed(sum(post.transactions for post in posts))
        return signed

    async def measure_ceiling(self, posts: list[Post], seconds: float) -> Ceiling:
        """Verify the first of ``posts`` again and again in every worker for so many seconds."""
        bodies, transactions = [], 0
        for post in posts:
            bodies.append(post.body)
            transactions += post.transactions
            if transactions >= _CEILING_TRANSACTIONS:
                break
        jobs = [self._pool.submit(_verify_for, bodies, seconds) for _ in range(self.count)]
        rates = await asyncio.gather(*map(asyncio.wrap_future, jobs))
        batches_per_s = sum(rate.batches / rate.seconds for rate in rates)
        transactions_per_s = sum(rate.transactions / rate.seconds for rate in rates)
        share = sum(rate.cpu_s for rate in rates) / sum(rate.seconds for rate in rates)
        return Ceiling(batches_per_s, batches_per_s + transactions_per_s, transactions_per_s, share)


def _sign_posts(load: Load, start: int, end: int) -> list[Post]:
    return [sign_post(load, number) for number in range(start, end)]


class _Verified(NamedTuple):
    batches: int
    transactions: int
    seconds: float
    cpu_s: float


def _verify_for(bodies: list[bytes], seconds: float) -> _Verified:
    raw_batches = [raw for body in bodies for raw in decode_batch_list(body)]
    verify_batch(raw_batches[0])
    batches = transactions = 0
    cpu_before_s = time.process_time()
    start = now = time.perf_counter()
    while now - start < seconds:
        transactions += len(verify_batch(raw_batches[batches % len(raw_batches)]).transactions)
        batches += 1
        now = time.perf_counter()
    return _Verified(batches, transactions, now - start, time.process_time() - cpu_before_s)


def _begin_worker() -> None:
    # A terminal sends Ctrl-C to every process; the parent is the one that acts on it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker was started by someone"
    parent.join()
    os._exit(1)
