"""Which batches of a block may run next to which: the one home of "equals serial order".

Batch B waits for an earlier batch A when B depends on a transaction of A, or when the one declares as output what the
other declares as input or output (a prefix meets everything under it). Nothing is known here of states, tasks or
families.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.ids import TransactionId

_LIST_MAX: Final = 64
"""Longest list of batches that one later access waits for; beyond it they are chained, which only costs parallelism."""


class Dependent(NamedTuple):
    """Transaction ``transaction`` of batch ``batch`` depends on transaction ``dependency``."""

    batch: int
    transaction: TransactionId
    dependency: TransactionId


class Schedule(NamedTuple):
    """``waits_for``: how many batches each waits for; ``frees``: the later batches that each one holds up.

    ``dependents``: what names a transaction of this batch as a dependency, in later ones.
    """

    waits_for: list[int]
    frees: list[list[int]]
    dependents: list[list[Dependent]]


class _Accesses:
    """Batches that touched one place since its last write."""

    __slots__ = ("readers", "writer")

    def __init__(self, writer: int | None) -> None:
        self.writer = writer
        self.readers: list[int] = []


def schedule(batches: Sequence[VerifiedBatch]) -> Schedule:
    """The order that the batches of one block must keep among each other."""
    count = len(batches)
    frees: list[list[int]] = [[] for _ in range(count)]
    dependents: list[list[Dependent]] = [[] for _ in range(count)]
    waits_for = [0] * count
    places = _Places(batches)
    home: dict[TransactionId, int] = {}
    for index, batch in enumerate(batches):
        blockers = places.enter(index, batch)
        for transaction in batch.transactions:
            for dependency in transaction.dependencies:
                owner = home.get(dependency)
                if owner is not None and owner != index:
                    blockers.add(owner)
                    dependents[owner].append(Dependent(index, transaction.id, dependency))
            home[transaction.id] = index
        waits_for[index] = len(blockers)
        for blocker in blockers:
            frees[blocker].append(index)
    return Schedule(waits_for, frees, dependents)


class _Places:
    """Who touched what so far, probed with dictionary look-ups at the lengths that the block's declarations have."""

    def __init__(self, batches: Sequence[VerifiedBatch]) -> None:
        lengths: set[int] = set()
        for batch in batches:
            for transaction in batch.transactions:
                lengths.update(map(len, transaction.inputs))
                lengths.update(map(len, transaction.outputs))
        self._shorter = {length: sorted(other for other in lengths if other < length) for length in lengths}
        """The lengths of declarations that may cover one of a length; none where all name full addresses."""
        self._at: dict[str, _Accesses] = {}
        self._below_readers: dict[str, list[int]] = {}
        self._below_writers: dict[str, list[int]] = {}

    def enter(self, index: int, batch: VerifiedBatch) -> set[int]:
        """The earlier batches that ``batch`` must wait for; from now on it is an earlier one itself."""
        writes: set[str] = set()
        reads: set[str] = set()
        for transaction in batch.transactions:
            writes.update(transaction.outputs)
            reads.update(transaction.inputs)
        reads -= writes
        blockers: set[int] = set()
        for entry in writes:
            self._probe(entry, True, blockers)
        for entry in reads:
            self._probe(entry, False, blockers)
        for entry in writes:
            self._record_write(entry, index, blockers)
        for entry in reads:
            self._record_read(entry, index, blockers)
        blockers.discard(index)
        return blockers

    def _probe(self, entry: str, writing: bool, blockers: set[int]) -> None:
        self._probe_at(entry, writing, blockers)
        for length in self._shorter[len(entry)]:
            self._probe_at(entry[:length], writing, blockers)
        if entry in self._below_writers:
            blockers.update(self._below_writers[entry])
        if writing and entry in self._below_readers:
            blockers.update(self._below_readers[entry])

    def _probe_at(self, place: str, writing: bool, blockers: set[int]) -> None:
        accesses = self._at.get(place)
        if accesses is not None:
            if accesses.writer is not None:
                blockers.add(accesses.writer)
            if writing:
                blockers.update(accesses.readers)

    def _record_write(self, entry: str, index: int, blockers: set[int]) -> None:
        # What was there before, this write waits for.
        self._at[entry] = _Accesses(index)
        # Whoever meets a place below meets this write too, which waits for all that was below.
        self._below_writers.pop(entry, None)
        self._below_readers.pop(entry, None)
        for length in self._shorter[len(entry)]:
            _append(self._below_writers.setdefault(entry[:length], []), index, blockers)

    def _record_read(self, entry: str, index: int, blockers: set[int]) -> None:
        accesses = self._at.get(entry)
        if accesses is None:
            accesses = self._at[entry] = _Accesses(None)
        _append(accesses.readers, index, blockers)
        for length in self._shorter[len(entry)]:
            _append(self._below_readers.setdefault(entry[:length], []), index, blockers)


def _append(entries: list[int], index: int, blockers: set[int]) -> None:
    """Add a batch to a list of those that later accesses wait for; a full list collapses into the batch itself."""
    if len(entries) >= _LIST_MAX:
        blockers.update(entries)
        entries.clear()
    if not entries or entries[-1] != index:
        entries.append(index)
