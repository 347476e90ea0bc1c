"""Permissions that begin or end with a block, at a node on a real socket: which batch enters which block."""

from dataclasses import replace
from pathlib import Path

from dovetail.ledger.ids import TransactionId
from dovetail.ledger.permitted import Permission
from protos.client_batch_submit_pb2 import ClientBatchStatus
from tests.dovetail.validator.activations import (
    INVALID,
    OTHER,
    SETTINGS,
    V1,
    V2,
    answer,
    asked,
    batch_of,
    block_of,
    change_plan,
    network,
    register,
    say,
    status_of,
    submit,
)
from tests.dovetail.validator.peers import run
from tests.dovetail.validator.support import LIMITS


def test_a_version_is_permitted_from_its_first_to_its_last_block(tmp_path: Path) -> None:
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
            # No client submits another batch: the node makes the block that permits the waiting one.
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


def test_a_batch_that_waits_for_a_processor_is_refused_when_its_version_ends(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(V1, until_block=1), Permission(OTHER)]
        old = batch_of(V1)
        async with network(tmp_path, plan, old) as (_, (processor, client)):
            await register(processor, OTHER)
            assert (await status_of(client, old)).reason == "waiting_for_processor"
            await submit(client, batch_of(OTHER))
            await answer(processor)
            status = await status_of(client, old, wait=True)
            assert (status.status, status.reason) == (ClientBatchStatus.INVALID, "family_not_permitted")

    run(test)


def test_a_batch_of_two_versions_waits_for_the_later_one(tmp_path: Path) -> None:
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


def test_a_block_without_applied_batches_takes_no_number(tmp_path: Path) -> None:
    """The next block is chosen while this one runs, and gets the same number."""

    async def test() -> None:
        plan = [Permission(V1), Permission(V2, from_block=2)]
        async with network(tmp_path, plan) as (node, (processor, client)):
            await register(processor, V1, V2)
            refused, good, early = batch_of(V1, nonce="refused"), batch_of(V1, nonce="good"), batch_of(V2)
            await submit(client, refused)
            correlation_id, _ = await asked(processor)
            await submit(client, early, good)
            say(processor, correlation_id, INVALID)
            assert (await answer(processor)).family_version == "1.0"
            assert (await answer(processor)).family_version == "2.0"
            assert (await status_of(client, early, wait=True)).status == ClientBatchStatus.COMMITTED
            assert (block_of(node, good.id), block_of(node, early.id)) == (1, 2)

    run(test)


def test_block_numbers_count_the_block_that_is_not_written_yet(tmp_path: Path) -> None:
    """Batches that are chosen while a block runs enter the next one."""

    async def test() -> None:
        async with network(tmp_path, [Permission(V1, until_block=2)]) as (node, (processor, client)):
            await register(processor, V1)
            first, second, third = (batch_of(V1, nonce=nonce) for nonce in ("first", "second", "third"))
            await submit(client, first)
            held, _ = await asked(processor)
            await submit(client, second)
            say(processor, held)
            held, _ = await asked(processor)
            await submit(client, third)
            say(processor, held)
            status = await status_of(client, third, wait=True)
            assert (status.status, status.reason) == (ClientBatchStatus.INVALID, "family_not_permitted")
            assert (block_of(node, first.id), block_of(node, second.id)) == (1, 2)

    run(test)


def test_a_batch_that_still_runs_is_refused_when_its_version_ends(tmp_path: Path) -> None:
    async def test() -> None:
        limits = replace(LIMITS, block_execution_ms_max=0)
        plan = [Permission(V1, until_block=1), Permission(OTHER)]
        async with network(tmp_path, plan, peers=3, limits=limits) as (node, (slow, quick, client)):
            await register(slow, V1)
            await register(quick, OTHER)
            late, good = batch_of(V1), batch_of(OTHER)
            await submit(client, late, good)
            held, _ = await asked(slow)
            await answer(quick)
            assert (await status_of(client, good, wait=True)).status == ClientBatchStatus.COMMITTED
            status = await status_of(client, late, wait=True)
            assert (status.status, status.reason) == (ClientBatchStatus.INVALID, "family_not_permitted")
            say(slow, held)
            await slow.ping()
            assert (await status_of(client, late)).status == ClientBatchStatus.INVALID
            assert node._store.batch_number(late.id) is None

    run(test)


def test_waiting_batches_show_a_changed_plan(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(SETTINGS), Permission(V1), Permission(V2, from_block=100)]
        dependent = batch_of(V2, nonce="dependent", dependencies=[TransactionId("ab" * 64)])
        async with network(tmp_path, plan, batch_of(V2), dependent) as (_, (processor, client)):
            await register(processor, SETTINGS)
            early, unserved = batch_of(V2), batch_of(V1)
            await submit(client, unserved)
            assert (await status_of(client, early)).reason == "waiting_for_activation"
            assert (await status_of(client, unserved)).reason == "waiting_for_processor"
            await change_plan(processor, client, Permission(SETTINGS), Permission(V2, from_block=200))
            for batch in (unserved,):
                status = await status_of(client, batch, wait=True)
                assert (status.status, status.reason) == (ClientBatchStatus.INVALID, "family_not_permitted")
            assert (await status_of(client, early)).message == "f 2.0 is permitted from block 200 on"
            await change_plan(processor, client, Permission(SETTINGS))
            for batch in (early, dependent):
                status = await status_of(client, batch, wait=True)
                assert (status.status, status.reason) == (ClientBatchStatus.INVALID, "family_not_permitted")

    run(test)


def test_a_batch_waits_for_its_version_before_it_waits_for_a_processor(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(V1), Permission(V2, from_block=2)]
        early = batch_of(V2)
        async with network(tmp_path, plan, early) as (_, (processor, client)):
            await register(processor, V1)
            assert (await status_of(client, early)).reason == "waiting_for_activation"
            await submit(client, batch_of(V1))
            await answer(processor)
            await processor.ping()
            status = await status_of(client, early)
            assert (status.reason, status.message) == ("waiting_for_processor", "")

    run(test)
