"""Random moves on the pending queue and on a plain model of it: they must agree after each."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.ids import TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.mempool.queue import Pending, PendingQueue, Reason
from tests.dovetail.validator.core.mempool.test_queue import DEPENDENCIES, FAMILIES, order, refused
from tests.dovetail.validator.support import make_batch, make_transaction

LIMITS = Limits(
    pending_batches_max=6, pending_transactions_max=9, pending_bytes_max=4_000, pending_share_percent_max=70
)
SHARE = Fraction(70, 100)
SIGNERS = ("a", "b", "c")
SIZES: tuple[tuple[Callable[[VerifiedBatch], int], int], ...] = (
    (lambda batch: 1, LIMITS.pending_batches_max),
    (lambda batch: len(batch.transactions), LIMITS.pending_transactions_max),
    (
        lambda batch: (
            len(batch.raw)
            + 200 * sum(len((*item.inputs, *item.outputs, *item.dependencies)) for item in batch.transactions)
        ),
        LIMITS.pending_bytes_max,
    ),
)

READY, EXECUTING, PARKED, BACKING_OFF = "ready", "executing", "parked", "backing off"


@dataclass
class Model:
    """The expected state of one batch."""

    arrival: int
    batch: VerifiedBatch
    place: str = READY
    cause: FamilyVersion | TransactionId | None = None
    """The family or transaction that a parked batch waits for; None if the batch waits for its activation."""

    due_ms: int | None = None
    lets_go_first: bool = False
    """Whether it only lets another batch with the same transaction go first."""

    parked: int = 0
    """The number of the move that parked the batch."""

    leads: tuple[TransactionId, ...] = ()
    """The transactions for which this batch alone was woken, of all batches that waited for them."""


class QueueMachine(RuleBasedStateMachine):
    """Random moves, each made on the queue and on a list of models."""

    @initialize()
    def start(self) -> None:
        self.queue = PendingQueue(LIMITS)
        self.models: list[Model] = []
        self.arrival = 0
        self.now_ms = 0
        self.moves = 0

    def _pick(self, data: st.DataObject, *places: str) -> tuple[Model, Pending]:
        model = data.draw(st.sampled_from([model for model in self.models if model.place in places]))
        entry = self.queue.get(model.batch.id)
        assert entry is not None
        return model, entry

    def _holders(self, transaction_id: TransactionId) -> list[Model]:
        return [model for model in self.models if transaction_id in (item.id for item in model.batch.transactions)]

    def _wake_next(self, transaction_id: TransactionId) -> None:
        behind = [
            model
            for model in self.models
            if (model.place, model.cause, model.lets_go_first) == (PARKED, transaction_id, True)
        ]
        if behind:
            first = min(behind, key=lambda model: model.parked)
            first.place = READY
            first.leads += (transaction_id,)

    def _leave(self, model: Model, place: str, behind: TransactionId | None = None) -> None:
        """Move a model to PARKED or BACKING_OFF. With "" as ``place``, its batch has left the queue."""
        self.moves += 1
        model.place, model.parked = place, self.moves
        leads, model.leads = model.leads, ()
        for transaction_id in leads:
            if transaction_id != behind:
                self._wake_next(transaction_id)

    def _any(self, *places: str) -> bool:
        return any(model.place in places for model in self.models)

    @rule(
        count=st.integers(1, 3),
        signer=st.sampled_from(SIGNERS),
        shared=st.sets(st.sampled_from("xyz"), max_size=2),
        entries=st.integers(0, 3),
    )
    def add(self, count: int, signer: str, shared: set[str], entries: int) -> None:
        each = ["1c"] * entries
        transactions = [
            make_transaction((self.arrival, position), inputs=each, outputs=each, dependencies=each)
            for position in range(count)
        ]
        transactions += map(make_transaction, sorted(shared))
        batch = make_batch(self.arrival, *transactions, signer=signer)
        held = [model.batch for model in self.models]
        own = [other for other in held if other.signer == signer]
        fits = True
        for size, most in SIZES:
            every, mine = sum(map(size, held)), sum(map(size, own))
            fits = fits and every + size(batch) <= most
            fits = fits and mine + size(batch) <= ceil((most - (every - mine)) * SHARE)
        assert (refused(self.queue, [batch]) is None) == fits
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
        model.cause = family
        self._leave(model, PARKED)

    @precondition(lambda self: self._any(EXECUTING))
    @rule(data=st.data(), family=st.sampled_from(FAMILIES))
    def park_for_activation(self, data: st.DataObject, family: FamilyVersion) -> None:
        model, entry = self._pick(data, EXECUTING)
        self.queue.park_for_activation(entry, family, "later")
        model.cause = None
        self._leave(model, PARKED)

    @precondition(lambda self: self._any(EXECUTING))
    @rule(data=st.data(), dependency=st.sampled_from(DEPENDENCIES), wait=st.integers(0, 50))
    def park_for_dependency(self, data: st.DataObject, dependency: TransactionId, wait: int) -> None:
        model, entry = self._pick(data, EXECUTING)
        self.queue.park_for_dependency(entry, dependency, self.now_ms + wait)
        model.cause = dependency
        model.due_ms = self.now_ms + wait if model.due_ms is None else model.due_ms
        holders = self._holders(dependency)
        model.lets_go_first = model in holders and len(holders) > 1
        self._leave(model, PARKED, dependency if model.lets_go_first else None)

    @precondition(lambda self: self._any(EXECUTING))
    @rule(data=st.data(), wait=st.integers(0, 50))
    def back_off(self, data: st.DataObject, wait: int) -> None:
        model, entry = self._pick(data, EXECUTING)
        self.queue.back_off(entry, self.now_ms + wait)
        model.due_ms = self.now_ms + wait
        self._leave(model, BACKING_OFF)

    @rule(cause=st.sampled_from([*FAMILIES, *DEPENDENCIES]))
    def wake(self, cause: FamilyVersion | TransactionId) -> None:
        self.queue.wake(cause)
        for model in self.models:
            if model.place == PARKED and model.cause == cause:
                model.place = READY

    @rule(transaction_id=st.sampled_from(DEPENDENCIES), never_ran=st.booleans())
    def wake_refused(self, transaction_id: TransactionId, never_ran: bool) -> None:
        self.queue.wake_refused(transaction_id, never_ran=never_ran)
        for model in self.models:
            if model.place == PARKED and model.cause == transaction_id and not model.lets_go_first:
                model.place = PARKED if self._holders(transaction_id) else READY
        if not never_ran:
            self._wake_next(transaction_id)

    @rule()
    def wake_all(self) -> None:
        self.queue.wake_all()
        for model in self.models:
            if model.place == PARKED:
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
        self._leave(model, "")

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "queue"):
            return
        assert len(self.queue) == len(self.models)
        sizes = [sum(size(model.batch) for model in self.models) for size, _ in SIZES]
        assert sizes == [len(self.queue), self.queue.quota.transactions, self.queue.quota.data_bytes]
        assert self.queue.has_ready == self._any(READY)
        for model in self.models:
            entry = self.queue.get(model.batch.id)
            assert entry is not None
            for transaction in model.batch.transactions:
                holder = self.queue.holder(transaction.id)
                holders = self._holders(transaction.id)
                free = [other for other in holders if not (other.place == PARKED and other.cause in DEPENDENCIES)]
                assert holder is not None
                assert holder.batch in [other.batch for other in free or holders]
            waiting = (
                Reason.WAITING_FOR_PROCESSOR
                if isinstance(model.cause, FamilyVersion)
                else Reason.WAITING_FOR_DEPENDENCY
                if model.cause
                else Reason.WAITING_FOR_ACTIVATION
            )
            expected = {READY: Reason.QUEUED, EXECUTING: Reason.EXECUTING, BACKING_OFF: Reason.QUEUED, PARKED: waiting}
            assert entry.reason is expected[model.place]

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            ready = sorted(model.arrival for model in self.models if model.place == READY)
            assert order(self.queue) == ready


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
test_the_queue_is_its_model = QueueMachine.TestCase
