"""A batch whose submitter waits for its verdict is written with its block, and pending only where that takes long."""

import os
from pathlib import Path

import pytest

from dovetail.ledger.permitted import Permission
from dovetail.validator import node as node_module
from dovetail.validator.node import Node
from dovetail.validator.store import StorageFailed
from protos.client_batch_submit_pb2 import (
    ClientBatchStatus,
    ClientBatchStatusRequest,
    ClientBatchStatusResponse,
    ClientBatchSubmitResponse,
)
from protos.processor_pb2 import TpProcessResponse
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator import activations
from tests.dovetail.validator.activations import NAMESPACES, V1, V2, batch_of, block_of, network, status_of
from tests.dovetail.validator.nodes import open_node, open_peers, process, refuse_first_block, register, signed_batch
from tests.dovetail.validator.peers import run
from tests.dovetail.validator.submissions import acceptance, hand_in

OK, INVALID = TpProcessResponse.OK, TpProcessResponse.INVALID_TRANSACTION


@pytest.fixture(autouse=True)
def _no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "_UNWRITTEN_S_MAX", 3600)


def _writes(node: Node, *, refused: bool = False) -> list[int]:
    """How many batches each write of pending ones holds; the disk may refuse them."""
    write = node._store.add_pending
    writes: list[int] = []

    def add_pending(raw_batches: list[bytes]) -> int:
        writes.append(len(raw_batches))
        if refused:
            raise StorageFailed("the disk is full")
        return write(raw_batches)

    node._store.add_pending = add_pending  # type: ignore[method-assign]
    return writes


def test_it_is_written_with_its_block_alone_and_answered_as_committed(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_node(tmp_path) as node, open_peers(node, 2) as (client, processor):
            await register(processor)
            writes = _writes(node)
            for nonce in ("first", "second"):
                batch = signed_batch(nonce)
                hand_in(client, batch)
                await process(processor, [OK])
                answer = await acceptance(client)
                assert (answer.status, answer.committed) == (ClientBatchSubmitResponse.OK, True)
                assert list(answer.batch_ids) == [batch.id]
                assert (await status_of(client, batch)).status == ClientBatchStatus.COMMITTED
            assert writes == []
            assert list(node._store.pending()) == []

    run(test)


@pytest.mark.parametrize("waits", [True, False])
def test_the_core_is_given_away_for_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool) -> None:
    """Behind its task and behind its answer; all else goes on without."""
    given: list[None] = []
    monkeypatch.setattr(os, "sched_yield", lambda: given.append(None))

    async def test() -> None:
        async with open_node(tmp_path) as node, open_peers(node, 2) as (client, processor):
            await register(processor)
            hand_in(client, signed_batch(), waits=waits)
            await process(processor, [OK])
            await acceptance(client)
            assert (await status_of(client, signed_batch(), wait=True)).status == ClientBatchStatus.COMMITTED
            assert len(given) == (2 if waits else 0)

    run(test)


def test_an_invalid_one_is_written_as_that_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_node(tmp_path) as node, open_peers(node, 2) as (client, processor):
            await register(processor)
            writes = _writes(node)
            hand_in(client, signed_batch())
            await process(processor, [INVALID])
            answer = await acceptance(client)
            assert (answer.status, answer.committed, writes) == (ClientBatchSubmitResponse.OK, False, [])
            assert (await status_of(client, signed_batch())).status == ClientBatchStatus.INVALID

    run(test)


def test_it_becomes_pending_when_its_block_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "_UNWRITTEN_S_MAX", 0.001)

    async def test() -> None:
        async with open_node(tmp_path) as node, open_peers(node, 2) as (client, processor):
            await register(processor)
            writes = _writes(node)
            hand_in(client, signed_batch())
            answer = await acceptance(client)
            assert (answer.status, answer.committed, writes) == (ClientBatchSubmitResponse.OK, False, [1])
            assert len(list(node._store.pending())) == 1
            await process(processor, [OK])
            assert (await status_of(client, signed_batch(), wait=True)).status == ClientBatchStatus.COMMITTED

    run(test)


