"""The pending queue: accepted batches in order of arrival, ready or waiting. No disk, no clock.

A waiting batch is parked under its cause: a processor, an activation or a transaction. The queue does not look at the
batch again before the cause has come, and the batch delays no other.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from enum import StrEnum
from heapq import heappop, heappush
from typing import Final, NamedTuple

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.ids import BatchId, TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.mempool.index import TransactionIndex
from dovetail.validator.core.mempool.quota import Quota

INJECTED: Final = -1
"""The arrival number of injected batches, which no client submitted: they come before all others."""


class Reason(StrEnum):
    """Why a batch is PENDING (API.md, Batches and their status)."""

    QUEUED = "queued"
    EXECUTING = "executing"
    WAITING_FOR_PROCESSOR = "waiting_for_processor"
    WAITING_FOR_DEPENDENCY = "waiting_for_dependency"
    WAITING_FOR_ACTIVATION = "waiting_for_activation"


class _Activation(NamedTuple):
    """Parking place of batches that wait until their family may enter a block."""

    family: FamilyVersion


class _Behind(NamedTuple):
    """Parking place of batches that wait for another batch with the same transaction."""

    transaction: TransactionId


_Cause = FamilyVersion | TransactionId | _Activation | _Behind


class Pending:
    """One accepted batch. The queue changes it; production changes ``tries``, ``losses``, ``failure`` and ``alone``."""

    __slots__ = (
        "activation", "alone", "arrival", "batch", "dependency", "due_ms", "failure", "family", "losses", "reason",
        "tries",
    )  # fmt: skip

    def __init__(self, arrival: int, batch: VerifiedBatch) -> None:
        self.arrival = arrival
        self.batch = batch
        self.reason = Reason.QUEUED
        self.family: FamilyVersion | None = None
        self.dependency: TransactionId | None = None
        self.activation = ""
        """When the batch's family may enter a block, in words. Empty unless the batch waits for its family."""
        self.due_ms: int | None = None
        """When the batch's wait for a dependency, or its back-off, ends."""
        self.tries = 0
        """How often its processor answered with an internal error."""
        self.losses = 0
        """How often a processor was lost while it held only this batch."""
        self.failure = ""
        """Why earlier tries gave no verdict, in words. Empty before the first try."""
        self.alone = False
        """Whether it needs a task of its own, because a processor was lost while it held this batch."""

    def asks_for(self, dependency: TransactionId) -> TransactionId | None:
        """The transaction of this batch that depends on ``dependency``; None if the batch holds it earlier.

        If None, the batch waits only because another batch with the same transaction goes first.
        """
        for transaction in self.batch.transactions:
            if transaction.id == dependency:
                return None
            if dependency in transaction.dependencies:
                return transaction.id
        return None


_STALE_MAX: Final = 1_000


