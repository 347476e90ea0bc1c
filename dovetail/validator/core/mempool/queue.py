"""Accepted batches in order of arrival: which may be tried now, which wait and for what. Bounded; no disk, no clock.

A batch that waits is parked under what it waits for and is not looked at again before that comes, so that it holds up
nobody else.
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
from dovetail.validator.core.mempool.index import Homes
from dovetail.validator.core.mempool.quota import Room

INJECTED: Final = -1
"""The arrival number of what nobody handed in: it comes before all others."""


class Reason(StrEnum):
    """Why a batch is PENDING (API.md, Batches and their status)."""

    QUEUED = "queued"
    EXECUTING = "executing"
    WAITING_FOR_PROCESSOR = "waiting_for_processor"
    WAITING_FOR_DEPENDENCY = "waiting_for_dependency"
    WAITING_FOR_ACTIVATION = "waiting_for_activation"


class _Activation(NamedTuple):
    """What a batch is parked under that waits until its family may enter a block."""

    family: FamilyVersion


class _Behind(NamedTuple):
    """What a batch is parked under that lets another with the same transaction go first."""

    transaction: TransactionId


_Cause = FamilyVersion | TransactionId | _Activation | _Behind


class Pending:
    """One accepted batch. Its queue changes it; ``tries``, ``losses``, ``failure`` and ``alone`` are for production."""

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
        """When its family may enter a block, in words; empty while it does not wait for that."""
        self.due_ms: int | None = None
        """When a wait for a dependency ends, or a back-off."""
        self.tries = 0
        """How often a processor failed on it."""
        self.losses = 0
        """How often a processor was lost that held it alone."""
        self.failure = ""
        """How it was tried in vain so far, in words; empty while it was not."""
        self.alone = False
        """Whether it must not share a task, because a processor was lost that held it."""

    def asks_for(self, dependency: TransactionId) -> TransactionId | None:
        """The transaction of the batch that lacks ``dependency``; None where it holds it itself by then.

        Such a batch waits for it only because another one holds the same transaction, and goes first.
        """
        for transaction in self.batch.transactions:
            if transaction.id == dependency:
                return None
            if dependency in transaction.dependencies:
                return transaction.id
        return None


_STALE_MAX: Final = 1_000


class PendingQueue:
    """All pending batches, and in ``room`` how much of them there may be."""

    def __init__(self, limits: Limits) -> None:
        self.room = Room(limits)
        self._entries: dict[BatchId, Pending] = {}
        self._ready: list[tuple[int, BatchId]] = []
        self._parked: defaultdict[_Cause, dict[BatchId, None]] = defaultdict(dict)
        self._backing_off: dict[BatchId, None] = {}
        self._homes = Homes()
        """Those that wait for a dependency stand behind the others."""
        self._leads: defaultdict[BatchId, dict[TransactionId, None]] = defaultdict(dict)
        """For which transactions a batch has its turn before those that let another with the same one go first."""

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
        return transaction_id in self._homes

    def may_bring(self, dependency: TransactionId, entry: Pending) -> bool:
        """Whether a pending batch holds what ``entry`` waits for; ``entry`` itself does not count where it has it."""
        if entry.asks_for(dependency) is None:
            return self._homes.hold_another(entry.batch.id, dependency)
        return dependency in self._homes

    def holder(self, transaction_id: TransactionId) -> Pending | None:
        """A pending batch that holds this transaction; one that does not wait for a dependency itself, if there is."""
        batch_id = self._homes.first(transaction_id)
        return None if batch_id is None else self._entries[batch_id]

    def add(self, arrival: int, batch: VerifiedBatch) -> Pending:
        """Queue a batch that is not in it. Whether it fits was asked before: an accepted one is never dropped."""
        assert batch.id not in self._entries, "an entry would lose its place"
        entry = self._entries[batch.id] = Pending(arrival, batch)
        self.room.take(batch)
        self._homes.add(batch)
        heappush(self._ready, (arrival, batch.id))
        return entry

    def inject(self, batch: VerifiedBatch) -> None:
        """Queue a batch that nobody handed in, before all others; it shares no task with them."""
        self.add(INJECTED, batch).alone = True

    def remove(self, entry: Pending) -> None:
        """Forget a batch that is committed or invalid."""
        self._unpark(entry)
        del self._entries[entry.batch.id]
        self._step_aside(entry)
        self.room.give_back(entry.batch)
        self._homes.remove(entry.batch)
        if len(self._ready) > 2 * len(self._entries) + _STALE_MAX:
            # What left before its turn, or was put back twice, would lie there until what is older is done.
            self._ready = sorted(set(filter(self._is_ready, self._ready)))

    @property
    def is_backing_off(self) -> bool:
        """Whether some batch waits only to be tried again."""
        return bool(self._backing_off)

    def waiting_for_processors(self) -> dict[FamilyVersion, int]:
        """How many batches wait for a processor of each family."""
        return {cause: len(parked) for cause, parked in self._parked.items() if isinstance(cause, FamilyVersion)}

    def first_waiting(self, family: FamilyVersion) -> BatchId | None:
        """The batch that has waited longest for a processor of ``family``."""
        return next(iter(self._parked.get(family, ())), None)

    @property
    def has_ready(self) -> bool:
        while self._ready and not self._is_ready(self._ready[0]):
            heappop(self._ready)
        return bool(self._ready)

    def pop_ready(self) -> Pending | None:
        """The earliest batch that may be tried; it counts as executing until it is put back, parked or removed."""
        while self._ready:
            item = heappop(self._ready)
            if self._is_ready(item):
                entry = self._entries[item[1]]
                entry.reason = Reason.EXECUTING
                return entry
        return None

    def put_back(self, entry: Pending) -> None:
        """Let a batch be tried again, in its old place."""
        self._unpark(entry)
        if entry.reason is Reason.WAITING_FOR_DEPENDENCY:
            self._homes.line_up(entry.batch, last=False)
        entry.reason = Reason.QUEUED
        entry.family = entry.dependency = None
        entry.activation = ""
        heappush(self._ready, (entry.arrival, entry.batch.id))

    def park_for_processor(self, entry: Pending, family: FamilyVersion) -> None:
        entry.reason = Reason.WAITING_FOR_PROCESSOR
        entry.family = family
        self._parked[family][entry.batch.id] = None
        self._step_aside(entry)

    def park_for_activation(self, entry: Pending, family: FamilyVersion, why: str) -> None:
        """Wait until ``family`` may enter a block; ``why`` says when that will be."""
        entry.reason = Reason.WAITING_FOR_ACTIVATION
        entry.family = family
        entry.activation = why
        self._parked[_Activation(family)][entry.batch.id] = None
        self._step_aside(entry)

    def park_for_dependency(self, entry: Pending, dependency: TransactionId, due_ms: int) -> None:
        """Wait for a transaction; ``due_ms`` is kept from the first time that the batch waited for one."""
        entry.reason = Reason.WAITING_FOR_DEPENDENCY
        entry.dependency = dependency
        if entry.due_ms is None:
            entry.due_ms = due_ms
        self._homes.line_up(entry.batch, last=True)
        behind = self._lets_go_first(entry, dependency)
        self._parked[_Behind(dependency) if behind else dependency][entry.batch.id] = None
        leader = self._homes.first(dependency) if behind else None
        if leader is not None and leader != entry.batch.id:
            self._leads[leader][dependency] = None
        self._step_aside(entry, behind=dependency if behind else None)

    def _lets_go_first(self, entry: Pending, dependency: TransactionId) -> bool:
        """Whether a batch waits only because another has the same transaction."""
        return self._homes.is_shared_by(entry.batch.id, dependency) and entry.asks_for(dependency) is None

    def back_off(self, entry: Pending, until_ms: int) -> None:
        """Try a batch again, but not before ``until_ms``."""
        entry.reason = Reason.QUEUED
        entry.due_ms = until_ms
        self._backing_off[entry.batch.id] = None
        self._step_aside(entry)

    def wake(self, cause: FamilyVersion | TransactionId) -> None:
        """What batches waited for has come (or, for a dependency, will not): they may be tried."""
        self._wake(cause)
        if not isinstance(cause, FamilyVersion):
            self._wake(_Behind(cause))

    def wake_refused(self, transaction_id: TransactionId, *, never_ran: bool) -> None:
        """A batch that held this transaction was judged invalid; ``never_ran``: the rules on blocks refused it.

        Only whom that concerns is woken, however many hold it: who depends on it, where no other batch may bring it;
        where it had gone first, the next of those who let it.
        """
        if transaction_id not in self._homes:
            self._wake(transaction_id)
        if not never_ran:
            self._wake_next(transaction_id)

    def _wake_next(self, transaction_id: TransactionId) -> None:
        """One at a time: the others would find that it went first."""
        batch_id = next(iter(self._parked.get(_Behind(transaction_id), ())), None)
        if batch_id is not None:
            self.put_back(self._entries[batch_id])
            self._leads[batch_id][transaction_id] = None

    def _step_aside(self, entry: Pending, behind: TransactionId | None = None) -> None:
        """A batch that waits for something, or is gone, keeps nobody behind it.

        ``behind``: the transaction of another that it waits for itself; the next one is woken when that is settled.
        """
        for transaction_id in self._leads.pop(entry.batch.id, ()):
            if transaction_id != behind:
                self._wake_next(transaction_id)

    def _wake(self, cause: _Cause) -> None:
        for batch_id in self._parked.pop(cause, ()):
            self.put_back(self._entries[batch_id])

    def wake_activation(self, family: FamilyVersion) -> None:
        """Something was done for ``family`` to come in: what waits for that is looked at again."""
        self._wake(_Activation(family))

    def wake_all(self) -> None:
        """Which families may enter a block has changed: whatever waits is looked at again."""
        for cause in list(self._parked):
            self._wake(cause)

    def tick(self, now_ms: int) -> list[Pending]:
        """Wake what has backed off long enough; returns the batches whose dependency did not come in time."""
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
