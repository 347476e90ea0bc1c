"""Batches are written before they are accepted. A batch whose write fails is not accepted."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dovetail.ledger.building import SignedBatch
from dovetail.validator.core.journal.block_run import BlockRun, Concluded
from dovetail.validator.core.journal.model import BlockCommit
from dovetail.validator.node import Node
from dovetail.validator.store import BlockInfo, StorageFailed
from protos.client_batch_submit_pb2 import ClientBatchStatus, ClientBatchSubmitRequest, ClientBatchSubmitResponse
from protos.processor_pb2 import TpProcessResponse
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.activations import status_of, told
from tests.dovetail.validator.nodes import open_node, open_peers, process, register, signed_batch
from tests.dovetail.validator.peers import Peer, run

OK = TpProcessResponse.OK
OK_ANSWER = TpProcessResponse(status=OK).SerializeToString()
_TRAVELS_MS_MAX = 10_000


def _refuse_writes(node: Node, count: int = 1) -> None:
    """Let the next ``count`` writes of pending batches fail."""
    write = node._store.add_pending
    refused: list[int] = []

    def add_pending(raw_batches: list[bytes]) -> int:
        if len(refused) < count:
            refused.append(len(raw_batches))
            raise StorageFailed("the disk is full")
        return write(raw_batches)

    node._store.add_pending = add_pending  # type: ignore[method-assign]


async def _expect_refused(client: Peer, batch: SignedBatch) -> None:
    answer = await _submit(client, batch)
    assert (answer.status, answer.reason) == (ClientBatchSubmitResponse.INTERNAL_ERROR, "storage_failed")


async def _submit(client: Peer, batch: SignedBatch) -> ClientBatchSubmitResponse:
    request = ClientBatchSubmitRequest()
    request.batches.add().ParseFromString(batch.raw)
    answer: ClientBatchSubmitResponse = await told(
        client, request.SerializeToString(), Envelope.CLIENT_BATCH_SUBMIT_REQUEST,
        Envelope.CLIENT_BATCH_SUBMIT_RESPONSE, ClientBatchSubmitResponse,
    )  # fmt: skip
    return answer


def test_a_batch_whose_write_fails_enters_no_block(tmp_path: Path) -> None:
    async def test() -> None:
        refused, later = signed_batch("refused"), signed_batch("later")
        async with open_node(tmp_path) as node, open_peers(node, 2) as (client, processor):
            await register(processor)
            _refuse_writes(node)
            await _expect_refused(client, refused)
            assert (await status_of(client, refused)).status == ClientBatchStatus.UNKNOWN
            assert (await _submit(client, later)).status == ClientBatchSubmitResponse.OK
            await process(processor, [OK])
            assert (await status_of(client, later, wait=True)).status == ClientBatchStatus.COMMITTED
            assert (await status_of(client, refused)).status == ClientBatchStatus.UNKNOWN
            assert list(node._store.pending()) == []
            # The client may submit the batch again, as a new one.
            assert (await _submit(client, refused)).status == ClientBatchSubmitResponse.OK
            await process(processor, [OK])
            assert (await status_of(client, refused, wait=True)).status == ClientBatchStatus.COMMITTED

    run(test)


def test_running_batches_are_committed_although_later_writes_fail(tmp_path: Path) -> None:
    """Batches that do not fit on the disk must not keep others from being committed."""

    async def test() -> None:
        accepted, refused = signed_batch("accepted"), signed_batch("refused")
        async with open_node(tmp_path, accepted) as node, open_peers(node, 2) as (client, processor):
            await register(processor)
            asked = await processor.receive()
            _refuse_writes(node)
            await _expect_refused(client, refused)
            processor.send(Envelope.TP_PROCESS_RESPONSE, asked.correlation_id, OK_ANSWER)
            assert (await status_of(client, accepted, wait=True)).status == ClientBatchStatus.COMMITTED

    run(test)


def test_a_processor_gets_its_next_task_before_the_sealed_block_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processor takes one task at a time, and answers while the block is sealed."""

    async def test() -> None:
        first, second, third = (signed_batch(nonce) for nonce in ("first", "second", "third"))
        async with open_node(tmp_path, first) as node, open_peers(node, 2) as (client, processor):
            conclude, dealer, gateway = BlockRun.conclude, processor.socket._socket, node._gateway._socket._socket

            def answer_meanwhile(*arguments: Any) -> Concluded:
                # The node's loop is blocked here, so the answer waits in the socket.
                if node._store.head.num == 0:  # type: ignore[union-attr]
                    assert dealer.poll(_TRAVELS_MS_MAX), "the second batch is given out before the first is sealed"
                    asked = Envelope.FromString(dealer.recv())
                    processor.send(Envelope.TP_PROCESS_RESPONSE, asked.correlation_id, OK_ANSWER)
                    assert gateway.poll(_TRAVELS_MS_MAX)
                    # The node may handle a tick before it reads the answer.
                    node._loop.call_soon(node._advance)
                return conclude(*arguments)

            monkeypatch.setattr(BlockRun, "conclude", answer_meanwhile)
            write = node._store.commit_block
            given: list[bool] = []
            writing = asyncio.Event()

            def commit_block(commit: BlockCommit) -> BlockInfo:
                if not given:
                    given.append(bool(dealer.poll(_TRAVELS_MS_MAX)))
                    processor.socket.check_soon()
                    writing.set()
                return write(commit)

            node._store.commit_block = commit_block  # type: ignore[method-assign]
            await register(processor, max_occupancy=1)
            asked = await processor.receive()
            for batch in (second, third):
                assert (await _submit(client, batch)).status == ClientBatchSubmitResponse.OK
            processor.send(Envelope.TP_PROCESS_RESPONSE, asked.correlation_id, OK_ANSWER)
            # The client sends no request until then, so the gateway gets the processor's answer alone.
            await writing.wait()
            assert given == [True]
            assert (await status_of(client, first, wait=True)).status == ClientBatchStatus.COMMITTED
            await process(processor, [OK])
            assert (await status_of(client, third, wait=True)).status == ClientBatchStatus.COMMITTED

    run(test)
