"""A task that is carried from block to block reads the state of the newest block, because older states are pruned."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.ledger.listing import Entry
from dovetail.validator.blocks.production import Production
from dovetail.validator.core.consensus.engine import Discard, Effect, Event, Received
from dovetail.validator.core.consensus.solo import SoloEngine
from dovetail.validator.core.execution.model import Rejected, TransactionOutcome, Verdict
from dovetail.validator.core.journal.block_run import BlockRun
from dovetail.validator.core.mempool.queue import PendingQueue
from dovetail.validator.metrics import Metrics
from dovetail.validator.processors.dispatch import dispatch
from dovetail.validator.store import StorageFailed
from protos.packed_pb2 import StateListRequest
from protos.state_context_pb2 import TpStateGetRequest, TpStateGetResponse
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.processors_support import Bench
from tests.dovetail.validator.support import (
    LIMITS,
    SIGNER,
    address,
    commit,
    make_batch,
    make_transaction,
    no_network,
    open_store,
)

BATCHES = [
    # A prefix, so that the task must read the entries by messages.
    make_batch("slow", make_transaction("slow", inputs=[address(1)[:68]], outputs=[address(1)])),
    make_batch("fast", make_transaction("fast", inputs=[address(0x200)], outputs=[address(0x200)])),
]


class Kept:
    """A state that can be pruned. Its name is the value at address 1."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.pruned = False

    def get(self, wanted: str) -> bytes | None:
        if self.pruned:
            raise StorageFailed("lacks entry")
        return self.name if wanted == address(1) else None

    def under(self, prefix: str, after: str) -> Iterator[Entry]:
        if self.pruned:
            raise StorageFailed("lacks entry")
        yield address(1), self.name


class Carried:
    """Two tasks at one processor. The processor answers the second task. The first is carried into the next block."""

    def __init__(self, packed_version: int) -> None:
        self.bench = Bench()
        self.bench.register(packed_version=packed_version, max_occupancy=2)
        self.bench.take_sent()
        self.before, self.after = Kept(b"before"), Kept(b"after")
        self.first = BlockRun(self.before, BATCHES, self.bench.limits)
        self.tasks = dispatch(self.first, self.bench.processors, 1)
        self.context_id = self.bench.take_sent()[0].message.context_id + (":0" if packed_version else "")
        assert self.read() == [b"before"]

    def answer_the_other(self) -> None:
        self.first.complete(self.tasks[1], [[TransactionOutcome(Verdict.OK)]], ("1cf126",))

    def carry(self) -> BlockRun:
        self.answer_the_other()
        following = BlockRun(self.after, BATCHES[:1], self.bench.limits, continues=self.first)
        self.before.pruned = True
        return following

    def read(self) -> list[bytes] | None:
        """The values that the first task reads, singly and in a list; None if both reads are refused."""
        get: Any = self.bench.ask(
            b"p", Envelope.TP_STATE_GET_REQUEST, TpStateGetRequest(context_id=self.context_id, addresses=[address(1)])
        )
        page: Any = self.bench.ask(
            b"p", Envelope.STATE_LIST_REQUEST, StateListRequest(context_id=self.context_id, prefix=address(1)[:68])
        )
        assert list(get.entries) == list(page.entries)
        ok = {type(get).OK: True, type(get).AUTHORIZATION_ERROR: False}[get.status]
        assert ok == (page.status == type(page).OK)
        return [entry.data for entry in get.entries] if ok else None


@pytest.fixture(params=[0, 1])
def carried(request: pytest.FixtureRequest) -> Carried:
    return Carried(request.param)


def test_a_task_reads_the_state_of_the_block_that_carries_it(carried: Carried) -> None:
    carried.carry()
    assert carried.read() == [b"after"]


def test_a_task_whose_block_was_dropped_reads_nothing(carried: Carried) -> None:
    following = carried.carry()
    carried.after.pruned = True
    following.drop()
    assert carried.read() is None


def test_a_task_whose_batch_has_its_result_reads_nothing(carried: Carried) -> None:
    """The batch of the task has a result already, so the task is not carried into the next block.

    Its answer comes later.
    """
    carried.answer_the_other()
    carried.first.reject(0, Rejected("duplicate_transaction", "no"))
    carried.before.pruned = True
    assert carried.read() is None


def test_a_task_whose_run_production_dropped_reads_nothing(tmp_path: Path) -> None:
    """A processor still holds a task of a proposal that the engine dropped."""
    bench = Bench()
    bench.register()
    bench.take_sent()
    store, queue = open_store(tmp_path), PendingQueue(LIMITS)
    commit(store, [make_batch("genesis")])
    engine = DroppingEngine(1)
    production = Production(
        store, queue, bench.processors, engine, no_network, SIGNER, LIMITS, lambda: 0, lambda: 0,
        Metrics(LIMITS, lambda: 0),
    )  # fmt: skip
    queue.add(0, BATCHES[0])
    production.advance()
    (asked,) = bench.take_sent()
    get = TpStateGetRequest(context_id=asked.message.context_id, addresses=[address(1)])
    response: Any = bench.ask(b"p", Envelope.TP_STATE_GET_REQUEST, get)
    assert response.status == TpStateGetResponse.OK
    production.receive("drop")
    response = bench.ask(b"p", Envelope.TP_STATE_GET_REQUEST, get)
    assert response.status == TpStateGetResponse.AUTHORIZATION_ERROR
    assert queue.has_ready
    store.close()


class DroppingEngine(SoloEngine):
    """Drops running proposals when its network sends a message."""

    def step(self, event: Event) -> list[Effect]:
        return [Discard()] if isinstance(event, Received) else super().step(event)
