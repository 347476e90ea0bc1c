"""Block 0 is made of all genesis batches, or nothing is written and the node does not start."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.ledger.building import SignedBatch
from dovetail.ledger.ids import TransactionId
from dovetail.ledger.limits import Limits
from dovetail.validator.node import GENESIS_FILE, CannotStart, Node
from protos import genesis_pb2
from protos.processor_pb2 import TpProcessResponse
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
from tests.dovetail.validator.peers import run
from tests.dovetail.validator.support import LIMITS, make_id

OK, INVALID, ERROR = TpProcessResponse.OK, TpProcessResponse.INVALID_TRANSACTION, TpProcessResponse.INTERNAL_ERROR
FIRST, ABSENT = signed_transaction("1").id, TransactionId(make_id("absent"))
ONE, TWO, THREE = (signed_batch(nonce) for nonce in ("1", "2", "3"))
NEEDS_ONE = signed_batch("4", dependencies=[FIRST])
NEEDS_NOTHING_KNOWN = signed_batch("5", dependencies=[ABSENT])


def write_genesis(path: Path, *batches: SignedBatch) -> None:
    data = genesis_pb2.GenesisData()
    for batch in batches:
        data.batches.add().MergeFromString(batch.raw)
    (path / GENESIS_FILE).write_bytes(data.SerializeToString())


def assert_nothing_written(node: Node, *batches: SignedBatch) -> None:
    store = node._store
    assert store.head is None
    assert list(store.pending()) == []
    for batch in batches:
        assert store.invalid(batch.id) is None
        assert store.batch_number(batch.id) is None
    assert not node._clients.submissions.open
    # No processor got a task: the node sees before that a batch cannot enter a block.
    assert node._metrics._given_s == {}


async def start(path: Path, verdicts: Sequence[TpProcessResponse.Status], limits: Limits = LIMITS) -> list[str]:
    """Start a node with a processor that gives these verdicts.

    Returns the batch ids of block 0, or raises CannotStart.
    """
    async with open_node(path, chain=False, limits=limits) as node, open_peers(node, 1) as (peer,):
        started = asyncio.create_task(node.reach_genesis(lambda what: None))
        await register(peer)
        answered = asyncio.create_task(process(peer, verdicts))
        try:
            await started
        except CannotStart:
            assert_nothing_written(node, ONE, TWO, THREE, NEEDS_ONE, NEEDS_NOTHING_KNOWN)
            raise
        finally:
            answered.cancel()
        head = node._store.head
        assert head is not None
        assert head.num == 0
        assert node._clients.submissions.open
        assert len(node._queue) == 0
        return [
            batch_id
            for batch_id in (ONE.id, TWO.id, THREE.id, NEEDS_ONE.id)
            if node._store.batch_number(batch_id) is not None
        ]


@pytest.mark.parametrize(
    ("batches", "verdicts", "bad", "said"),
    [
        ([ONE], [INVALID], ONE, "invalid_transaction: so it said"),
        ([ONE, TWO, THREE], [OK, INVALID, OK], TWO, "invalid_transaction: so it said"),
        ([ONE, TWO, NEEDS_ONE], [INVALID, OK], ONE, "invalid_transaction: so it said"),
        ([NEEDS_NOTHING_KNOWN], [], NEEDS_NOTHING_KNOWN, ABSENT),
        ([ONE, NEEDS_NOTHING_KNOWN], [], NEEDS_NOTHING_KNOWN, "dependency_missing: it depends on transaction"),
        ([NEEDS_ONE, ONE], [], NEEDS_ONE, FIRST),
    ],
)
def test_one_bad_batch_is_enough(
    tmp_path: Path, batches: list[SignedBatch], verdicts: list[TpProcessResponse.Status], bad: SignedBatch, said: str
) -> None:
    """After the genesis file is corrected, a node starts in the same folder."""

    async def test() -> None:
        write_genesis(tmp_path, *batches)
        for _ in range(2):
            with pytest.raises(CannotStart) as raised:
                await start(tmp_path, verdicts)
            assert str(tmp_path / GENESIS_FILE) in str(raised.value)
            assert f"no block was made: batch {bad.id}" in str(raised.value)
            assert said in str(raised.value)
        write_genesis(tmp_path, ONE, TWO, NEEDS_ONE)
        assert await start(tmp_path, [OK] * 3) == [ONE.id, TWO.id, NEEDS_ONE.id]

    run(test)


def test_all_must_fit_one_block(tmp_path: Path) -> None:
    async def test() -> None:
        write_genesis(tmp_path, ONE, TWO, THREE)
        with pytest.raises(CannotStart, match=f"batch {THREE.id} does not fit: .* at most 2 transactions"):
            await start(tmp_path, [OK] * 3, replace(LIMITS, block_transactions_max=2))
        assert await start(tmp_path, [OK] * 3, replace(LIMITS, block_transactions_max=3)) == [ONE.id, TWO.id, THREE.id]

    run(test)


def test_what_its_processor_fails_on_is_tried_again_but_not_for_ever(tmp_path: Path) -> None:
    async def test() -> None:
        write_genesis(tmp_path, ONE, TWO)
        limits = replace(LIMITS, internal_error_tries_max=2)
        with pytest.raises(CannotStart, match=f"batch {ONE.id}: internal_error: its processor failed 2 times"):
            await start(tmp_path, [ERROR, OK, ERROR, OK], limits)
        assert await start(tmp_path, [ERROR, OK, OK, OK], limits) == [ONE.id, TWO.id]

    run(test)


def test_who_falls_with_a_processor_that_failed_is_not_the_cause(tmp_path: Path) -> None:
    """TWO may be INVALID only because the writes of ONE are missing.

    So both are tried again, and ONE is named as the cause.
    """

    async def test() -> None:
        write_genesis(tmp_path, ONE, TWO)
        assert await start(tmp_path, [ERROR, INVALID, OK, OK]) == [ONE.id, TWO.id]

    run(test)


def test_the_cause_is_named_and_not_who_fell_with_it(tmp_path: Path) -> None:
    async def test() -> None:
        write_genesis(tmp_path, ONE, TWO)
        limits = replace(LIMITS, internal_error_tries_max=1)
        with pytest.raises(CannotStart, match=f"batch {ONE.id}: internal_error: its processor failed 1 times"):
            await start(tmp_path, [ERROR, INVALID], limits)

    run(test)


def test_pending_batches_without_a_chain_are_not_taken_for_the_genesis(tmp_path: Path) -> None:
    async def test() -> None:
        write_genesis(tmp_path, TWO)
        async with open_node(tmp_path, ONE, chain=False) as node:
            with pytest.raises(CannotStart, match="1 pending batches and no chain: remove it"):
                await node.reach_genesis(lambda what: None)

    run(test)


def test_a_disk_that_refuses_is_tried_again(tmp_path: Path) -> None:
    async def test() -> None:
        write_genesis(tmp_path, ONE)
        async with open_node(tmp_path, chain=False) as node, open_peers(node, 1) as (peer,):
            failed = refuse_first_block(node)
            started = asyncio.create_task(node.reach_genesis(lambda what: None))
            await register(peer)
            await process(peer, [OK, OK])
            await started
            assert len(failed) == 1
            assert node._store.head is not None

    run(test)


def test_batches_whose_processors_come_and_go_wait_for_them_together(tmp_path: Path) -> None:
    async def test() -> None:
        other = signed_batch("6", family="other family", dependencies=[FIRST])
        write_genesis(tmp_path, ONE, other)
        waited: asyncio.Queue[str] = asyncio.Queue()
        async with open_node(tmp_path, chain=False) as node, open_peers(node, 3) as (first, second, third):
            started = asyncio.create_task(node.reach_genesis(waited.put_nowait))
            assert "nobody's 1.0, other family 1.0" in await waited.get()
            await register(first)
            assert "a processor of other family 1.0," in await waited.get()
            await register(second, "other family")
            await process(first, [OK])
            # The second processor leaves after it got its task, without an answer.
            while (await second.receive()).message_type != Envelope.TP_PROCESS_REQUEST:
                pass
            second.close()
            while "a processor of other family 1.0," not in await waited.get():
                pass
            await first.ping()
            assert_nothing_written(node, ONE, other)
            assert not started.done()
            await register(third, "other family")
            await asyncio.gather(process(first, [OK]), process(third, [OK]))
            await started
            head = node._store.head
            assert head is not None
            assert (head.num, head.batch_count) == (0, 2)

    run(test)
