"""Versions that come and go with a block, and migrations, at a node on a real socket: what enters which block."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ledger import migration
from ledger.batch import verify_migration
from ledger.building import SignedBatch, build_batch, build_transaction
from ledger.permitted import Permission, encode_permitted_families
from ledger.settings import FamilyVersion
from ledger.transaction import decode_transaction
from protos.client_batch_submit_pb2 import (
    ClientBatchStatus,
    ClientBatchStatusRequest,
    ClientBatchStatusResponse,
    ClientBatchSubmitRequest,
    ClientBatchSubmitResponse,
)
from protos.processor_pb2 import TpProcessRequest, TpProcessResponse, TpRegisterRequest
from protos.transaction_pb2 import TransactionHeader
from protos.validator_pb2 import Message as Envelope
from tests.validator.nodes import open_node, open_peers
from tests.validator.peers import Peer, run
from tests.validator.support import SIGNER, address, permitting
from validator.journal import migrations
from validator.node import Node

V1, V2 = FamilyVersion("f", "1.0"), FamilyVersion("f", "2.0")
OK, INVALID, ERROR = TpProcessResponse.OK, TpProcessResponse.INVALID_TRANSACTION, TpProcessResponse.INTERNAL_ERROR
PREFIX = address(1)[:6]
NAMESPACES = (PREFIX,)


def batch_of(*families: FamilyVersion, nonce: str = "1") -> SignedBatch:
    transactions = [
        build_transaction(
            SIGNER, batcher_pubkey=SIGNER.public_key, family_name=name, family_version=version, inputs=(), outputs=(),
            payload=b"", payload_encoding="", nonce=f"{nonce} {place}",
        )
        for place, (name, version) in enumerate(families)
    ]  # fmt: skip
    return build_batch(SIGNER, transactions)


def planned(*permissions: Permission) -> dict[str, bytes | None]:
    return {**permitting(encode_permitted_families(permissions))}


async def register(peer: Peer, *families: FamilyVersion, migrates: bool = False, packed: bool = False) -> None:
    for name, version in families:
        request = TpRegisterRequest(
            family=name, version=version, namespaces=NAMESPACES, migrates=migrates, packed_version=int(packed)
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
    response = TpProcessResponse(status=verdict, message="so it said")
    peer.send(Envelope.TP_PROCESS_RESPONSE, correlation_id, response.SerializeToString())
    return request.header


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
    path: Path, plan: Sequence[Permission], *pending: SignedBatch, peers: int = 2, leaves: int = 0, chain: bool = True
) -> AsyncIterator[tuple[Node, list[Peer]]]:
    state = {**planned(*plan), **{address(number): b"v" for number in range(leaves)}}
    async with open_node(path, *pending, chain=chain, state=state) as node, open_peers(node, peers) as opened:
        yield node, opened


def test_a_version_enters_with_its_first_block_and_leaves_with_its_last(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(V1, until_block=2), Permission(V2, from_block=3)]
        early = batch_of(V2)
        async with network(tmp_path, plan, early) as (node, (processor, client)):
            await register(processor, V1, V2)
            status = await status_of(client, early)
            assert (status.status, status.reason) == (ClientBatchStatus.PENDING, "waiting_for_activation")
            assert (status.family_name, status.family_version) == V2
            assert status.message == "f 2.0 is permitted from block 3 on"
            for num in (1, 2):
                batch = batch_of(V1, nonce=f"old {num}")
                await submit(client, batch)
                assert (await answer(processor)).family_version == "1.0"
                assert (await status_of(client, batch, wait=True)).status == ClientBatchStatus.COMMITTED
                assert block_of(node, batch.id) == num
            # Nobody hands anything in: the block that lets it in is made for it.
            assert (await answer(processor)).family_version == "2.0"
            assert (await status_of(client, early, wait=True)).status == ClientBatchStatus.COMMITTED
            assert block_of(node, early.id) == 3
            late = batch_of(V1, nonce="late")
            await submit(client, late)
            status = await status_of(client, late, wait=True)
            assert (status.status, status.reason) == (ClientBatchStatus.INVALID, "family_not_permitted")
            assert "f 1.0 was permitted until block 2, this is block 4" in status.invalid_transactions[0].message
            assert "f 2.0 from block 3" in status.invalid_transactions[0].message

    run(test)


def test_what_waits_for_a_processor_of_a_version_that_ends_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        other = FamilyVersion("other", "1.0")
        plan = [Permission(V1, until_block=1), Permission(other)]
        old = batch_of(V1)
        async with network(tmp_path, plan, old) as (_, (processor, client)):
            await register(processor, other)
            assert (await status_of(client, old)).reason == "waiting_for_processor"
            await submit(client, batch_of(other))
            await answer(processor)
            status = await status_of(client, old, wait=True)
            assert (status.status, status.reason) == (ClientBatchStatus.INVALID, "family_not_permitted")

    run(test)


def test_a_batch_of_both_versions_waits_for_the_later(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(V1), Permission(V2, from_block=2)]
        both, first = batch_of(V1, V2, nonce="both"), batch_of(V1)
        async with network(tmp_path, plan, both) as (node, (processor, client)):
            await register(processor, V1, V2)
            await submit(client, first)
            for version in ("1.0", "1.0", "2.0"):
                assert (await answer(processor)).family_version == version
            assert (await status_of(client, both, wait=True)).status == ClientBatchStatus.COMMITTED
            assert (block_of(node, first.id), block_of(node, both.id)) == (1, 2)

    run(test)


def test_a_block_that_came_to_nothing_takes_no_number(tmp_path: Path) -> None:
    """While it is judged the next is chosen: that one is still the first, and not the one behind it."""

    async def test() -> None:
        plan = [Permission(V1), Permission(V2, from_block=2)]
        async with network(tmp_path, plan) as (node, (processor, client)):
            await register(processor, V1, V2)
            refused, good, early = batch_of(V1, nonce="refused"), batch_of(V1, nonce="good"), batch_of(V2)
            await submit(client, refused)
            correlation_id, _ = await asked(processor)
            await submit(client, early, good)
            response = TpProcessResponse(status=INVALID, message="no")
            processor.send(Envelope.TP_PROCESS_RESPONSE, correlation_id, response.SerializeToString())
            assert (await answer(processor)).family_version == "1.0"
            assert (await answer(processor)).family_version == "2.0"
            assert (await status_of(client, early, wait=True)).status == ClientBatchStatus.COMMITTED
            assert (block_of(node, good.id), block_of(node, early.id)) == (1, 2)

    run(test)


@pytest.mark.parametrize("leaves", [0, 5, 2_001])
def test_a_migration_comes_by_itself_before_its_version(tmp_path: Path, leaves: int) -> None:
    async def test() -> None:
        plan = [Permission(V1, until_block=1), Permission(V2, 2, migrate=NAMESPACES)]
        early = batch_of(V2)
        async with network(tmp_path, plan, early, leaves=leaves) as (node, (processor, client)):
            await register(processor, V1)
            await register(processor, V2, migrates=True)
            await submit(client, batch_of(V1))
            assert (await answer(processor)).family_version == "1.0"
            slices = 256 if leaves > 2_000 else 1
            for number in range(slices):
                header = await answer(processor)
                assert header.signer_pubkey == header.batcher_pubkey == migration.PUBLIC_KEY
                assert (header.family_name, header.family_version) == V2
                assert (header.nonce, header.payload_encoding) == (
                    f"migration {number + 1}/{slices}", migration.PAYLOAD_ENCODING,
                )  # fmt: skip
                assert [*header.inputs] == [*header.outputs] == [PREFIX + ("" if slices == 1 else f"{number:02x}")]
            assert (await answer(processor)).signer_pubkey == SIGNER.public_key
            assert (await status_of(client, early, wait=True)).status == ClientBatchStatus.COMMITTED
            assert migrations_on(node) == [2]
            assert block_of(node, early.id) == 3
            assert node._production.migration_of(plan[1]) == ("DONE", "")
        # A node that begins again has nothing left to migrate.
        again = batch_of(V2, nonce="again")
        async with network(tmp_path, plan, again, chain=False) as (node, (processor, client)):
            await register(processor, V2, migrates=True)
            assert (await answer(processor)).signer_pubkey == SIGNER.public_key
            assert (await status_of(client, again, wait=True)).status == ClientBatchStatus.COMMITTED
            assert migrations_on(node) == [2]

    run(test)


def test_a_refused_migration_leaves_the_chain_going_and_is_asked_for_again(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(V1), Permission(V2, 1, migrate=NAMESPACES)]
        early = batch_of(V2)
        async with network(tmp_path, plan, early, peers=3) as (node, (first, second, client)):
            await register(first, V2, migrates=True)
            assert (await answer(first, INVALID)).signer_pubkey == migration.PUBLIC_KEY
            await register(first, V1)
            old = batch_of(V1)
            await submit(client, old)
            assert (await answer(first)).family_version == "1.0"
            assert (await status_of(client, old, wait=True)).status == ClientBatchStatus.COMMITTED
            assert (await status_of(client, early)).reason == "waiting_for_activation"
            assert node._production.migration_of(plan[1]) == ("REFUSED", "invalid_transaction: so it said")
            first.send(Envelope.TP_UNREGISTER_REQUEST, "leave", b"")
            await first.ping()
            await register(second, V2, migrates=True)
            assert (await answer(second)).signer_pubkey == migration.PUBLIC_KEY
            assert (await answer(second)).signer_pubkey == SIGNER.public_key
            assert (await status_of(client, early, wait=True)).status == ClientBatchStatus.COMMITTED
            assert migrations_on(node) == [2]

    run(test)


def test_without_a_processor_that_migrates_the_version_waits_and_nobody_else(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(V1), Permission(V2, 1, migrate=NAMESPACES)]
        early, old = batch_of(V2), batch_of(V1)
        async with network(tmp_path, plan, early) as (node, (processor, client)):
            await register(processor, V1, V2)
            await submit(client, old)
            assert (await answer(processor)).family_version == "1.0"
            assert (await status_of(client, old, wait=True)).status == ClientBatchStatus.COMMITTED
            assert (await status_of(client, early)).reason == "waiting_for_activation"
            assert node._production.migration_of(plan[1]) == ("DUE", "")

    run(test)


def test_a_migration_whose_processor_is_lost_or_fails_is_tried_again(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(V2, 1, migrate=NAMESPACES)]
        early = batch_of(V2)
        async with network(tmp_path, plan, early, peers=3, leaves=2_001) as (node, (first, second, client)):
            await register(first, V2, migrates=True)
            for _ in range(100):
                await answer(first)
            await asked(first)
            first.socket.close()
            await register(second, V2, migrates=True)
            assert (await answer(second, ERROR)).nonce == "migration 1/256"
            for number in range(256):
                assert (await answer(second)).nonce == f"migration {number + 1}/256"
            assert (await answer(second)).signer_pubkey == SIGNER.public_key
            assert (await status_of(client, early, wait=True)).status == ClientBatchStatus.COMMITTED
            assert migrations_on(node) == [1]

    run(test)


def test_a_migration_goes_by_the_conversation(tmp_path: Path) -> None:
    """However a processor gets the rest: in messages of many, its lists and writes would be too large."""

    async def test() -> None:
        plan = [Permission(V2, 1, migrate=NAMESPACES)]
        early = batch_of(V2)
        async with network(tmp_path, plan, early) as (_, (processor, _)):
            await register(processor, V2, migrates=True, packed=True)
            assert (await answer(processor)).signer_pubkey == migration.PUBLIC_KEY
            while (await processor.receive()).message_type != Envelope.PACKED_PROCESS_REQUEST:
                pass

    run(test)


def test_no_client_hands_in_a_migration(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(V2, 5, migrate=NAMESPACES)]
        async with network(tmp_path, plan) as (node, (_, client)):
            request = ClientBatchSubmitRequest()
            due = migrations.batch_for(plan[0], node._production._base())
            request.batches.add().ParseFromString(due.raw)
            response = await told(
                client, request.SerializeToString(), Envelope.CLIENT_BATCH_SUBMIT_REQUEST,
                Envelope.CLIENT_BATCH_SUBMIT_RESPONSE, ClientBatchSubmitResponse,
            )  # fmt: skip
            assert response.status == ClientBatchSubmitResponse.INVALID_BATCH
            assert "the key of migrations" in response.message

    run(test)
