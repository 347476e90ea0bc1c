"""Waits for transactions end: dependent batches are INVALID, and batches that hold the transaction are tried again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.ids import BatchId, TransactionId
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.blocks.production import Production
from dovetail.validator.core.consensus.solo import SoloEngine
from dovetail.validator.core.execution.model import Rejected, Withdrawn
from dovetail.validator.core.journal.rules import Body
from dovetail.validator.core.mempool.queue import Pending, PendingQueue, Reason
from dovetail.validator.metrics import Metrics
from dovetail.validator.processors.registry import Processors
from dovetail.validator.store import Store
from dovetail.validator.transport.gateway import Delivery
from tests.dovetail.validator.support import (
    LIMITS,
    SIGNER,
    commit,
    make_batch,
    make_transaction,
    no_network,
    open_store,
    permitting,
)

WAIT_MS = LIMITS.dependency_wait_ms


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path)
    yield opened
    opened.close()


class Clock:
    now_ms = 0

    def seconds(self) -> float:
        return self.now_ms / 1000


def production_over(
    store: Store, queue: PendingQueue, clock: Clock, state: dict[str, bytes] | None = None
) -> Production:
    commit(store, [make_batch("genesis")], state)
    processors = Processors(lambda *_: Delivery.SENT, lambda: clock.now_ms, LIMITS)
    return Production(
        store,
        queue,
        processors,
        SoloEngine(1),
        no_network,
        SIGNER,
        LIMITS,
        clock.seconds,
        lambda: clock.now_ms,
        Metrics(LIMITS, clock.seconds),
    )


def parked(queue: PendingQueue, batch: VerifiedBatch, dependency: TransactionId, arrival: int = 0) -> Pending:
    """A queued batch that was tried and waits for a transaction."""
    queue.add(arrival, batch)
    entry = queue.pop_ready()
    assert entry is not None
    queue.park_for_dependency(entry, dependency, WAIT_MS)
    return entry


def test_a_batch_is_tried_again_when_another_with_its_transaction_is_not_committed_in_time(store: Store) -> None:
    """Two batches hold the same transaction. The first batch is in no block, because it waits for a dependency."""
    queue, clock = PendingQueue(LIMITS), Clock()
    production = production_over(store, queue, clock)
    missing = make_transaction("missing").id
    twice = make_transaction("twice")
    first = make_batch("first", make_transaction("asks", dependencies=[missing]), twice)
    second = make_batch("second", twice)
    for arrival, batch in enumerate([first, second]):
        queue.add(arrival, batch)
    entries = [queue.pop_ready(), queue.pop_ready()]
    for entry, awaited in zip(entries, (missing, twice.id), strict=True):
        assert entry is not None
        queue.park_for_dependency(entry, awaited, WAIT_MS)
    clock.now_ms = WAIT_MS
    production.tick()
    verdict = store.invalid(first.id)
    assert verdict is not None
    assert (verdict.reason, verdict.transaction_id) == ("dependency_missing", first.transactions[0].id)
    left = queue.get(second.id)
    assert left is not None
    assert (left.reason, left.due_ms) == (Reason.QUEUED, None)
    assert production.advance().settled == [first.id]
    assert left.reason is Reason.WAITING_FOR_PROCESSOR


def test_a_batch_that_depends_on_its_own_later_transaction_is_invalid(store: Store) -> None:
    queue, clock = PendingQueue(LIMITS), Clock()
    production = production_over(store, queue, clock)
    later = make_transaction("later")
    batch = make_batch("own", make_transaction("asks", dependencies=[later.id]), later)
    parked(queue, batch, later.id)
    clock.now_ms = WAIT_MS
    production.tick()
    verdict = store.invalid(batch.id)
    assert verdict is not None
    assert (verdict.reason, verdict.transaction_id) == ("dependency_missing", batch.transactions[0].id)


def test_a_batch_whose_dependency_is_met_is_tried_again_when_its_wait_ends(store: Store) -> None:
    """The batch waited for another batch with the same transaction. That batch was not committed."""
    queue, clock = PendingQueue(LIMITS), Clock()
    production = production_over(store, queue, clock)
    twice = make_transaction("twice")
    batch = make_batch("both", twice, make_transaction("asks", dependencies=[twice.id]))
    entry = parked(queue, batch, twice.id)
    clock.now_ms = WAIT_MS
    production.tick()
    assert store.invalid(batch.id) is None
    assert (entry.reason, entry.due_ms) == (Reason.QUEUED, None)


def test_a_batch_waits_on_while_its_dependency_is_tried_again(store: Store) -> None:
    """The dependent batch arrived first. The batch that holds the dependency is tried again at the same tick."""
    queue, clock = PendingQueue(LIMITS), Clock()
    production = production_over(store, queue, clock)
    held = make_transaction("held")
    asks = make_batch("asks", make_transaction("asks", dependencies=[held.id]))
    for arrival, batch in enumerate([asks, make_batch("holds", held)]):
        parked(queue, batch, held.id, arrival)
    clock.now_ms = WAIT_MS
    production.tick()
    assert store.invalid(asks.id) is None
    left = queue.get(asks.id)
    assert left is not None
    assert left.due_ms == 2 * WAIT_MS


def test_a_refused_batch_wakes_no_batch_whose_dependency_another_holds(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty batches hold the same transaction and wait for it. Refusing one more costs one check, not twenty."""
    queue, clock = PendingQueue(LIMITS), Clock()
    production = production_over(store, queue, clock, permitting('[{"family":"intkey","version":"1.0"}]'))
    monkeypatch.setattr(Processors, "has", lambda self, family, **_: family.name == "intkey")
    shared = make_transaction("shared")
    for arrival in range(20):
        asks = make_transaction(("asks", arrival), dependencies=[shared.id])
        queue.add(arrival, make_batch(arrival, asks, shared))
    production.advance()
    assert queue.reasons() == {Reason.WAITING_FOR_DEPENDENCY: 20}
    looks: list[BatchId] = []
    check = Body.check

    def counted(body: Body, batch: VerifiedBatch) -> Rejected | Withdrawn | None:
        looks.append(batch.id)
        return check(body, batch)

    monkeypatch.setattr(Body, "check", counted)
    refused = make_batch("refused", make_transaction("never", family=("none", "1.0")), shared)
    queue.add(20, refused)
    assert production.advance().settled == [refused.id]
    assert looks == [refused.id]


def test_a_batch_waits_on_while_its_chain_of_dependencies_may_be_committed(store: Store) -> None:
    """All waits end at the same time, and the last batch of the chain is checked first."""
    queue, clock = PendingQueue(LIMITS), Clock()
    production = production_over(store, queue, clock)
    first, second = make_transaction("first"), make_transaction("second")
    entries = [
        queue.add(0, make_batch("third", make_transaction("third", dependencies=[second.id]))),
        queue.add(1, make_batch("second", make_transaction("x", dependencies=[first.id]), second)),
        queue.add(2, make_batch("first", first)),
    ]
    for entry, awaited in zip(entries, (second.id, first.id), strict=False):
        assert queue.pop_ready() is entry
        queue.park_for_dependency(entry, awaited, WAIT_MS)
    assert queue.pop_ready() is entries[2]
    queue.park_for_processor(entries[2], FamilyVersion("missing", "1.0"))
    clock.now_ms = WAIT_MS
    production.tick()
    assert [entry.due_ms for entry in entries[:2]] == [2 * WAIT_MS] * 2
    queue.remove(entries[2])
    clock.now_ms = 2 * WAIT_MS
    production.tick()
    assert len(queue) == 0
