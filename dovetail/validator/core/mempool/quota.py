"""Quotas of the pending queue: how much may be pending in total, and how much for each batcher's key.

Order, waits and reasons belong to ``queue``.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.limits import Limits

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


class ShareRefusal(NamedTuple):
    """Batches exceed the share of one key. ``for_ever``: they would exceed it in an empty queue, too."""

    message: str
    for_ever: bool


class Quota:
    """The use of the queue's limits.

    A batcher's key may use ``pending_share_percent_max`` of what the batches of other keys leave. So no single key
    fills the queue, and two keys that send all they can end with equal shares. Many keys together can fill it.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held = _Size()
        self._of: dict[str, _Size] = {}
        """The use of each key that has pending batches."""

    def reserve(self, batch: VerifiedBatch) -> None:
        """Count a batch. The caller has checked that it fits."""
        self._held.add(batch)
        self._of.setdefault(batch.signer, _Size()).add(batch)

    def release(self, batch: VerifiedBatch) -> None:
        """Stop counting a batch."""
        self._held.remove(batch)
        of_signer = self._of[batch.signer]
        of_signer.remove(batch)
        if not of_signer.batches:
            del self._of[batch.signer]

    @property
    def transactions(self) -> int:
        """How many transactions the pending batches hold."""
        return self._held.transactions

    @property
    def data_bytes(self) -> int:
        """How many bytes the pending batches and their declarations take."""
        return self._held.data_bytes

    def refusal(self, batches: Iterable[VerifiedBatch]) -> str | None:
        """Why these new batches do not fit into the queue, with the values; None if they fit."""
        more = _Size()
        for batch in batches:
            more.add(batch)
        return self._refusal(more)

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
        """The share of ``free`` that one key may use, rounded up, so that every key can use the smallest queue."""
        return min(free, -(-free * self._limits.pending_share_percent_max // 100))

    def _limits_used(self, held: _Size, more: _Size) -> tuple[tuple[str, int, int, int], ...]:
        limits = self._limits
        return (
            ("batches", held.batches, more.batches, limits.pending_batches_max),
            ("transactions", held.transactions, more.transactions, limits.pending_transactions_max),
            ("bytes", held.data_bytes, more.data_bytes, limits.pending_bytes_max),
        )
