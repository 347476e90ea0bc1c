"""Writes a ledger with many leaves before its node starts. No sockets.

The blocks go through the store's own commit path, with signed transactions, receipts and sealed headers.
``PreloadHandler`` executes the transactions. Each writes many leaves, so that a million leaves need few signatures.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from dovetail.bench.signed_load import name_of
from dovetail.common.keys import load_signer
from dovetail.common.workers import Workers
from dovetail.ledger.batch import verify_batch
from dovetail.ledger.block import Consensus
from dovetail.ledger.building import build_batch, build_transaction
from dovetail.ledger.ids import NULL_BLOCK_ID
from dovetail.ledger.limits import Limits
from dovetail.ledger.receipt import Receipt, encode_receipt
from dovetail.ledger.signing import Signer
from dovetail.validator.core.consensus.solo import SoloEngine
from dovetail.validator.core.journal.block_run import make_commit
from dovetail.validator.core.journal.model import BlockCommit, CommittedBatch
from dovetail.validator.core.journal.sealing import OwnSeal, Parent
from dovetail.validator.core.state.nodes import EMPTY
from dovetail.validator.store import Store
from families.intkey.client import LEAF, NAMESPACE, intkey_address
from processor_sdk import Context, Transaction, TransactionHandler
from processor_sdk.codecs import CborCodec

_FAMILY: Final = "dovetail_bench_preload"
_VERSION: Final = "1.0"
_ENCODING: Final = "application/cbor"
_BLOCK_LEAVES: Final = 10_000
"""Leaves per block: few enough that a block's receipt is far below the size limit of receipts."""

_JOB_BLOCKS: Final = 5


@dataclass(frozen=True, slots=True)
class Preload:
    """The payload: sets ``count`` names from number ``first`` to 1."""

    mark: str
    first: int
    count: int

    def leaves(self) -> Iterator[tuple[str, bytes]]:
        """Address and bytes of each name, as intkey stores them."""
        for number in range(self.first, self.first + self.count):
            name = name_of(self.mark, number)
            yield intkey_address(name), LEAF.encode({name: 1})


_CODEC: Final = CborCodec(Preload)


class PreloadHandler(TransactionHandler[Preload]):
    """Writes the leaves, over existing ones too."""

    family_name = _FAMILY
    family_version = _VERSION
    namespaces = (NAMESPACE,)
    encodings: ClassVar = {_ENCODING: _CODEC}

    def apply(self, transaction: Transaction[Preload], context: Context) -> None:
        for address, value in transaction.payload.leaves():
            context.set(address, value)


async def preload(
    workers: Workers, store: Path, key_file: Path, mark: str, leaves: int, on_written: Callable[[int], None]
) -> None:
    """Give the first ``leaves`` names of ``mark`` a value, in the chain of a node whose key is in ``key_file``.

    ``store``: the store's folder, without a chain. ``on_written`` gets the number of newly written leaves. One process
    writes in pieces, so that the end of the benchmark waits for one piece at most.
    """
    step = _BLOCK_LEAVES * _JOB_BLOCKS
    for first in range(0, leaves, step):
        end = min(first + step, leaves)
        await asyncio.wrap_future(workers.submit(_write, store, key_file, mark, first, end))
        on_written(end - first)


def _write(folder: Path, key_file: Path, mark: str, first: int, end: int) -> None:
    signer = load_signer(key_file)
    with closing(Store(folder, Limits())) as store:
        for start in range(first, end, _BLOCK_LEAVES):
            store.commit_block(_block(store, signer, Preload(mark, start, min(_BLOCK_LEAVES, end - start))))


def _block(store: Store, signer: Signer, content: Preload) -> BlockCommit:
    """The block after the store's head, with one batch of one transaction."""
    transaction = build_transaction(
        signer,
        batcher_pubkey=signer.public_key,
        family_name=_FAMILY,
        family_version=_VERSION,
        inputs=(),
        outputs=(NAMESPACE,),
        payload=_CODEC.encode(content),
        payload_encoding=_ENCODING,
        nonce=name_of(content.mark, content.first),
    )
    batch = verify_batch(build_batch(signer, [transaction]).raw)
    changes: dict[str, bytes | None] = dict(content.leaves())
    receipt = encode_receipt(Receipt(transaction.id, changes, (), ()))
    applied = [CommittedBatch(batch.id, batch.raw, ((transaction.id, receipt),))]
    head = store.head
    num, parent_id, root = (head.num, head.id, head.root) if head else (-1, NULL_BLOCK_ID, EMPTY)
    parent = Parent(num, parent_id, root, store.next_node_number, time_ms=0)
    own = OwnSeal(signer, Consensus(SoloEngine.name, num + 1, time_ms=0))
    commit = make_commit(parent, applied, changes, store.node, own)
    assert commit is not None, "it holds a batch"
    return commit
