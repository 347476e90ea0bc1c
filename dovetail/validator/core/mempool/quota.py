"""Quotas of the pending queue: how much may be pending in total, for each batcher's key, and for unserved families.

Order, waits and reasons belong to ``queue``.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import filterfalse
from typing import Final, NamedTuple

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.ids import BatchId
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import SETTINGS, FamilyVersion

_ENTRY_BYTES: Final = 200
"""Bytes counted for each input, output and dependency, beside its bytes in the batch.

Measured in memory: a dependency takes 185, an address 127, the shortest prefix 59.
"""


class _Size:
    """A number of batches, with their transactions and bytes."""

    __slots__ = ("batches", "data_bytes", "transactions")

    def __init__(self, batches: int = 0, transactions: int = 0, data_bytes: int = 0) -> None:
        self.batches = batches
        self.transactions = transactions
        self.data_bytes = data_bytes

    @classmethod
    def of(cls, batches: Iterable[VerifiedBatch]) -> "_Size":
        size = cls()
        for batch in batches:
            size.add(batch)
        return size

    def add(self, batch: VerifiedBatch) -> None:
        self.batches += 1
        self.transactions += len(batch.transactions)
        self.data_bytes += _held_bytes(batch)

    def remove(self, batch: VerifiedBatch) -> None:
        self.batches -= 1
        self.transactions -= len(batch.transactions)
        self.data_bytes -= _held_bytes(batch)


def _held_bytes(batch: VerifiedBatch) -> int:
    return len(batch.raw) + _ENTRY_BYTES * (batch.declared + batch.dependencies)


_ANYTHING: Final = _Size(1, 1, 1)
"""The smallest batch."""

_NOTHING: Final = _Size()

_KEY_CHARACTERS_SHOWN: Final = 16
_FAMILY_CHARACTERS_SHOWN: Final = 60


class ShareRefusal(NamedTuple):
    """Batches exceed the share of one key. ``for_ever``: they would exceed it in an empty queue, too."""

    message: str
    for_ever: bool


class Quota:
    """The use of the queue's limits.

    A batcher's key may use ``pending_share_percent_max`` of what the batches of other keys leave. So no single key
    fills the queue, and two keys that send all they can end with equal shares. Many keys together can fill it.

    New batches that no block could run now are refused if batches that wait use ``pending_waiting_percent_max`` of a
    limit. So batches that can run have room, whatever others wait for.

    A family is served once a processor has registered it, until ``serve`` forgets it; ``sawtooth_settings`` always is.
    All batches that hold a transaction of an unserved family may together use ``pending_unserved_percent_max`` of each
    limit.

    Beside the limits there is room for ``pending_settings_percent_max`` of each. Only kept batches use this room, and
    kept batches use nothing else.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held = _Size()
        """The use of all batches that are not kept."""
        self._of: dict[str, _Size] = {}
        """The use of each key that has such batches."""
        self._served: dict[FamilyVersion, None] = {}
        """The served families in the order of their last registration."""
        self._unserved: dict[BatchId, VerifiedBatch] = {}
        self._unserved_held = _Size()
        self._waiting: dict[BatchId, VerifiedBatch] = {}
        """The batches that are parked in the queue."""
        self._waiting_held = _Size()
        self._kept: dict[BatchId, None] = {}
        self._kept_held = _Size()

    def reserve(self, batch: VerifiedBatch, *, kept: bool = False) -> None:
        """Count a batch. The caller has checked that it fits."""
        if kept:
            self._kept[batch.id] = None
            self._kept_held.add(batch)
            return
        self._held.add(batch)
        self._of.setdefault(batch.signer, _Size()).add(batch)
        if self._first_unserved(batch) is not None:
            self._unserved[batch.id] = batch
            self._unserved_held.add(batch)

    def release(self, batch: VerifiedBatch) -> None:
        """Stop counting a batch."""
        self.end_wait(batch)
        if batch.id in self._kept:
            del self._kept[batch.id]
            self._kept_held.remove(batch)
            return
        self._held.remove(batch)
        of_signer = self._of[batch.signer]
        of_signer.remove(batch)
        if not of_signer.batches:
            del self._of[batch.signer]
        self._release_unserved(batch)

    def begin_wait(self, batch: VerifiedBatch) -> None:
        """Count a batch as one that waits."""
        if batch.id not in self._waiting:
            self._waiting[batch.id] = batch
            self._waiting_held.add(batch)

    def end_wait(self, batch: VerifiedBatch) -> None:
        """Stop counting a batch as one that waits, if it is counted."""
        if self._waiting.pop(batch.id, None) is not None:
            self._waiting_held.remove(batch)

    def serve(self, family: FamilyVersion, has_processor: Callable[[FamilyVersion], bool]) -> bool:
        """Note that a processor has registered a family. Returns whether the family was unserved before.

        Beyond ``served_families_remembered``, the family without a processor that registered longest ago becomes
        unserved again.
        """
        was_unserved = family not in self._served
        self._served.pop(family, None)
        self._served[family] = None
        while len(self._served) > self._limits.served_families_remembered:
            oldest = next(filterfalse(has_processor, self._served), None)
            if oldest is None:
                break
            del self._served[oldest]
        if was_unserved:
            for batch in [batch for batch in self._unserved.values() if self._first_unserved(batch) is None]:
                self._release_unserved(batch)
        return was_unserved

    @property
    def served(self) -> list[FamilyVersion]:
        """The served families in the order of their last registration."""
        return list(self._served)

    @property
    def transactions(self) -> int:
        """How many transactions the pending batches hold."""
        return self._held.transactions + self._kept_held.transactions

    @property
    def data_bytes(self) -> int:
        """How many bytes the pending batches and their declarations take."""
        return self._held.data_bytes + self._kept_held.data_bytes

    def refusal(self, batches: Iterable[VerifiedBatch]) -> str | None:
        """Why these new batches do not fit into the queue, with the values; None if they fit."""
        return self._refusal(_Size.of(batches))

    def waiting_refusal(self, batches: Iterable[VerifiedBatch]) -> str | None:
        """Why these new batches, which would all wait, do not fit, with the values; None if they fit."""
        percent = self._limits.pending_waiting_percent_max
        for name, held, added, most in self._limits_used(self._waiting_held, _Size.of(batches)):
            share = _percent_of(most, percent)
            if added and held + added > share:
                return (
                    f"the pending queue holds {held} {name} that wait for a processor, an activation or a dependency,"
                    f" at most {share} ({percent} % of {most}); {added} more that would wait do not fit"
                )
        return None

    def unserved_refusal(self, batches: Iterable[VerifiedBatch]) -> str | None:
        """Why the new batches of unserved families do not fit, with the values; None if they fit."""
        of_unserved = [(batch, family) for batch in batches if (family := self._first_unserved(batch)) is not None]
        more = _Size.of(batch for batch, _ in of_unserved)
        percent = self._limits.pending_unserved_percent_max
        for name, held, added, most in self._limits_used(self._unserved_held, more):
            share = _percent_of(most, percent)
            if added and held + added > share:
                first = str(of_unserved[0][1])[:_FAMILY_CHARACTERS_SHOWN]
                return (
                    f"no processor of {first!r} is known here; of all such families the pending queue holds"
                    f" {held} of at most {share} {name} ({percent} % of {most}), {added} more do not fit: wait until"
                    " a processor of the family has connected"
                )
        return None

    def keeps(self, batches: Iterable[VerifiedBatch]) -> bool:
        """Whether these new batches fit into the room for kept ones."""
        used = self._limits_used(self._kept_held, _Size.of(batches))
        return all(held + added <= self._kept_room(most) for _, held, added, most in used)

    def may_keep(self, batches: int, data_bytes: int) -> bool:
        """Whether so many unverified batches of so many bytes in all could fit into the empty room for kept ones."""
        limits = self._limits
        return batches <= self._kept_room(limits.pending_batches_max) and data_bytes <= self._kept_room(
            limits.pending_bytes_max
        )

    def share_refusal(self, batches: Iterable[VerifiedBatch]) -> ShareRefusal | None:
        """Why these new batches exceed the share of one of their keys; None if they do not."""
        more_of: defaultdict[str, _Size] = defaultdict(_Size)
        for batch in batches:
            more_of[batch.signer].add(batch)
        return self._share_refusal(more_of)

    def claims_refusal(self, claimed: Mapping[str, int]) -> ShareRefusal | str | None:
        """Either refusal for unverified batches.

        ``claimed``: the number of batches by key. Each counts as the smallest batch.
        """
        every = sum(claimed.values())
        share = self._share_refusal({signer: _Size(count, count, count) for signer, count in claimed.items()})
        return share if share is not None and share.for_ever else self._refusal(_Size(every, every, every)) or share

    def is_full(self) -> str | None:
        """Why not even the smallest batch fits into the queue; None if it fits."""
        return self._refusal(_ANYTHING)

    def is_half_full(self) -> bool:
        """Whether some limit of the queue is used to one half."""
        return any(2 * held >= most for _, held, _, most in self._limits_used(self._held, _NOTHING))

    def _refusal(self, more: _Size) -> str | None:
        for name, held, added, most in self._limits_used(self._held, more):
            if held + added > most:
                return f"the pending queue holds {held} of at most {most} {name}, {added} more do not fit"
        return None

    def _share_refusal(self, more_of: Mapping[str, _Size]) -> ShareRefusal | None:
        for signer, more in more_of.items():
            held_by = self._of.get(signer, _NOTHING)
            for (name, held, added, most), (_, own, _, _) in zip(
                self._limits_used(self._held, more), self._limits_used(held_by, more), strict=True
            ):
                share = self._share(most - (held - own))
                if own + added > share:
                    shown = f"{signer[:_KEY_CHARACTERS_SHOWN]}…"
                    alone = self._share(most)
                    if added > alone:
                        words = f"{added} {name} of the key {shown} can never be pending, at most {alone} can"
                        return ShareRefusal(words, for_ever=True)
                    words = (
                        f"the pending queue holds {own} {name} of the key {shown}, at most {share} while it holds"
                        f" {held - own} of others; {added} more do not fit"
                    )
                    return ShareRefusal(words, for_ever=False)
        return None

    def _share(self, free: int) -> int:
        """The share of ``free`` that one key may use."""
        return _percent_of(free, self._limits.pending_share_percent_max)

    def _kept_room(self, most: int) -> int:
        return _percent_of(most, self._limits.pending_settings_percent_max)

    def _first_unserved(self, batch: VerifiedBatch) -> FamilyVersion | None:
        for transaction in batch.transactions:
            if transaction.family not in self._served and transaction.family != SETTINGS:
                return transaction.family
        return None

    def _release_unserved(self, batch: VerifiedBatch) -> None:
        if self._unserved.pop(batch.id, None) is not None:
            self._unserved_held.remove(batch)

    def _limits_used(self, held: _Size, more: _Size) -> tuple[tuple[str, int, int, int], ...]:
        limits = self._limits
        return (
            ("batches", held.batches, more.batches, limits.pending_batches_max),
            ("transactions", held.transactions, more.transactions, limits.pending_transactions_max),
            ("bytes", held.data_bytes, more.data_bytes, limits.pending_bytes_max),
        )


def _percent_of(most: int, percent: int) -> int:
    """A share of ``most``, rounded up, so that every share of the smallest queue has a place."""
    return min(most, -(-most * percent // 100))
