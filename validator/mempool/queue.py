"""Accepted batches in order of arrival: which may be tried now, which wait and for what. Bounded; no disk, no clock.

A batch that waits is parked under what it waits for and is not looked at again before that comes, so that it holds up
nobody else.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from heapq import heappop, heappush
from typing import Final, NamedTuple

from ledger.batch import VerifiedBatch
from ledger.ids import BatchId, TransactionId
from ledger.limits import Limits
from ledger.settings import FamilyVersion
from validator.mempool.homes import Homes

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


_ENTRY_BYTES: Final = 200
"""What is counted for an input, output or dependency beside its bytes in the batch.

Measured: a dependency takes 185 in memory, an address 127, the shortest prefix 59.
"""


class _Size:
    """How much of the queue's room something takes."""

    __slots__ = ("batches", "data_bytes", "transactions")

    def __init__(self, batches: int = 0, transactions: int = 0, data_bytes: int = 0) -> None:
        self.batches = batches
        self.transactions = transactions
        self.data_bytes = data_bytes

    def add(self, batch: VerifiedBatch) -> None:
        self.batches += 1
        self.transactions += len(batch.transactions)
        self.data_bytes += _held_bytes(batch)

    def take(self, batch: VerifiedBatch) -> None:
        self.batches -= 1
        self.transactions -= len(batch.transactions)
        self.data_bytes -= _held_bytes(batch)


def _held_bytes(batch: VerifiedBatch) -> int:
    return len(batch.raw) + _ENTRY_BYTES * (batch.declared + batch.dependencies)


_ANYTHING: Final = _Size(1, 1, 1)
"""No batch takes less."""

_NOTHING: Final = _Size()

_KEY_CHARACTERS_SHOWN: Final = 16
_STALE_MAX: Final = 1_000


class ShareRefusal(NamedTuple):
    """That batches are more than one key may hold. ``for_ever``: however empty the queue is."""

    message: str
    for_ever: bool


class PendingQueue:
    """All pending batches; the one place that knows how many there may be, of everybody and of one batcher.

    A batcher's key may hold ``pending_share_percent_max`` of the room that the batches of other keys leave. So no key
    takes it all, and two that send all they can come to hold the same; many keys together can take it all.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._entries: dict[BatchId, Pending] = {}
        self._ready: list[tuple[int, BatchId]] = []
        self._parked: defaultdict[_Cause, dict[BatchId, None]] = defaultdict(dict)
        self._backing_off: dict[BatchId, None] = {}
        self._homes = Homes()
        """Those that wait for a dependency stand behind the others."""
        self._leads: defaultdict[BatchId, dict[TransactionId, None]] = defaultdict(dict)
        """For which transactions a batch has its turn before those that let another with the same one go first."""
        self._held = _Size()
        self._held_by: dict[str, _Size] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Pending]:
        """Every pending batch, in the order in which they were added."""
        return iter(self._entries.values())

    @property
    def transactions(self) -> int:
        """How many transactions the pending batches hold."""
        return self._held.transactions

    @property
    def data_bytes(self) -> int:
        """How many bytes the pending batches have, and what all that they declare takes beside."""
        return self._held.data_bytes

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

    def refusal(self, batches: Iterable[VerifiedBatch]) -> str | None:
        """Why these new batches do not fit together, whoever signed them, with the values; None if they do."""
        more = _Size()
        for batch in batches:
            more.add(batch)
        return self._refusal(more)

    def share_refusal(self, batches: Iterable[VerifiedBatch]) -> "ShareRefusal | None":
        """Why these new batches are more than one of their keys may hold; None if they are not."""
        more_of: defaultdict[str, _Size] = defaultdict(_Size)
        for batch in batches:
            more_of[batch.signer].add(batch)
        return self._share_refusal(more_of)

    def claims_refusal(self, claimed: Mapping[str, int]) -> "ShareRefusal | str | None":
        """Both for batches that are not verified yet, so many as each key is said to have signed, however small."""
        every = sum(claimed.values())
        share = self._share_refusal({signer: _Size(count, count, count) for signer, count in claimed.items()})
        return share if share is not None and share.for_ever else self._refusal(_Size(every, every, every)) or share

    def is_full(self) -> str | None:
        """Why not even the smallest batch fits, whoever signed it."""
        return self._refusal(_ANYTHING)

    def is_half_full(self) -> bool:
        """Whether half of some room is taken."""
        return any(2 * held >= most for _, held, _, most in self._rooms(self._held, _NOTHING))

    def _refusal(self, more: _Size) -> str | None:
        for name, held, added, most in self._rooms(self._held, more):
            if held + added > most:
                return f"the pending queue holds {held} of at most {most} {name}, {added} more do not fit"
        return None

    def _share_refusal(self, more_of: Mapping[str, _Size]) -> "ShareRefusal | None":
        for signer, more in more_of.items():
            held_by = self._held_by.get(signer, _NOTHING)
            for (name, held, added, most), (_, own, _, _) in zip(
                self._rooms(self._held, more), self._rooms(held_by, more), strict=True
            ):
                share, alone = self._share(most - (held - own)), self._share(most)
                if own + added > share:
                    shown = f"{signer[:_KEY_CHARACTERS_SHOWN]}…"
                    if added > alone:
                        words = f"{added} {name} of the key {shown} can never be pending, at most {alone} can"
                        return ShareRefusal(words, for_ever=True)
                    words = (
                        f"the pending queue holds {own} {name} of the key {shown}, at most {share} while it holds"
                        f" {held - own} of others; {added} more do not fit"
                    )
                    return ShareRefusal(words, for_ever=False)
        return None

    def _share(self, room: int) -> int:
        """What of a room one key may take: rounded up, so that the smallest queues are everybody's."""
        return min(room, -(-room * self._limits.pending_share_percent_max // 100))

    def _rooms(self, held: _Size, more: _Size) -> tuple[tuple[str, int, int, int], ...]:
        limits = self._limits
        return (
            ("batches", held.batches, more.batches, limits.pending_batches_max),
            ("transactions", held.transactions, more.transactions, limits.pending_transactions_max),
            ("bytes", held.data_bytes, more.data_bytes, limits.pending_bytes_max),
        )

    def add(self, arrival: int, batch: VerifiedBatch) -> Pending:
        """Queue a batch that is not in it. Whether it fits was asked before: an accepted one is never dropped."""
        assert batch.id not in self._entries, "an entry would lose its place"
        entry = self._entries[batch.id] = Pending(arrival, batch)
        self._held.add(batch)
        self._held_by.setdefault(batch.signer, _Size()).add(batch)
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
        self._held.take(entry.batch)
        held_by = self._held_by[entry.batch.signer]
        held_by.take(entry.batch)
        if not held_by.batches:
            del self._held_by[entry.batch.signer]
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

    def wake_refused(self, transaction_id: TransactionId, *, at_the_door: bool) -> None:
        """A batch that held this transaction was judged invalid; ``at_the_door``: it never was in the block.

        Only whom that concerns is woken, however many hold it: who depends on it, where no other batch may bring it;
        where it had gone first, the next of those who let it.
        """
        if transaction_id not in self._homes:
            self._wake(transaction_id)
        if not at_the_door:
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
