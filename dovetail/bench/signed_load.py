"""The load: intkey transactions that a seed decides, signed and packed into POST bodies, in worker processes.

The same workers measure how fast this machine can verify that load, which is the ceiling of any node on it. No
sockets.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from dovetail.bench.families import family_of, load_transaction, names_of
from dovetail.common.workers import Workers
from dovetail.ledger.batch import decode_batch_list, verify_batch
from dovetail.ledger.building import build_batch, encode_batch_list
from dovetail.ledger.signing import Signer
from families.intkey.payload import Verb

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
    """``set`` gives each of the names its value, in their order; ``inc`` adds 1 to names that are drawn."""

    names: int
    """At least one for each family."""

    transactions: int
    shape: int
    """Transactions a batch; the last batch holds what is left."""

    per_post: int
    """Batches a POST; the last POST holds what is left."""

    families: int = 1
    """Among which ``names`` are shared out; the batches of ``inc`` are of one family after the other."""

    first_family: int = 0
    """The number of the first of them."""

    conflict_percent: int = 0
    """So much of ``inc`` goes to the first name of its family, the rest is drawn uniformly from all of that family."""

    first_name: int = 0
    """Where ``set`` begins."""

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
                    load_transaction(
                        signer,
                        load.first_family + family_of(name, load.names, load.families),
                        load.verb,
                        name_of(load.mark, name),
                        f"{load.mark}-{load.verb}-{position:x}",
                    )
                    for position in content
                    for name in (_name(load, position),)
                ],
            )
        )
    return Post(encode_batch_list(batches), tuple(batch.id for batch in batches), transactions)


def name_of(mark: str, number: int) -> str:
    """What the name with this number is called in transactions and state."""
    return f"{mark}-{number:x}"


def _name(load: Load, position: int) -> int:
    """Which name a transaction is about: a hash, so that it does not hang on who signs what in which order."""
    if load.verb == "set":
        return load.first_name + position
    drawn = hashlib.blake2b(f"{load.seed}/{position}".encode(), digest_size=8).digest()
    names = names_of(position // load.shape % load.families, load.names, load.families)
    # Bits of its own for each question.
    if int.from_bytes(drawn[:3]) % 100 < load.conflict_percent:
        return names[0]
    return names[int.from_bytes(drawn[3:]) % len(names)]


@lru_cache(maxsize=2 * _SIGNERS)
def _signer(seed: int, number: int) -> Signer:
    return Signer(hashlib.sha256(f"dovetail bench {seed} {number}".encode()).hexdigest())


async def sign(
    workers: Workers, load: Load, on_signed: Callable[[int], None], *, first: int = 0, count: int | None = None
) -> list[Post]:
    """The load's POSTs, in order: all, or ``count`` from ``first``. ``on_signed``: how many more were signed."""
    posts_a_job = max(1, _JOB_TRANSACTIONS // (load.shape * load.per_post))
    end = load.posts if count is None else min(load.posts, first + count)
    jobs = [
        workers.submit(_sign_posts, load, start, min(start + posts_a_job, end))
        for start in range(first, end, posts_a_job)
    ]
    signed: list[Post] = []
    for job in jobs:
        posts = await asyncio.wrap_future(job)
        signed += posts
        on_signed(sum(post.transactions for post in posts))
    return signed


async def measure_ceiling(workers: Workers, posts: list[Post], seconds: float) -> Ceiling:
    """Verify the first of ``posts`` again and again in every worker for so many seconds."""
    bodies, transactions = [], 0
    for post in posts:
        bodies.append(post.body)
        transactions += post.transactions
        if transactions >= _CEILING_TRANSACTIONS:
            break
    jobs = [workers.submit(_verify_for, bodies, seconds) for _ in range(workers.count)]
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
