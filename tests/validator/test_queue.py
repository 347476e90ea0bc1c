"""The pending queue against a plain model: order of arrival among the ready, nothing lost, counts and reasons right."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ledger.batch import VerifiedBatch
from ledger.ids import TransactionId
from ledger.limits import Limits
from ledger.settings import FamilyVersion
from tests.validator.support import make_batch, make_id, make_transaction
from validator.mempool.queue import Pending, PendingQueue, Reason

FAMILIES = [FamilyVersion("intkey", "1.0"), FamilyVersion("intkey", "2.0"), FamilyVersion("other", "1.0")]
DEPENDENCIES = [TransactionId(make_id("transaction", name)) for name in "xyz"]
LIMITS = Limits(pending_batches_max=6, pending_transactions_max=9, pending_bytes_max=4_000)

READY, EXECUTING, PARKED, BACKING_OFF = "ready", "executing", "parked", "backing off"


def popped(queue: PendingQueue) -> Pending:
    entry = queue.pop_ready()
    assert entry is not None
    return entry


def filled(*names: str) -> PendingQueue:
    queue = PendingQueue(Limits())
    for arrival, name in enumerate(names):
        queue.add(arrival, make_batch(name))
    return queue


def order(queue: PendingQueue) -> list[int]:
    """Arrival numbers as they come out."""
    taken = []
    while (entry := queue.pop_ready()) is not None:
        taken.append(entry.arrival)
    return taken


def test_batches_come_out_in_order_of_arrival_however_they_went_in() -> None:
    queue = PendingQueue(Limits())
    for arrival in (5, 1, 9, 3):
        queue.add(arrival, make_batch(arrival))
    assert [entry.arrival for entry in queue] == [5, 1, 9, 3]
    assert order(queue) == [1, 3, 5, 9]
    assert not queue.has_ready
    assert len(queue) == 4


def test_what_is_put_back_keeps_its_place() -> None:
    queue = filled("a", "b", "c")
    first, second = popped(queue), popped(queue)
    assert (first.reason, second.reason) == (Reason.EXECUTING, Reason.EXECUTING)
    queue.put_back(second)
    queue.put_back(first)
    assert first.reason is Reason.QUEUED
    assert order(queue) == [0, 1, 2]


def test_what_waits_for_a_processor_wakes_with_its_family_alone() -> None:
    queue = filled("a", "b", "c")
    for family in (FAMILIES[0], FAMILIES[1]):
        queue.park_for_processor(popped(queue), family)
    entry = queue.get(make_batch("a").id)
    assert entry is not None
    assert (entry.reason, entry.family) == (Reason.WAITING_FOR_PROCESSOR, FAMILIES[0])
    queue.wake(FAMILIES[2])
    queue.wake(FAMILIES[0])
    queue.wake(FAMILIES[0])
    assert (entry.reason, entry.family) == (Reason.QUEUED, None)
    assert order(queue) == [0, 2]


def test_a_wait_for_dependencies_is_timed_from_its_first() -> None:
    queue = filled("a", "b")
    entry = popped(queue)
    queue.park_for_dependency(entry, DEPENDENCIES[0], 100)
    assert (entry.reason, entry.dependency, entry.due_ms) == (Reason.WAITING_FOR_DEPENDENCY, DEPENDENCIES[0], 100)
    queue.wake(DEPENDENCIES[0])
    assert popped(queue) is entry
    queue.park_for_dependency(entry, DEPENDENCIES[1], 900)
    assert entry.due_ms == 100
    assert queue.tick(99) == []
    assert queue.tick(100) == queue.tick(100) == [entry]
    queue.remove(entry)
    assert queue.tick(200) == []
    assert order(queue) == [1]


def test_a_back_off_ends_with_its_time() -> None:
    queue = filled("a", "b")
    entry = popped(queue)
    queue.back_off(entry, 50)
    assert entry.reason is Reason.QUEUED
    assert queue.tick(49) == []
    assert popped(queue).arrival == 1
    assert not queue.has_ready
    assert queue.tick(50) == []
    assert order(queue) == [0]
    assert queue.tick(1_000) == []
    assert not queue.has_ready


def test_what_is_removed_leaves_nothing_behind() -> None:
    queue = filled("a", "b", "c", "d")
    executing, parked, waiting = popped(queue), popped(queue), popped(queue)
    queue.park_for_processor(parked, FAMILIES[0])
    queue.back_off(waiting, 10)
    ready = queue.get(make_batch("d").id)
    assert ready is not None
    for entry in (executing, parked, waiting, ready):
        assert queue.holds_transaction(entry.batch.transactions[0].id)
        queue.remove(entry)
        assert not queue.holds_transaction(entry.batch.transactions[0].id)
        assert queue.get(entry.batch.id) is None
    queue.wake(FAMILIES[0])
    assert queue.tick(1_000) == []
    assert not queue.has_ready
    assert len(queue) == 0
    # The same batch again, as one that was judged invalid may come.
    queue.add(9, make_batch("d"))
    assert order(queue) == [9]


def test_a_transaction_is_held_as_long_as_any_batch_holds_it() -> None:
    shared = make_transaction("shared")
    queue = PendingQueue(Limits())
    for arrival in range(2):
        queue.add(arrival, make_batch(arrival, shared))
    queue.remove(popped(queue))
    assert queue.holds_transaction(shared.id)
    queue.remove(popped(queue))
    assert not queue.holds_transaction(shared.id)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(pending_batches_max=3), "holds 2 of at most 3 batches, 2 more do not fit"),
        (Limits(pending_transactions_max=6), "holds 3 of at most 6 transactions, 4 more do not fit"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_values(limits: Limits, said: str) -> None:
    queue = PendingQueue(limits)
    queue.add(0, make_batch("a", make_transaction("a0"), make_transaction("a1")))
    queue.add(1, make_batch("b"))
    more = [make_batch("c"), make_batch("d", *(make_transaction(f"d{number}") for number in range(3)))]
    refusal = queue.refusal(more)
    assert refusal is not None
    assert said in refusal
    assert queue.refusal(more[:1]) is None
    assert queue.refusal([]) is None
    queue.remove(popped(queue))
    assert queue.refusal(more) is None


def test_bytes_are_bounded_to_the_byte() -> None:
    batch, other = make_batch("a"), make_batch("b")
    size = len(batch.raw) + len(other.raw)
    for most, fits in ((size, True), (size - 1, False)):
        queue = PendingQueue(replace(Limits(), pending_bytes_max=most))
        queue.add(0, batch)
        assert (queue.refusal([other]) is None) is fits


@dataclass
class Model:
    """What one batch should be."""

    arrival: int
    batch: VerifiedBatch
    place: str = READY
    cause: FamilyVersion | TransactionId | None = None
    due_ms: int | None = None


class QueueMachine(RuleBasedStateMachine):
    """Random moves, each made on the queue and on a list of models."""

    @initialize()
    def start(self) -> None:
        self.queue = PendingQueue(LIMITS)
        self.models: list[Model] = []
        self.arrival = 0
        self.now_ms = 0

    def _pick(self, data: st.DataObject, *places: str) -> tuple[Model, Pending]:
        model = data.draw(st.sampled_from([model for model in self.models if model.place in places]))
        entry = self.queue.get(model.batch.id)
        assert entry is not None
        return model, entry

    def _any(self, *places: str) -> bool:
        return any(model.place in places for model in self.models)

    @rule(count=st.integers(1, 3))
    def add(self, count: int) -> None:
        transactions = (make_transaction((self.arrival, position)) for position in range(count))
        batch = make_batch(self.arrival, *transactions)
        held = [model.batch for model in self.models]
        fits = (
            len(held) + 1 <= LIMITS.pending_batches_max
            and sum(len(other.transactions) for other in held) + count <= LIMITS.pending_transactions_max
            and sum(len(other.raw) for other in held) + len(batch.raw) <= LIMITS.pending_bytes_max
        )
        assert (self.queue.refusal([batch]) is None) == fits
        if fits:
            self.queue.add(self.arrival, batch)
            self.models.append(Model(self.arrival, batch))
            self.arrival += 1

    @rule()
    def pop(self) -> None:
        ready = [model for model in self.models if model.place == READY]
        entry = self.queue.pop_ready()
        if not ready:
            assert entry is None
            return
        first = min(ready, key=lambda model: model.arrival)
        assert entry is not None
        assert entry.batch == first.batch
        first.place = EXECUTING

    @precondition(lambda self: self._any(EXECUTING))
    @rule(data=st.data())
    def put_back(self, data: st.DataObject) -> None:
        model, entry = self._pick(data, EXECUTING)
        self.queue.put_back(entry)
        model.place = READY

    @precondition(lambda self: self._any(EXECUTING))
    @rule(data=st.data(), family=st.sampled_from(FAMILIES))
    def park_for_processor(self, data: st.DataObject, family: FamilyVersion) -> None:
        model, entry = self._pick(data, EXECUTING)
        self.queue.park_for_processor(entry, family)
        model.place, model.cause = PARKED, family

    @precondition(lambda self: self._any(EXECUTING))
    @rule(data=st.data(), dependency=st.sampled_from(DEPENDENCIES), wait=st.integers(0, 50))
    def park_for_dependency(self, data: st.DataObject, dependency: TransactionId, wait: int) -> None:
        model, entry = self._pick(data, EXECUTING)
        self.queue.park_for_dependency(entry, dependency, self.now_ms + wait)
        model.place, model.cause = PARKED, dependency
        model.due_ms = self.now_ms + wait if model.due_ms is None else model.due_ms

    @precondition(lambda self: self._any(EXECUTING))
    @rule(data=st.data(), wait=st.integers(0, 50))
    def back_off(self, data: st.DataObject, wait: int) -> None:
        model, entry = self._pick(data, EXECUTING)
        self.queue.back_off(entry, self.now_ms + wait)
        model.place, model.due_ms = BACKING_OFF, self.now_ms + wait

    @rule(cause=st.sampled_from([*FAMILIES, *DEPENDENCIES]))
    def wake(self, cause: FamilyVersion | TransactionId) -> None:
        self.queue.wake(cause)
        for model in self.models:
            if model.place == PARKED and model.cause == cause:
                model.place = READY

    @rule(passed=st.integers(0, 40))
    def tick(self, passed: int) -> None:
        self.now_ms += passed
        late = self.queue.tick(self.now_ms)
        expected = set()
        for model in self.models:
            over = model.due_ms is not None and model.due_ms <= self.now_ms
            if over and model.place == BACKING_OFF:
                model.place, model.due_ms = READY, None
            elif over and model.place == PARKED and model.cause in DEPENDENCIES:
                expected.add(model.batch.id)
        assert {entry.batch.id for entry in late} == expected
        assert len(late) == len(expected)

    @precondition(lambda self: self.models)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        model, entry = self._pick(data, READY, EXECUTING, PARKED, BACKING_OFF)
        self.queue.remove(entry)
        self.models.remove(model)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "queue"):
            return
        assert len(self.queue) == len(self.models)
        assert {entry.batch.id for entry in self.queue} == {model.batch.id for model in self.models}
        assert self.queue.has_ready == self._any(READY)
        for model in self.models:
            entry = self.queue.get(model.batch.id)
            assert entry is not None
            assert all(self.queue.holds_transaction(transaction.id) for transaction in model.batch.transactions)
            waiting = (
                Reason.WAITING_FOR_PROCESSOR
                if isinstance(model.cause, FamilyVersion)
                else Reason.WAITING_FOR_DEPENDENCY
            )
            expected = {READY: Reason.QUEUED, EXECUTING: Reason.EXECUTING, BACKING_OFF: Reason.QUEUED, PARKED: waiting}
            assert entry.reason is expected[model.place]

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            ready = sorted(model.arrival for model in self.models if model.place == READY)
            assert order(self.queue) == ready


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
test_the_queue_is_its_model = QueueMachine.TestCase