class PendingQueue:
    """All pending batches, and in ``quota`` how many there may be."""

    def __init__(self, limits: Limits) -> None:
        self.quota = Quota(limits)
        self._entries: dict[BatchId, Pending] = {}
        self._ready: list[tuple[int, BatchId]] = []
        self._parked: defaultdict[_Cause, dict[BatchId, None]] = defaultdict(dict)
        self._backing_off: dict[BatchId, None] = {}
        self._index = TransactionIndex()
        """In the index, batches that wait for a dependency come after the others."""
        self._leads: defaultdict[BatchId, dict[TransactionId, None]] = defaultdict(dict)
        """By batch: its transactions for which other batches with the same transaction wait behind it."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Pending]:
        """Every pending batch, in the order in which they were added."""
        return iter(self._entries.values())

    def reasons(self) -> Counter[Reason]:
        """How many batches are pending for each reason; looks at every one."""
        return Counter(entry.reason for entry in self._entries.values())

    def get(self, batch_id: BatchId) -> Pending | None:
        return self._entries.get(batch_id)

    def holds(self, transaction_id: TransactionId) -> bool:
        """Whether a pending batch holds this transaction."""
        return transaction_id in self._index

    def may_bring(self, dependency: TransactionId, entry: Pending) -> bool:
        """Whether a pending batch other than ``entry`` holds the transaction that ``entry`` waits for."""
        if entry.asks_for(dependency) is None:
            return self._index.is_held_by_another(entry.batch.id, dependency)
        return dependency in self._index

    def holder(self, transaction_id: TransactionId) -> Pending | None:
        """A pending batch that holds this transaction, if possible one that waits for no dependency."""
        batch_id = self._index.first(transaction_id)
        return None if batch_id is None else self._entries[batch_id]

    def add(self, arrival: int, batch: VerifiedBatch, *, kept: bool = False) -> Pending:
        """Queue a new batch. The caller has checked the quota; ``kept``: by the room for kept batches."""
        assert batch.id not in self._entries, "an entry would lose its place"
        entry = self._entries[batch.id] = Pending(arrival, batch)
        self.quota.reserve(batch, kept=kept)
        self._index.add(batch)
        heappush(self._ready, (arrival, batch.id))
        return entry

    def inject(self, batch: VerifiedBatch) -> None:
        """Queue a batch that no client submitted, before all others. It gets a task of its own."""
        self.add(INJECTED, batch).alone = True

    def remove(self, entry: Pending) -> None:
        """Remove a batch that is committed, INVALID or dropped."""
        self._unpark(entry)
        del self._entries[entry.batch.id]
        self._step_aside(entry)
        self.quota.release(entry.batch)
        self._index.remove(entry.batch)
        if len(self._ready) > 2 * len(self._entries) + _STALE_MAX:
            # Stale items of the heap would stay until everything older is done.
            self._ready = sorted(set(filter(self._is_ready, self._ready)))

    def droppable(self) -> Iterator[Pending]:
        """The batches of clients that no block is running now, in order of arrival."""
        return (entry for entry in self if entry.reason is not Reason.EXECUTING and entry.arrival != INJECTED)

    @property
    def is_backing_off(self) -> bool:
        """Whether some batch waits for the end of a back-off."""
        return bool(self._backing_off)

    def waiting_for_processors(self) -> dict[FamilyVersion, int]:
        """How many batches wait for a processor of each family."""
        return {cause: len(parked) for cause, parked in self._parked.items() if isinstance(cause, FamilyVersion)}

    def first_waiting(self, family: FamilyVersion) -> BatchId | None:
        """The batch that has waited longest for a processor of ``family``, if any."""
        return next(iter(self._parked.get(family, ())), None)

    @property
    def has_ready(self) -> bool:
        while self._ready and not self._is_ready(self._ready[0]):
            heappop(self._ready)
        return bool(self._ready)

    def pop_ready(self) -> Pending | None:
        """The earliest batch that may be tried. Its reason is EXECUTING until it is put back, parked or removed."""
        while self._ready:
            item = heappop(self._ready)
            if self._is_ready(item):
                entry = self._entries[item[1]]
                entry.reason = Reason.EXECUTING
                return entry
        return None

    def put_back(self, entry: Pending) -> None:
        """Make a batch ready again, at its old place. Does nothing if the batch was dropped meanwhile."""
        if self._entries.get(entry.batch.id) is not entry:
            return
        self._unpark(entry)
        if entry.reason is Reason.WAITING_FOR_DEPENDENCY:
            self._index.reorder(entry.batch, last=False)
        entry.reason = Reason.QUEUED
        self.quota.end_wait(entry.batch)
        entry.family = entry.dependency = None
        entry.activation = ""
        heappush(self._ready, (entry.arrival, entry.batch.id))

    def park_for_processor(self, entry: Pending, family: FamilyVersion) -> None:
        entry.reason = Reason.WAITING_FOR_PROCESSOR
        self.quota.begin_wait(entry.batch)
        entry.family = family
        self._parked[family][entry.batch.id] = None
        self._step_aside(entry)

    def park_for_activation(self, entry: Pending, family: FamilyVersion, why: str) -> None:
        """Park a batch until ``family`` may enter a block. ``why`` says when that will be."""
        entry.reason = Reason.WAITING_FOR_ACTIVATION
        self.quota.begin_wait(entry.batch)
        entry.family = family
        entry.activation = why
        self._parked[_Activation(family)][entry.batch.id] = None
        self._step_aside(entry)

    def park_for_dependency(self, entry: Pending, dependency: TransactionId, due_ms: int) -> None:
        """Park a batch until a transaction comes. A ``due_ms`` that the batch already has stays."""
        entry.reason = Reason.WAITING_FOR_DEPENDENCY
        self.quota.begin_wait(entry.batch)
        entry.dependency = dependency
        if entry.due_ms is None:
            entry.due_ms = due_ms
        self._index.reorder(entry.batch, last=True)
        behind = self._lets_go_first(entry, dependency)
        self._parked[_Behind(dependency) if behind else dependency][entry.batch.id] = None
        leader = self._index.first(dependency) if behind else None
        if leader is not None and leader != entry.batch.id:
            self._leads[leader][dependency] = None
        self._step_aside(entry, behind=dependency if behind else None)

    def _lets_go_first(self, entry: Pending, dependency: TransactionId) -> bool:
        """Whether a batch waits only because another one with the same transaction goes first."""
        return self._index.is_shared_by(entry.batch.id, dependency) and entry.asks_for(dependency) is None

    def back_off(self, entry: Pending, until_ms: int) -> None:
        """Make a batch ready again at ``until_ms``."""
        entry.reason = Reason.QUEUED
        entry.due_ms = until_ms
        self._backing_off[entry.batch.id] = None
        self._step_aside(entry)

    def wake(self, cause: FamilyVersion | TransactionId) -> None:
        """Make the batches ready that wait for ``cause``. It has come or, if it is a dependency, will not come."""
        if self._parked:
            self._wake(cause)
            if not isinstance(cause, FamilyVersion):
                self._wake(_Behind(cause))

    def wake_refused(self, transaction_id: TransactionId, *, never_ran: bool) -> None:
        """A batch with this transaction became INVALID. ``never_ran``: the rules on blocks refused it.

        Batches that depend on the transaction become ready if no other pending batch holds it. If the batch had run,
        the next batch with the same transaction becomes ready, too.
        """
        if transaction_id not in self._index:
            self._wake(transaction_id)
        if not never_ran:
            self._wake_next(transaction_id)

    def _wake_next(self, transaction_id: TransactionId) -> None:
        """Make the next batch with this transaction ready. The others keep waiting behind it."""
        batch_id = next(iter(self._parked.get(_Behind(transaction_id), ())), None)
        if batch_id is not None:
            self.put_back(self._entries[batch_id])
            self._leads[batch_id][transaction_id] = None

    def _step_aside(self, entry: Pending, behind: TransactionId | None = None) -> None:
        """Call when a batch begins to wait or is removed. The first batch that waited behind it becomes ready.

        ``behind``: the transaction for which the batch itself waits behind another batch. Batches that wait behind it
        for this transaction stay where they are.
        """
        for transaction_id in self._leads.pop(entry.batch.id, ()):
            if transaction_id != behind:
                self._wake_next(transaction_id)

    def _wake(self, cause: _Cause) -> None:
        for batch_id in self._parked.pop(cause, ()):
            self.put_back(self._entries[batch_id])

    def wake_activation(self, family: FamilyVersion) -> None:
        """Make the batches ready that wait until ``family`` may enter a block."""
        self._wake(_Activation(family))

    def wake_all(self) -> None:
        """Make all parked batches ready, because the families that may enter a block have changed."""
        for cause in list(self._parked):
            self._wake(cause)

    def tick(self, now_ms: int) -> list[Pending]:
        """Make batches ready whose back-off has ended. Returns the batches whose dependency did not come in time."""
        for batch_id in list(self._backing_off):
            entry = self._entries[batch_id]
            if entry.due_ms is not None and entry.due_ms <= now_ms:
                entry.due_ms = None
                self.put_back(entry)
        return [
            entry
            for parked in self._parked.values()
            for entry in map(self._entries.__getitem__, parked)
            if entry.reason is Reason.WAITING_FOR_DEPENDENCY and entry.due_ms is not None and entry.due_ms <= now_ms
        ]

    def _is_ready(self, item: tuple[int, BatchId]) -> bool:
        entry = self._entries.get(item[1])
        return entry is not None and entry.arrival == item[0] and entry.reason is Reason.QUEUED

    def _unpark(self, entry: Pending) -> None:
        if not self._parked and not self._backing_off:
            return
        self._backing_off.pop(entry.batch.id, None)
        causes: list[_Cause | None] = [entry.family, entry.dependency]
        if entry.family is not None:
            causes.append(_Activation(entry.family))
        if entry.dependency is not None:
            causes.append(_Behind(entry.dependency))
        for cause in causes:
            if cause is not None and cause in self._parked:
                self._parked[cause].pop(entry.batch.id, None)
                if not self._parked[cause]:
                    del self._parked[cause]
