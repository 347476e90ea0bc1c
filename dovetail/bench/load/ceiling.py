"""How many of a load's signatures all cores verify in a second: with libsecp256k1 alone, and with ``verify_batch``.

Runs in worker processes. The rate of libsecp256k1 alone uses no code of the node, and bounds every node here.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Final, NamedTuple, TypeVar

from coincurve import PublicKey
from coincurve.ecdsa import cdata_to_der, deserialize_compact

from dovetail.bench.signed_load import Post
from dovetail.common.workers import Workers
from dovetail.ledger.batch import decode_batch_list, verify_batch
from protos.batch_pb2 import BatchHeader, BatchList
from protos.transaction_pb2 import TransactionHeader

_TRANSACTIONS: Final = 2_000

T = TypeVar("T")


@dataclass(frozen=True)
class SignatureRate:
    """All cores together; a batch of N transactions has N + 1 signatures."""

    signatures_per_s: float
    cpu_us: float
    """Processor time of one signature, in microseconds."""

    core_share: float
    """The part of a core that each worker got, 0 to 1. If it is far below 1, other processes disturbed the run."""


class _Checked(NamedTuple):
    signatures: int
    seconds: float
    cpu_s: float


async def measure_ceiling(workers: Workers, posts: Sequence[Post], seconds: float) -> SignatureRate:
    """Verify the load's signatures with libsecp256k1 alone.

    The messages are distinct. The time includes their SHA-256, but not the parsing of keys.
    """
    return await _measure(workers, _check_raw, posts, seconds)


async def measure_verify_batch(workers: Workers, posts: Sequence[Post], seconds: float) -> SignatureRate:
    """Verify the load's batches as a node does: signatures, hashes, headers."""
    return await _measure(workers, _check_batches, posts, seconds)


async def _measure(
    workers: Workers, check: Callable[[list[bytes], float], _Checked], posts: Sequence[Post], seconds: float
) -> SignatureRate:
    """Run ``check`` in every worker at the same time, over the first posts."""
    bodies, transactions = [], 0
    for post in posts:
        bodies.append(post.body)
        transactions += post.transactions
        if transactions >= _TRANSACTIONS:
            break
    checked = await asyncio.gather(
        *(asyncio.wrap_future(workers.submit(check, bodies, seconds)) for _ in range(workers.count))
    )
    cpu_s = sum(one.cpu_s for one in checked)
    return SignatureRate(
        signatures_per_s=sum(one.signatures / one.seconds for one in checked),
        cpu_us=cpu_s / sum(one.signatures for one in checked) * 1e6,
        core_share=cpu_s / sum(one.seconds for one in checked),
    )


def _check_raw(bodies: list[bytes], seconds: float) -> _Checked:
    keys: dict[str, PublicKey] = {}
    signed: list[tuple[PublicKey, bytes, bytes]] = []

    def add(signer: str, message: bytes, signature: str) -> None:
        key = keys.setdefault(signer, PublicKey(bytes.fromhex(signer)))
        # PublicKey.verify takes signatures as DER.
        signed.append((key, cdata_to_der(deserialize_compact(bytes.fromhex(signature))), message))

    for batch in (batch for body in bodies for batch in BatchList.FromString(body).batches):
        add(BatchHeader.FromString(batch.header).signer_pubkey, batch.header, batch.header_signature)
        for item in batch.transactions:
            add(TransactionHeader.FromString(item.header).signer_pubkey, item.header, item.header_signature)

    def check(one: tuple[PublicKey, bytes, bytes]) -> int:
        key, signature, message = one
        if not key.verify(signature, message):
            raise AssertionError("the load holds a wrong signature")
        return 1

    return _repeat(check, signed, seconds)


def _check_batches(bodies: list[bytes], seconds: float) -> _Checked:
    batches = [raw for body in bodies for raw in decode_batch_list(body)]
    return _repeat(lambda raw: len(verify_batch(raw).transactions) + 1, batches, seconds)


def _repeat(check: Callable[[T], int], items: Sequence[T], seconds: float) -> _Checked:
    """Call ``check`` with the items in turn for ``seconds``, and add up the numbers of signatures that it returns."""
    check(items[0])
    signatures = 0
    cpu_before_s = time.process_time()
    start = now = time.perf_counter()
    for item in cycle(items):
        signatures += check(item)
        now = time.perf_counter()
        if now - start >= seconds:
            break
    return _Checked(signatures, now - start, time.process_time() - cpu_before_s)
