"""Verified batches without real signatures, and chains of them in a store. No assertions, no sockets."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dovetail.ledger import settings
from dovetail.ledger.batch import VerifiedBatch, VerifiedTransaction
from dovetail.ledger.block import BlockHeader, Consensus, encode_consensus, seal
from dovetail.ledger.ids import NULL_BLOCK_ID, BatchId, StateRoot, TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.receipt import Receipt, encode_receipt
from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.signing import Signer
from dovetail.validator.core.journal.model import BlockCommit, CommittedBatch, InvalidBatch
from dovetail.validator.core.state import merkle
from dovetail.validator.core.state.nodes import EMPTY, Ref
from dovetail.validator.core.state.view import Changed, Stored, View
from dovetail.validator.store import BlockInfo, Store
from protos import raw_pb2, transaction_pb2

SIGNER = Signer("11" * 32)
LIMITS = replace(Limits(), store_map_bytes_initial=1024 * 1024)


def make_id(*parts: object) -> str:
    """128 lower-case hex characters for ``parts``; signatures are not checked here."""
    return hashlib.sha512(repr(parts).encode()).hexdigest()


def address(number: int, prefix: str = "1cf126") -> str:
    return prefix + f"{number:0{70 - len(prefix)}x}"


def make_transaction(
    name: object,
    *,
    inputs: Iterable[str] = (),
    outputs: Iterable[str] = (),
    dependencies: Iterable[str] = (),
    family: tuple[str, str] = ("intkey", "1.0"),
    payload: bytes = b"",
) -> VerifiedTransaction:
    """A transaction whose id is derived from ``name``."""
    transaction_id = TransactionId(make_id("transaction", name))
    inputs, outputs, dependencies = tuple(inputs), tuple(outputs), tuple(dependencies)
    header = transaction_pb2.TransactionHeader(
        family_name=family[0], family_version=family[1], inputs=inputs, outputs=outputs, dependencies=dependencies
    )
    raw = transaction_pb2.Transaction(
        header=header.SerializeToString(), header_signature=transaction_id, payload=payload or repr(name).encode()
    ).SerializeToString()
    return VerifiedTransaction(
        transaction_id, FamilyVersion(*family), inputs, outputs, tuple(map(TransactionId, dependencies)), raw
    )


def make_batch(name: object, *transactions: VerifiedTransaction, signer: str = "somebody's key") -> VerifiedBatch:
    """A batch whose id is derived from ``name``; by default with one transaction."""
    held = transactions or (make_transaction(name),)
    batch_id = BatchId(make_id("batch", name))
    raw = raw_pb2.RawBatch(
        header=b"", header_signature=batch_id, transactions=[transaction.raw for transaction in held]
    ).SerializeToString()
    declared = sum(len(item.inputs) + len(item.outputs) for item in held)
    return VerifiedBatch(batch_id, held, declared, raw, signer, sum(len(item.dependencies) for item in held))


def permitting(value: str) -> dict[str, bytes]:
    """A state with this value of the setting of permitted families."""
    key = settings.TRANSACTION_FAMILIES
    return {settings.setting_address(key): settings.encode_setting({key: value})}


def open_store(path: Path, limits: Limits = LIMITS) -> Store:
    return Store(path / "store", limits)


def make_commit(
    store: Store,
    batches: Sequence[VerifiedBatch],
    changes: Mapping[str, bytes | None] | None = None,
    *,
    invalid: Sequence[InvalidBatch] = (),
    settled: Sequence[int] = (),
) -> BlockCommit:
    """The next block of a store, with ``batches``. Its first transaction makes all ``changes``."""
    left = dict(changes or {})
    committed = []
    for batch in batches:
        receipts = []
        for transaction in batch.transactions:
            receipts.append((transaction.id, encode_receipt(Receipt(transaction.id, left, (), ()))))
            left = {}
        committed.append(CommittedBatch(batch.id, batch.raw, tuple(receipts)))
    made = sealed_commit(store, SIGNER, committed, changes or {})
    return made._replace(invalid=list(invalid), settled=list(settled))


def sealed_commit(
    store: Store, signer: Signer, committed: Sequence[CommittedBatch], changes: Mapping[str, bytes | None]
) -> BlockCommit:
    """The next block of a store: batches with their receipts, which together make ``changes``."""
    head = store.head
    state = merkle.update(store.node, head.root if head else EMPTY, changes, store.next_node_number)
    num = head.num + 1 if head else 0
    header = BlockHeader(
        block_num=num,
        previous_block_id=head.id if head else NULL_BLOCK_ID,
        signer_pubkey=signer.public_key,
        batch_ids=tuple(batch.id for batch in committed),
        consensus=encode_consensus(Consensus("solo", num, 0)),
        state_root_hash=StateRoot(state.root.hash.hex()),
    )
    block = seal(signer, header, [batch.raw for batch in committed])
    return BlockCommit(block, list(committed), state.root, state.nodes, state.superseded, [], [])


def commit(
    store: Store, batches: Sequence[VerifiedBatch], changes: Mapping[str, bytes | None] | None = None
) -> BlockInfo:
    return store.commit_block(make_commit(store, batches, changes))


class NodeMemory:
    """The trie's store in a dictionary: nodes by number, and the next number."""

    def __init__(self) -> None:
        self.nodes: dict[int, bytes] = {}
        self.root: Ref = EMPTY
        self.next_number = 1

    def node(self, number: int) -> bytes:
        return self.nodes[number]

    def apply(self, changes: Mapping[str, bytes | None]) -> merkle.Update:
        """Update the state as a block does."""
        update = merkle.update(self.node, self.root, changes, self.next_number)
        self.nodes.update(update.nodes)
        self.next_number += len(update.nodes)
        self.root = update.root
        return update


def view_of(state: Mapping[str, bytes | None]) -> View:
    """A view of a state in a dictionary."""
    return Changed(Stored(NodeMemory().node, EMPTY), state)


class NodesOnDisk:
    """As ``NodeMemory``, but in a store, where every update is a block."""

    def __init__(self, path: Path) -> None:
        self.store = open_store(path)
        self.node = self.store.node

    @property
    def root(self) -> Ref:
        return self.store.head.root if self.store.head else EMPTY

    @property
    def next_number(self) -> int:
        return self.store.next_node_number

    def apply(self, changes: Mapping[str, bytes | None]) -> merkle.Update:
        made = make_commit(self.store, [], changes)
        self.store.commit_block(made)
        return merkle.Update(made.root, made.nodes, made.superseded)


def no_network(message: object) -> None:
    """Stands for the network of an engine that sends no messages."""
    raise AssertionError(f"an engine of one node sends nothing: {message!r}")
