"""A node whose chain begins with a plan, and processors and clients of a family in two versions.

The tests of activation and of migrations share this module. Assertions on blocks and waits by the clock do not belong
here.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dovetail.ledger import migration, settings
from dovetail.ledger.batch import verify_migration
from dovetail.ledger.building import SignedBatch, build_batch, build_transaction
from dovetail.ledger.ids import TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.permitted import PERMITTED_AT, Permission, encode_permitted_families
from dovetail.ledger.settings import TRANSACTION_FAMILIES, FamilyVersion, encode_setting
from dovetail.ledger.transaction import decode_transaction
from dovetail.validator.node import Node
from protos.client_batch_submit_pb2 import (
    ClientBatchStatus,
    ClientBatchStatusRequest,
    ClientBatchStatusResponse,
    ClientBatchSubmitRequest,
    ClientBatchSubmitResponse,
)
from protos.processor_pb2 import TpProcessRequest, TpProcessResponse, TpRegisterRequest
from protos.state_context_pb2 import TpStateEntry, TpStateSetRequest
from protos.transaction_pb2 import TransactionHeader
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.nodes import open_node, open_peers
from tests.dovetail.validator.peers import Peer
from tests.dovetail.validator.support import LIMITS, SIGNER, address, permitting

V1, V2 = FamilyVersion("f", "1.0"), FamilyVersion("f", "2.0")
OK, INVALID, ERROR = TpProcessResponse.OK, TpProcessResponse.INVALID_TRANSACTION, TpProcessResponse.INTERNAL_ERROR
PREFIX = address(1)[:6]
NAMESPACES = (PREFIX,)


OTHER = FamilyVersion("other", "1.0")
SETTINGS = FamilyVersion(settings.FAMILY_NAME, settings.FAMILY_VERSION)


def batch_of(
    *families: FamilyVersion, nonce: str = "1", outputs: Sequence[str] = (), dependencies: Sequence[TransactionId] = ()
) -> SignedBatch:
    transactions = [
        build_transaction(
            SIGNER, batcher_pubkey=SIGNER.public_key, family_name=name, family_version=version, inputs=outputs,
            outputs=outputs, dependencies=dependencies, payload=b"", payload_encoding="", nonce=f"{nonce} {place}",
        )
        for place, (name, version) in enumerate(families)
    ]  # fmt: skip
    return build_batch(SIGNER, transactions)


def planned(*permissions: Permission) -> dict[str, bytes | None]:
    return {**permitting(encode_permitted_families(permissions))}


async def register(peer: Peer, *families: FamilyVersion, migrates: bool = False, packed: bool = False) -> None:
    for name, version in families:
        request = TpRegisterRequest(
            family=name,
            version=version,
            namespaces=(settings.NAMESPACE,) if name == settings.FAMILY_NAME else NAMESPACES,
            migrates=migrates,
            packed_version=int(packed),
        )
        peer.send(Envelope.TP_REGISTER_REQUEST, "register", request.SerializeToString())
        while (await peer.receive()).message_type != Envelope.TP_REGISTER_RESPONSE:
            pass


async def asked(peer: Peer) -> tuple[str, TpProcessRequest]:
    """The next transaction that a processor is given."""
    while (envelope := await peer.receive()).message_type != Envelope.TP_PROCESS_REQUEST:
        pass
    return envelope.correlation_id, TpProcessRequest.FromString(envelope.content)


async def answer(peer: Peer, verdict: TpProcessResponse.Status = OK) -> TransactionHeader:
    correlation_id, request = await asked(peer)
    say(peer, correlation_id, verdict)
    return request.header


async def change_plan(processor: Peer, client: Peer, *plan: Permission, padding: int = 0) -> None:
    """Put another plan on the chain. ``processor`` must be that of SETTINGS, and must have no other task.

    ``padding``: how many bytes the leaf holds beside the plan.
    """
    batch = batch_of(SETTINGS, nonce=repr(plan), outputs=[PERMITTED_AT])
    await submit(client, batch)
    correlation_id, request = await asked(processor)
    assert request.header.family_name == SETTINGS.name
    value = encode_setting({TRANSACTION_FAMILIES: encode_permitted_families(plan), "padding": padding * "p"})
    entries = [TpStateEntry(address=PERMITTED_AT, data=value)]
    content = TpStateSetRequest(context_id=request.context_id, entries=entries).SerializeToString()
    processor.send(Envelope.TP_STATE_SET_REQUEST, "set", content)
    while (await processor.receive()).message_type != Envelope.TP_STATE_SET_RESPONSE:
        pass
    processor.send(Envelope.TP_PROCESS_RESPONSE, correlation_id, TpProcessResponse(status=OK).SerializeToString())
    assert (await status_of(client, batch, wait=True)).status == ClientBatchStatus.COMMITTED


async def leave(processor: Peer) -> None:
    """Unregister. The validator handles this before any message that is sent later."""
    processor.send(Envelope.TP_UNREGISTER_REQUEST, "leave", b"")
    while (await processor.receive()).message_type != Envelope.TP_UNREGISTER_RESPONSE:
        pass


def say(processor: Peer, correlation_id: str, verdict: TpProcessResponse.Status = OK) -> None:
    response = TpProcessResponse(status=verdict, message="so it said")
    processor.send(Envelope.TP_PROCESS_RESPONSE, correlation_id, response.SerializeToString())


async def told(client: Peer, content: bytes, request: int, response: int, answer: Any) -> Any:
    client.send(request, "client", content)
    while (envelope := await client.receive()).message_type != response:
        pass
    return answer.FromString(envelope.content)


async def submit(client: Peer, *batches: SignedBatch) -> None:
    request = ClientBatchSubmitRequest()
    for batch in batches:
        request.batches.add().ParseFromString(batch.raw)
    response = await told(
        client, request.SerializeToString(), Envelope.CLIENT_BATCH_SUBMIT_REQUEST,
        Envelope.CLIENT_BATCH_SUBMIT_RESPONSE, ClientBatchSubmitResponse,
    )  # fmt: skip
    assert response.status == ClientBatchSubmitResponse.OK, response


async def status_of(client: Peer, batch: SignedBatch, *, wait: bool = False) -> ClientBatchStatus:
    content = ClientBatchStatusRequest(batch_ids=[batch.id], wait=wait, timeout=3_600).SerializeToString()
    response: ClientBatchStatusResponse = await told(
        client, content, Envelope.CLIENT_BATCH_STATUS_REQUEST, Envelope.CLIENT_BATCH_STATUS_RESPONSE,
        ClientBatchStatusResponse,
    )  # fmt: skip
    return response.batch_statuses[0]


def block_of(node: Node, batch_id: str) -> int:
    number = node._store.batch_number(batch_id)  # type: ignore[arg-type]
    assert number is not None
    return node._store.block_of_batch(number).num


def migrations_on(node: Node) -> list[int]:
    """The numbers of the blocks that hold a migration."""
    head = node._store.head
    assert head is not None
    found = []
    for num in range(head.num + 1):
        block = node._store.block(num)
        assert block is not None
        for number in block.transactions:
            stored = node._store.transaction(number)
            batch = node._store.batch(stored.batch_number)
            if stored.position == 0 and batch.raw and num:
                first = verify_migration(batch.raw).transactions[0]
                if decode_transaction(first.raw).header.signer_pubkey == migration.PUBLIC_KEY:
                    found.append(num)
    return found


@asynccontextmanager
async def network(
    path: Path,
    plan: Sequence[Permission],
    *pending: SignedBatch,
    peers: int = 2,
    leaves: int = 0,
    value: bytes = b"v",
    chain: bool = True,
    limits: Limits = LIMITS,
) -> AsyncIterator[tuple[Node, list[Peer]]]:
    state = {**planned(*plan), **{address(number): value for number in range(leaves)}}
    async with (
        open_node(path, *pending, chain=chain, limits=limits, state=state) as node,
        open_peers(node, peers) as opened,
    ):
        yield node, opened