def test_nobody_hears_of_it_before_it_is_written(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_node(tmp_path) as node, open_peers(node, 3) as (client, processor, other):
            await register(processor)
            writes = _writes(node)
            hand_in(client, signed_batch())
            assert (await processor.receive()).message_type == Envelope.TP_PROCESS_REQUEST
            assert writes == []
            status = await status_of(other, signed_batch())
            assert (status.status, writes) == (ClientBatchStatus.PENDING, [1])
            assert not (await acceptance(client)).committed

    run(test)


def test_it_is_not_accepted_where_the_disk_refuses_it_before_somebody_hears_of_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_node(tmp_path) as node, open_peers(node, 3) as (client, processor, other):
            await register(processor)
            _writes(node, refused=True)
            hand_in(client, signed_batch())
            asked = await processor.receive()
            assert (await status_of(other, signed_batch())).status == ClientBatchStatus.UNKNOWN
            assert (await acceptance(client)).reason == "storage_failed"
            processor.send(
                Envelope.TP_PROCESS_RESPONSE, asked.correlation_id, TpProcessResponse(status=OK).SerializeToString()
            )
            await processor.ping()
            assert (await status_of(other, signed_batch())).status == ClientBatchStatus.UNKNOWN

    run(test)


@pytest.mark.parametrize("refused", [False, True])
def test_where_the_disk_refuses_its_block_it_becomes_pending_or_is_refused(tmp_path: Path, refused: bool) -> None:
    async def test() -> None:
        async with open_node(tmp_path) as node, open_peers(node, 2) as (client, processor):
            await register(processor)
            blocks, writes = refuse_first_block(node), _writes(node, refused=refused)
            hand_in(client, signed_batch())
            await process(processor, [OK])
            answer = await acceptance(client)
            assert (len(blocks), writes, answer.committed) == (1, [1], False)
            if refused:
                assert answer.reason == "storage_failed"
                assert (await status_of(client, signed_batch())).status == ClientBatchStatus.UNKNOWN
            else:
                assert answer.status == ClientBatchSubmitResponse.OK
                await process(processor, [OK])
                assert (await status_of(client, signed_batch(), wait=True)).status == ClientBatchStatus.COMMITTED

    run(test)


def test_it_becomes_pending_when_its_processor_is_gone(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_node(tmp_path) as node, open_peers(node, 2) as (client, processor):
            await register(processor)
            writes = _writes(node)
            hand_in(client, signed_batch())
            assert (await processor.receive()).message_type == Envelope.TP_PROCESS_REQUEST
            processor.close()
            answer = await acceptance(client)
            assert (answer.status, answer.committed, writes) == (ClientBatchSubmitResponse.OK, False, [1])

    run(test)


def test_it_becomes_pending_when_another_comes(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_node(tmp_path) as node, open_peers(node, 3) as (client, processor, other):
            await register(processor)
            writes = _writes(node)
            hand_in(client, signed_batch("first"))
            assert (await processor.receive()).message_type == Envelope.TP_PROCESS_REQUEST
            hand_in(other, signed_batch("second"))
            assert not (await acceptance(client)).committed
            assert not (await acceptance(other)).committed
            assert sum(writes) == len(list(node._store.pending())) == 2

    run(test)


@pytest.mark.parametrize("why", ["nobody waits", "two", "others are pending", "no processor"])
def test_others_are_written_at_once(tmp_path: Path, why: str) -> None:
    async def test() -> None:
        pending = [signed_batch("before", family="of nobody")] if why == "others are pending" else []
        async with open_node(tmp_path, *pending) as node, open_peers(node, 2) as (client, processor):
            if why != "no processor":
                await register(processor)
            writes = _writes(node)
            batches = [signed_batch("1"), signed_batch("2")] if why == "two" else [signed_batch()]
            hand_in(client, *batches, waits=why != "nobody waits")
            answer = await acceptance(client)
            assert (answer.status, answer.committed) == (ClientBatchSubmitResponse.OK, False)
            assert writes == [len(batches)]

    run(test)


def test_a_wait_that_ends_meanwhile_does_not_hear_of_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_node(tmp_path) as node, open_peers(node, 3) as (client, processor, other):
            await register(processor)
            writes = _writes(node)
            asked = ClientBatchStatusRequest(batch_ids=[signed_batch().id], wait=True, timeout=1)
            other.send(Envelope.CLIENT_BATCH_STATUS_REQUEST, "wait", asked.SerializeToString())
            await other.ping()
            hand_in(client, signed_batch())
            while (envelope := await other.receive()).message_type != Envelope.CLIENT_BATCH_STATUS_RESPONSE:
                pass
            (status,) = ClientBatchStatusResponse.FromString(envelope.content).batch_statuses
            assert (status.status, writes) == (ClientBatchStatus.UNKNOWN, [])
            await process(processor, [OK])
            assert (await acceptance(client)).committed

    run(test)


def test_its_block_does_not_wait_for_the_migration_behind_it(tmp_path: Path) -> None:
    """Meanwhile it would have to be written as pending, and the disk could refuse what its sealed block holds."""

    async def test() -> None:
        plan = [Permission(V1), Permission(V2, 2, migrate=NAMESPACES)]
        async with network(tmp_path, plan, leaves=5) as (node, (processor, client)):
            await activations.register(processor, V1)
            await activations.register(processor, V2, migrates=True)
            writes = _writes(node, refused=True)
            batch = batch_of(V1)
            hand_in(client, batch)
            await activations.answer(processor)
            answer = await acceptance(client)
            assert (answer.status, answer.committed, writes) == (ClientBatchSubmitResponse.OK, True, [])
            assert block_of(node, batch.id) == 1

    run(test)
