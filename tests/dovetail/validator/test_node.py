"""A node on a real socket, with verifiers but no processor: its answers before genesis, and the waits that it keeps."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from dovetail.ledger.building import SignedBatch
from dovetail.validator.node import _run_until_failure
from dovetail.validator.store import StorageLost
from protos.client_batch_submit_pb2 import ClientBatchStatus, ClientBatchStatusRequest, ClientBatchStatusResponse
from protos.node_pb2 import MetricsResponse, NodeStatusResponse, StatusWaitCancel
from protos.processor_pb2 import TpProcessResponse, TpRegisterRequest
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.nodes import (
    open_node,
    open_peers,
    process,
    refuse_first_block,
    register,
    signed_batch,
    signed_transaction,
)
from tests.dovetail.validator.peers import Peer, run
from tests.dovetail.validator.support import LIMITS

OK, INVALID = TpProcessResponse.OK, TpProcessResponse.INVALID_TRANSACTION


async def metric(peer: Peer, name: str) -> dict[tuple[str, ...], float]:
    """The samples of one of the validator's metrics by the values of their labels."""
    peer.send(Envelope.METRICS_REQUEST, "metrics")
    answer = await peer.receive()
    while answer.message_type == Envelope.PING_REQUEST:
        answer = await peer.receive()
    assert (answer.message_type, answer.correlation_id) == (Envelope.METRICS_RESPONSE, "metrics")
    parsed = text_string_to_metric_families(MetricsResponse.FromString(answer.content).text.decode())
    samples = [sample for family in parsed for sample in family.samples if sample.name == f"dovetail_validator_{name}"]
    return {tuple(sample.labels.values()): sample.value for sample in samples}


async def status_of(peer: Peer) -> NodeStatusResponse:
    peer.send(Envelope.NODE_STATUS_REQUEST, "status")
    answer = await peer.receive()
    assert (answer.message_type, answer.correlation_id) == (Envelope.NODE_STATUS_RESPONSE, "status")
    return NodeStatusResponse.FromString(answer.content)


def wait_for(peer: Peer, batch: SignedBatch, correlation_id: str) -> None:
    request = ClientBatchStatusRequest(batch_ids=[batch.id], wait=True, timeout=3_600)
    peer.send(Envelope.CLIENT_BATCH_STATUS_REQUEST, correlation_id, request.SerializeToString())


