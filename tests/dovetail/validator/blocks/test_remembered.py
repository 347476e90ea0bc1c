"""How long batches are pending, over restarts, and what ends it: dropped without a verdict."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from dovetail.ledger.ids import TransactionId
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.blocks.production import Production
from dovetail.validator.blocks.remembered import OVERDUE_MAX, Remembered
from dovetail.validator.core.consensus.solo import SoloEngine
from dovetail.validator.core.mempool.queue import Pending, PendingQueue, Reason
from dovetail.validator.metrics import DropCause, Metrics
from dovetail.validator.processors.registry import ProcessorAvailable, Processors
from dovetail.validator.store import QueueRecord, StorageFailed, Store, records
from dovetail.validator.transport.gateway import Delivery
from tests.dovetail.validator.support import LIMITS, SIGNER, commit, make_batch, make_id, no_network, open_store

HOUR_S = 3_600
SOON = replace(LIMITS, pending_wait_s_max=4)
"""Counted in four steps of a second."""

FAMILY = FamilyVersion("intkey", "1.0")


class Node:
    """The queue of a node over a store, its clock, and what it drops."""

    def __init__(self, store: Store, limits: Any = SOON) -> None:
        self.now_s = 50_000.0
        self.store = store
        self.queue = PendingQueue(limits)
        self.remembered = Remembered(store, self.queue, limits, lambda _: False, lambda: self.now_s)
        for arrival, _ in store.pending():
            self.queue.add(arrival, make_batch(arrival))
            self.wait(arrival)

    def accept(self) -> int:
        """The arrival number of a new batch that waits for a processor."""
        arrival = self.store.next_arrival
        self.store.add_pending([make_batch(arrival).raw])
        self.queue.add(arrival, make_batch(arrival))
        return self.wait(arrival)

    def wait(self, arrival: int) -> int:
        entry = self.queue.pop_ready()
        assert entry is not None
        self.queue.park_for_processor(entry, FAMILY)
        return arrival

    def passes(self, seconds: float, tick_s: float = 0.5) -> list[int]:
        """The batches that are overdue at the end."""
        overdue: list[Pending] = []
        for _ in range(round(seconds / tick_s)):
            self.now_s += tick_s
            overdue = self.remembered.tick()
        return [entry.arrival for entry in overdue]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path)
    commit(made, [make_batch("genesis")])
    yield made
    made.close()


def test_a_wait_ends_within_a_step_after_its_limit(store: Store) -> None:
    node = Node(store)
    first = node.accept()
    assert node.passes(1.5) == []
    second = node.accept()
    assert node.passes(3) == []
    assert node.passes(0.5) == [first]
    assert node.passes(0.5) == [first]
    assert node.passes(1) == [first, second]


def test_restarts_do_not_begin_a_wait_anew(store: Store) -> None:
    first = Node(store).accept()
    overdue: list[int] = []
    for _ in range(5):
        assert overdue == []
        overdue = Node(store).passes(1)
    assert overdue == [first]


@pytest.mark.parametrize("left", [0, 1])
def test_a_restart_makes_no_new_batch_look_old(store: Store, left: int) -> None:
    """Arrival numbers begin again after the highest pending one, below the numbers that the earlier run noted."""
    node = Node(store)
    for _ in range(20):
        node.accept()
    old = node.passes(6)
    assert len(old) == 20
    store.reject([], old[left:])
    node = Node(store)
    fresh = node.accept()
    assert node.passes(3.5) == old[:left]
    assert node.passes(1.5) == [*old[:left], fresh]


def test_only_the_time_in_which_the_node_runs_counts(store: Store) -> None:
    node = Node(store)
    first = node.accept()
    assert node.passes(1) == []
    # The process is suspended for a day: one step, however long.
    assert node.passes(24 * HOUR_S, tick_s=24 * HOUR_S) == []
    # And the node is off for a day, which its clock does not show.
    assert Node(store).passes(2) == []
    assert Node(store).passes(1) == [first]


def test_the_default_is_counted_in_steps_of_a_quarter_of_an_hour(store: Store) -> None:
    writes: list[QueueRecord] = []
    node = Node(store, LIMITS)
    write = store.remember_queue
    store.remember_queue = lambda record: (writes.append(record), write(record))  # type: ignore[assignment, method-assign, func-returns-value]
    first = node.accept()
    assert node.passes(24 * HOUR_S, tick_s=300) == []
    assert node.passes(900, tick_s=300) == [first]
    assert len(writes) == 97
    assert len(records.encode_queue(writes[-1])) < 1_000


def test_an_empty_queue_writes_nothing_and_an_old_record_makes_no_batch_older(store: Store) -> None:
    node = Node(store)
    node.accept()
    assert node.passes(4) == []
    record = store.queue_record()
    (entry,) = node.queue
    node.queue.remove(entry)
    store.reject([], [entry.arrival])
    assert node.passes(100) == []
    assert store.queue_record() == record
    node = Node(store)
    late = node.accept()
    assert node.passes(4.5) == []
    assert node.passes(0.5) == [late]


@pytest.mark.parametrize("other_s", [192, 960])
def test_another_limit_begins_anew(store: Store, other_s: int) -> None:
    node = Node(store, replace(LIMITS, pending_wait_s_max=480))
    first = node.accept()
    assert node.passes(480) == []
    node = Node(store, replace(LIMITS, pending_wait_s_max=other_s))
    assert node.passes(other_s) == []
    assert node.passes(other_s / 96) == [first]


def test_a_batch_in_a_running_block_is_not_overdue_until_it_waits_again(store: Store) -> None:
    node = Node(store)
    node.accept()
    node.queue.wake(FAMILY)
    entry = node.queue.pop_ready()
    assert entry is not None
    assert node.passes(6) == []
    node.queue.put_back(entry)
    assert node.passes(0.5) == [entry.arrival]


def test_one_turn_takes_a_bounded_number(store: Store) -> None:
    node = Node(store)
    for number in range(OVERDUE_MAX + 1):
        node.queue.add(number, make_batch(number))
    node.remembered._store.next_arrival = OVERDUE_MAX + 1
    assert node.passes(6) == list(range(OVERDUE_MAX))


def test_a_damaged_record_begins_anew(store: Store) -> None:
    node = Node(store)
    node.accept()
    assert node.passes(4) == []
    with store._write(0) as transaction:
        transaction.put(records.QUEUE_KEY, b"damaged", db=store._tables["meta"])
    with capture_logs() as lines:
        node = Node(store)
    assert [line["event"] for line in lines] == ["begins anew to count how long batches are pending"]
    assert node.passes(4.5) == []
    assert node.passes(0.5) == [0]
    assert store.queue_record().marks


@pytest.mark.parametrize("garbled", [b"", b"\x93\x00", b"\x93\x01\x90\x91\xa1\xff"])
def test_a_garbled_record_is_damage(store: Store, garbled: bytes) -> None:
    with store._write(0) as transaction:
        sealed = records.sealed("meta", records.QUEUE_KEY, garbled)
        transaction.put(records.QUEUE_KEY, sealed, db=store._tables["meta"])
    with pytest.raises(StorageFailed, match="record of the pending queue is garbled"):
        store.queue_record()


def test_a_refused_write_is_repeated(store: Store) -> None:
    node = Node(store)
    node.accept()
    write, failures = store.remember_queue, [StorageFailed("full")]

    def refuse(record: QueueRecord) -> None:
        if failures:
            raise failures.pop()
        write(record)

    store.remember_queue = refuse  # type: ignore[assignment, method-assign]
    assert node.passes(1) == []
    assert store.queue_record() == QueueRecord()
    assert node.passes(0.5) == []
    assert len(store.queue_record().marks) == 1


def test_served_families_are_remembered(store: Store) -> None:
    node = Node(store)
    node.remembered.serve(FAMILY)
    assert node.passes(0.5) == []
    assert Node(store).queue.quota.served == [FAMILY]


class Making:
    """Block production over a queue, and its clock."""

    def __init__(self, store: Store) -> None:
        self.now_s = 0.0
        self.store = store
        self.queue = PendingQueue(SOON)
        self.metrics = Metrics(SOON, self._clock)
        processors = Processors(lambda *_: Delivery.SENT, lambda: self.now_s * 1000, SOON)
        self.production = Production(
            store, self.queue, processors, SoloEngine(1), no_network, SIGNER, SOON, self._clock, lambda: 0, self.metrics
        )

    def _clock(self) -> float:
        return self.now_s

    def add(self, name: str) -> Pending:
        self.store.add_pending([make_batch(name).raw])
        self.queue.add(self.store.next_arrival - 1, make_batch(name))
        entry = self.queue.pop_ready()
        assert entry is not None
        return entry

    def passes(self, seconds: float) -> list[str]:
        """The batches that were settled."""
        settled: list[str] = []
        for _ in range(round(seconds / 0.5)):
            self.now_s += 0.5
            self.production.tick()
            settled += self.production.advance().settled
        return settled


def behind(queue: PendingQueue, entry: Pending) -> None:
    queue.park_for_dependency(entry, TransactionId(make_id("never")), 10**12)


WAITS: dict[Reason, Callable[[PendingQueue, Pending], None]] = {
    Reason.WAITING_FOR_PROCESSOR: lambda queue, entry: queue.park_for_processor(entry, FAMILY),
    Reason.WAITING_FOR_ACTIVATION: lambda queue, entry: queue.park_for_activation(entry, FAMILY, "never"),
    Reason.WAITING_FOR_DEPENDENCY: behind,
    Reason.QUEUED: lambda queue, entry: queue.back_off(entry, 10**12),
}


@pytest.mark.parametrize("reason", WAITS)
def test_every_wait_ends_without_a_verdict(store: Store, reason: Reason) -> None:
    making = Making(store)
    entry = making.add("waits")
    WAITS[reason](making.queue, entry)
    assert making.passes(4.5) == []
    assert entry.reason is reason
    with capture_logs() as lines:
        assert making.passes(0.5) == [entry.batch.id]
    (line,) = [line for line in lines if line["event"] == "batch dropped without a verdict"]
    assert (line["batch_id"], line["reason"], line["was"]) == (entry.batch.id, "it was pending for 4 s", str(reason))
    assert line["signer"] == entry.batch.signer
    assert list(store.pending()) == []
    assert list(making.queue) == []
    assert store.invalid(entry.batch.id) is None
    assert not store.judged_invalid(entry.batch.transactions[0].id)
    assert making.metrics.dropped == {DropCause.WAITED: 1}
    assert making.production.work().settled == 1


def test_what_the_disk_does_not_forget_stays_pending(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    making = Making(store)
    entry = making.add("waits")
    making.queue.park_for_processor(entry, FAMILY)

    def refuse(*_: object) -> None:
        raise StorageFailed("full")

    with monkeypatch.context() as patch:
        patch.setattr(store, "reject", refuse)
        assert making.passes(10) == []
    assert making.queue.get(entry.batch.id) is entry
    assert making.passes(0.5) == [entry.batch.id]


def test_a_registration_is_a_service(store: Store) -> None:
    making = Making(store)
    making.production.on_processor_event(ProcessorAvailable(FAMILY, packed=False))
    assert making.queue.quota.served == [FAMILY]
