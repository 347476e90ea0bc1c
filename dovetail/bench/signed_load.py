"""A load: intkey transactions that a seed determines, signed and packed into POST bodies in worker processes.

No sockets, no measurement.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from dovetail.bench.families import family_of, load_transaction, names_of
from dovetail.common.workers import Workers
from dovetail.ledger.building import build_batch, encode_batch_list
from dovetail.ledger.signing import Signer
from families.intkey.payload import Verb

NAMES_MAX: Final = 10_000_000

_SIGNERS: Final = 16
_JOB_TRANSACTIONS: Final = 2_000
"""Transactions per job: about a tenth of a second of signing, short enough for a progress bar."""

Kind = Literal["prepare", "draw", "create"]
"""``prepare`` sets each name once, in order; ``draw`` adds 1 to names drawn uniformly; ``create`` sets new names."""


@dataclass(frozen=True)
class Load:
    """Everything that determines the bytes of a load: equal loads have equal bytes on every machine."""

    seed: int
    mark: str
    """At most 8 characters, part of every name and nonce; another mark makes other names and other ids."""

    kind: Kind
    names: int
    """The number of names that exist before the load: at least one per family; 0 for ``create`` without conflicts."""

    transactions: int
    shape: int
    """Transactions per batch; the last batch holds the rest."""

    per_post: int
    """Batches per POST; the last POST holds the rest."""

    families: int = 1
    """How many families share ``names``. The batches of ``draw`` and ``create`` take the families in turn."""

    first_family: int = 0
    conflict_percent: int = 0
    """Percentage of transactions in ``draw`` and ``create`` that instead add 1 to the first name of their family."""

    first_name: int = 0
    """The number of the first name that ``prepare`` or ``create`` sets."""

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
                        load.first_family + family,
                        verb,
                        name_of(load.mark, name),
                        f"{load.mark}-{load.kind}-{position:x}",
                    )
                    for position in content
                    for family, verb, name in (_action(load, position),)
                ],
            )
        )
    return Post(encode_batch_list(batches), tuple(batch.id for batch in batches), transactions)


def name_of(mark: str, number: int) -> str:
    """The name with this number as transactions and state hold it."""
    return f"{mark}-{number:x}"


def _action(load: Load, position: int) -> tuple[int, Verb, int]:
    """Family, verb and name of a transaction, from a hash of its position: the order of signing does not matter."""
    if load.kind == "prepare":
        name = load.first_name + position
        return family_of(name, load.names, load.families), "set", name
    family = position // load.shape % load.families
    names = names_of(family, load.names, load.families)
    drawn = hashlib.blake2b(f"{load.seed}/{position}".encode(), digest_size=8).digest()
    # Different bits decide whether a transaction conflicts and which name it draws.
    if int.from_bytes(drawn[:3]) % 100 < load.conflict_percent:
        return family, "inc", names[0]
    if load.kind == "create":
        return family, "set", load.first_name + position
    return family, "inc", names[int.from_bytes(drawn[3:]) % len(names)]


@lru_cache(maxsize=2 * _SIGNERS)
def _signer(seed: int, number: int) -> Signer:
    return Signer(hashlib.sha256(f"dovetail bench {seed} {number}".encode()).hexdigest())


async def sign(
    workers: Workers, load: Load, on_signed: Callable[[int], None], *, first: int = 0, count: int | None = None
) -> list[Post]:
    """Sign the load's POSTs, all or ``count`` from ``first``, and return them in order.

    ``on_signed`` gets the number of newly signed transactions.
    """
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


def _sign_posts(load: Load, start: int, end: int) -> list[Post]:
    return [sign_post(load, number) for number in range(start, end)]