def test_a_node_without_genesis_tells_how_it_does(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_node(tmp_path, chain=False) as node, open_peers(node, 1) as (peer,):
            assert (await status_of(peer)).status == NodeStatusResponse.NOT_READY
            peer.send(31_337, "no such type")
            counts = await metric(peer, "requests_total")
            assert counts == {
                ("PING_REQUEST",): 1,
                ("NODE_STATUS_REQUEST",): 1,
                ("unknown",): 1,
                ("METRICS_REQUEST",): 1,
            }

    run(test)


def test_waits_end_with_their_connection_and_no_others(tmp_path: Path) -> None:
    async def test() -> None:
        batch = signed_batch()
        async with open_node(tmp_path, batch) as node, open_peers(node, 3) as (stays, leaves, watcher):
            for number in range(5):
                wait_for(leaves, batch, str(number))
            wait_for(stays, batch, "kept")
            await leaves.ping()
            await stays.ping()
            assert await metric(watcher, "waiters") == {(): 6}
            assert (await status_of(watcher)).pending_batches == 1
            with capture_logs() as lines:
                leaves.socket.close()
                while (await metric(watcher, "waiters"))[()] != 1:
                    pass
            assert [line["waits"] for line in lines if line["event"] == "client gone, it waits no longer"] == [5]
            stays.send(Envelope.STATUS_WAIT_CANCEL, "", StatusWaitCancel(correlation_id="kept").SerializeToString())
            await stays.ping()
            assert await metric(watcher, "waiters") == {(): 0}

    run(test)


def test_a_restored_batch_waits_for_its_processor(tmp_path: Path) -> None:
    async def test() -> None:
        batch = signed_batch()
        async with open_node(tmp_path, batch) as node, open_peers(node, 1) as (peer,):
            assert (await metric(peer, "pending_batches"))["waiting_for_processor",] == 1
            request = ClientBatchStatusRequest(batch_ids=[batch.id])
            peer.send(Envelope.CLIENT_BATCH_STATUS_REQUEST, "asked", request.SerializeToString())
            (status,) = ClientBatchStatusResponse.FromString((await peer.receive()).content).batch_statuses
            assert (status.status, status.family_name) == (ClientBatchStatus.PENDING, "nobody's")

    run(test)


def test_a_batch_that_was_alone_for_its_size_counts_what_was_lost_with_it(tmp_path: Path) -> None:
    """The batch is too large for a packed message, so it runs alone at once. Its processor is lost."""

    async def test() -> None:
        batch = signed_batch()
        limits = replace(LIMITS, message_bytes_max=2 * len(signed_transaction().raw))
        async with open_node(tmp_path, batch, limits=limits) as node, open_peers(node, 2) as (processor, client):
            content = TpRegisterRequest(family="nobody's", version="1.0", packed_version=1).SerializeToString()
            processor.send(Envelope.TP_REGISTER_REQUEST, "register", content)
            while (await processor.receive()).message_type != Envelope.TP_PROCESS_REQUEST:
                pass
            processor.socket.close()
            request = ClientBatchStatusRequest(batch_ids=[batch.id]).SerializeToString()
            message = ""
            while not message:
                client.send(Envelope.CLIENT_BATCH_STATUS_REQUEST, "asked", request)
                answer = await client.receive()
                if answer.message_type == Envelope.CLIENT_BATCH_STATUS_RESPONSE:
                    (status,) = ClientBatchStatusResponse.FromString(answer.content).batch_statuses
                    message = status.message
            assert message == (
                "its processor was lost 1 times while it applied this batch alone, or gave no answer within 60000 ms"
                " (task_answer_ms_max)"
            )

    run(test)


def test_the_last_words_of_a_closed_connection_count(tmp_path: Path) -> None:
    """A draining processor answers and closes. The node handles the answer, although it sees the close first."""

    async def test() -> None:
        batch = signed_batch()
        async with open_node(tmp_path, batch) as node, open_peers(node, 2) as (processor, client):
            await register(processor)
            asked = await processor.receive()
            while asked.message_type != Envelope.TP_PROCESS_REQUEST:
                asked = await processor.receive()
            processor.send(Envelope.TP_UNREGISTER_REQUEST, "unregister")
            while (await processor.receive()).message_type != Envelope.TP_UNREGISTER_RESPONSE:
                pass
            answer = TpProcessResponse(status=OK).SerializeToString()
            # From here on the node's loop does not run. When it runs again, both the answer and the close have arrived.
            processor.send(Envelope.TP_PROCESS_RESPONSE, asked.correlation_id, answer)
            processor.leave()
            monitor = node._gateway._monitor
            assert monitor._socket.poll(10_000)
            with capture_logs() as lines:
                monitor._on_readable()
                wait_for(client, batch, "settled")
                told = await client.receive()
                while told.message_type != Envelope.CLIENT_BATCH_STATUS_RESPONSE:
                    told = await client.receive()
            (status,) = ClientBatchStatusResponse.FromString(told.content).batch_statuses
            assert status.status == ClientBatchStatus.COMMITTED
            assert not [line for line in lines if line["event"] == "processor left"]

    run(test)


@pytest.mark.parametrize(
    ("verdicts", "blocks", "committed", "invalid"),
    [([OK], 1, 1, 0), ([INVALID], 0, 0, 1), ([OK, INVALID, OK], 1, 2, 1), ([INVALID, INVALID], 0, 0, 2)],
)
def test_what_became_of_batches_is_counted(
    tmp_path: Path, verdicts: Sequence[TpProcessResponse.Status], blocks: int, committed: int, invalid: int
) -> None:
    async def test() -> None:
        batches = [signed_batch(str(number)) for number in range(len(verdicts))]
        async with open_node(tmp_path, *batches) as node, open_peers(node, 2) as (processor, client):
            request = ClientBatchStatusRequest(batch_ids=[batch.id for batch in batches], wait=True, timeout=3_600)
            client.send(Envelope.CLIENT_BATCH_STATUS_REQUEST, "wait", request.SerializeToString())
            await client.ping()
            await register(processor)
            await process(processor, verdicts)
            assert (await client.receive()).correlation_id == "wait"
            status = await status_of(client)
            assert (status.status, status.head_num) == (NodeStatusResponse.OK, blocks)
            (family,) = status.families
            assert (family.family_name, family.family_version) == ("nobody's", "1.0")
            assert family.totals == status.totals
            counted = status.totals
            assert (counted.blocks_committed, counted.blocks_claimed) == (blocks, blocks)
            assert (counted.batches_committed, counted.transactions_committed) == (committed, committed)
            assert (counted.batches_invalid, counted.transactions_invalid) == (invalid, invalid)
            for name in ("block_seconds_count", "commit_seconds_count", "block_transactions_count", "blocks_total"):
                assert await metric(client, name) == {(): blocks}
            assert await metric(client, "block_transactions_sum") == {(): committed}
            assert await metric(client, "apply_seconds_count") == {("nobody's", "1.0"): len(verdicts)}
            assert await metric(client, "processors") == {("nobody's", "1.0"): 1}
            assert node._metrics._given_s == {}

    run(test)


def test_a_write_that_failed_is_not_timed(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_node(tmp_path, signed_batch()) as node, open_peers(node, 2) as (processor, client):
            failed = refuse_first_block(node)
            wait_for(client, signed_batch(), "wait")
            await client.ping()
            await register(processor)
            await process(processor, [OK, OK])
            assert (await client.receive()).correlation_id == "wait"
            assert len(failed) == 1
            assert await metric(client, "commit_seconds_count") == {(): 1}
            assert await metric(client, "blocks_total") == {(): 1}

    run(test)


def test_a_family_without_processor_and_figures_gives_its_place_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_node(tmp_path) as node, open_peers(node, 2) as (junk, other):
            await register(junk, "junk")
            await register(other, "junk")
            junk.send(Envelope.TP_UNREGISTER_REQUEST, "unregister")
            await junk.ping()
            assert [family.name for family in node._metrics.families] == ["other", "junk"]
            other.send(Envelope.TP_UNREGISTER_REQUEST, "unregister")
            await other.ping()
            assert [family.name for family in node._metrics.families] == ["other"]

    run(test)


def test_however_many_connections_close_the_others_are_asked_seldom(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_node(tmp_path) as node:
            probes = 0
            thrice = asyncio.Event()

            def probe() -> None:
                nonlocal probes
                probes += 1
                if probes == 3:
                    thrice.set()

            node._clients.probe = probe  # type: ignore[method-assign]
            for _ in range(1_000):
                node._on_disconnect()
            assert probes == 1
            # The node probes once more when the first routes are gone, and once for the routes that closed meanwhile.
            await thrice.wait()
            assert node._probe_timer is None
            node._on_disconnect()
            assert probes == 4

    run(test)


@pytest.mark.parametrize("again", [StorageLost("again"), AttributeError("the store is closed")])
def test_what_fails_while_a_node_without_its_disk_ends_is_no_news(
    again: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """The first callback's failure ends the node. The log has one line about that failure, and no stack trace."""

    async def test() -> None:
        loop = asyncio.get_running_loop()

        def fail(how: Exception) -> None:
            raise how

        async def running() -> None:
            loop.call_soon(fail, StorageLost("first"))
            try:
                await loop.create_future()
            finally:
                loop.call_soon(fail, again)
                await asyncio.sleep(0)
                await asyncio.sleep(0)

        with pytest.raises(StorageLost, match="first"):
            await _run_until_failure(running())
        assert caplog.records == []

    run(test)
