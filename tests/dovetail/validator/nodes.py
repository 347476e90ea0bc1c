"""A node on a real socket, and peers that it answers. No assertions, and no waits by the clock."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from dovetail.ledger.building import SignedBatch, SignedTransaction, build_batch, build_transaction
from dovetail.ledger.ids import TransactionId
from dovetail.ledger.limits import Limits
from dovetail.validator.config import ValidatorConfig
from dovetail.validator.core.journal.model import BlockCommit
from dovetail.validator.node import Node
from dovetail.validator.processors.own import NO_FAMILIES
from dovetail.validator.store import BlockInfo, StorageFailed
from dovetail.validator.surroundings import Surroundings, on_machine
from protos.processor_pb2 import TpProcessResponse, TpRegisterRequest
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.peers import Peer
from tests.dovetail.validator.support import LIMITS, SIGNER, commit, make_batch, open_store

MACHINE: Final = on_machine(NO_FAMILIES)
"""The machine, for a node whose peers judge every family."""


def signed_transaction(
    nonce: str = "1", *, family: str = "nobody's", dependencies: Sequence[TransactionId] = ()
) -> SignedTransaction:
    """A transaction of a family without a processor. Equal arguments give equal transactions."""
    return build_transaction(
        SIGNER,
        batcher_pubkey=SIGNER.public_key,
        family_name=family,
        family_version="1.0",
        inputs=(),
        outputs=(),
        payload=b"",
        payload_encoding="",
        nonce=nonce,
        dependencies=dependencies,
    )


def signed_batch(
    nonce: str = "1", *, family: str = "nobody's", dependencies: Sequence[TransactionId] = ()
) -> SignedBatch:
    """A batch of one transaction, which ``signed_transaction`` makes."""
    return build_batch(SIGNER, [signed_transaction(nonce, family=family, dependencies=dependencies)])


@asynccontextmanager
async def open_node(
    path: Path,
    *pending: SignedBatch,
    chain: bool = True,
    limits: Limits = LIMITS,
    state: Mapping[str, bytes | None] | None = None,
    surroundings: Surroundings = MACHINE,
) -> AsyncIterator[Node]:
    """A node with these pending batches at its start.

    Its store holds a genesis block with ``state``, or an earlier chain.
    """
    store = open_store(path, limits)
    try:
        if chain:
            commit(store, [make_batch("genesis")], state)
        store.add_pending([batch.raw for batch in pending])
        config = ValidatorConfig(path, path / "key", "tcp://127.0.0.1:*", 1, limits)
        node = Node(config, store, SIGNER, surroundings)
        try:
            await node.restore()
            yield node
        finally:
            node.close()
    finally:
        store.close()


@asynccontextmanager
async def open_peers(node: Node, count: int) -> AsyncIterator[list[Peer]]:
    """Peers that the node answers. The test may close one itself."""
    peers = [Peer(node.endpoint) for _ in range(count)]
    try:
        for peer in peers:
            await peer.ping()
        yield peers
    finally:
        for peer in peers:
            peer.close()


async def register(peer: Peer, family: str = "nobody's", max_occupancy: int = 0) -> None:
    """Register the peer as a 1.x processor of a family. With ``occupancy`` 0, the registration does not state one."""
    content = TpRegisterRequest(family=family, version="1.0", max_occupancy=max_occupancy).SerializeToString()
    peer.send(Envelope.TP_REGISTER_REQUEST, "register", content)
    while (await peer.receive()).message_type != Envelope.TP_REGISTER_RESPONSE:
        pass


async def process(peer: Peer, verdicts: Sequence[TpProcessResponse.Status]) -> None:
    """Answer one transaction with each of the verdicts."""
    for verdict in verdicts:
        asked = await peer.receive()
        while asked.message_type != Envelope.TP_PROCESS_REQUEST:
            asked = await peer.receive()
        answer = TpProcessResponse(status=verdict, message="so it said").SerializeToString()
        peer.send(Envelope.TP_PROCESS_RESPONSE, asked.correlation_id, answer)


def refuse_first_block(node: Node) -> list[BlockCommit]:
    """Let the disk refuse the first blocks. Returns the refused ones."""
    write = node._store.commit_block
    refused: list[BlockCommit] = []

    def commit_block(commit: BlockCommit) -> BlockInfo:
        if not refused:
            refused.append(commit)
            raise StorageFailed("the disk is full")
        return write(commit)

    node._store.commit_block = commit_block  # type: ignore[method-assign]
    return refused
