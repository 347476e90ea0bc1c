"""Decides which batches of a block may run in parallel, so that the result equals serial order.

Batch B waits for an earlier batch A if B depends on a transaction of A, or if an output of one batch overlaps an input
or output of the other. A prefix overlaps everything under it. States, tasks and families do not belong here.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.ids import TransactionId

_LIST_MAX: Final = 64
"""The most batches in one list that a later access waits for. The next batch replaces a full list and waits for it,
which costs parallelism."""


class Dependent(NamedTuple):
    """Transaction ``transaction`` of batch ``batch`` depends on transaction ``dependency``."""

    batch: int
    transaction: TransactionId
    dependency: TransactionId


class Schedule(NamedTuple):
    """By batch: ``waits_for``, the number of batches that it waits for; ``frees``, the later batches that wait for it.

    ``dependents``: by batch, the later transactions that depend on one of its transactions.
    """

    waits_for: list[int]
    frees: list[list[int]]
    dependents: list[list[Dependent]]


class _Accesses:
    """The last batch that writes one address or prefix, and the batches that read it since."""

    __slots__ = ("readers", "writer")

    def __init__(self, writer: int | None) -> None:
        self.writer = writer
        self.readers: list[int] = []


def schedule(batches: Sequence[VerifiedBatch]) -> Schedule:
    """Compute which batches of a block wait for which."""
    count = len(batches)
    frees: list[list[int]] = [[] for _ in range(count)]
    dependents: list[list[Dependent]] = [[] for _ in range(count)]
    waits_for = [0] * count
    accesses = _AccessIndex(batches)
    index_of: dict[TransactionId, int] = {}
    for index, batch in enumerate(batches):
        blockers = accesses.add(index, batch)
        for transaction in batch.transactions:
            for dependency in transaction.dependencies:
                owner = index_of.get(dependency)
                if owner is not None and owner != index:
                    blockers.add(owner)
                    dependents[owner].append(Dependent(index, transaction.id, dependency))
            index_of[transaction.id] = index
        waits_for[index] = len(blockers)
        for blocker in blockers:
            frees[blocker].append(index)
    return Schedule(waits_for, frees, dependents)


class _AccessIndex:
    """The accesses of earlier batches. A look-up costs one dictionary access for each declared length of a prefix."""

    def __init__(self, batches: Sequence[VerifiedBatch]) -> None:
        lengths: set[int] = set()
        for batch in batches:
            for transaction in batch.transactions:
                lengths.update(map(len, transaction.inputs))
                lengths.update(map(len, transaction.outputs))
        self._shorter = {length: sorted(other for other in lengths if other < length) for length in lengths}
        """By length of an entry: the shorter lengths that the block declares. Entries of those lengths may be its
        prefixes."""
        self._at: dict[str, _Accesses] = {}
        self._below_readers: dict[str, list[int]] = {}
        self._below_writers: dict[str, list[int]] = {}

    def add(self, index: int, batch: VerifiedBatch) -> set[int]:
        """Add ``batch`` to the index. Returns the earlier batches that it must wait for."""
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
        # Later batches wait for this write, which itself waits for all earlier accesses at and below ``entry``.
        self._at[entry] = _Accesses(index)
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
    """Add a batch to a list that later accesses wait for.

    If the list is full, the batch replaces it, and waits for all batches that were in it.
    """
    if len(entries) >= _LIST_MAX:
        blockers.update(entries)
        entries.clear()
    if not entries or entries[-1] != index:
        entries.append(index)
