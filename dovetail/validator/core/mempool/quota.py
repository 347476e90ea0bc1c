"""How many batches may be pending, of everybody and of one batcher's key, and how much of it is taken.

Nothing is known here of turns, waits and reasons: they are ``dovetail.validator.core.mempool.queue``'s.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.limits import Limits

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

    def remove(self, batch: VerifiedBatch) -> None:
        self.batches -= 1
        self.transactions -= len(batch.transactions)
        self.data_bytes -= _held_bytes(batch)


def _held_bytes(batch: VerifiedBatch) -> int:
    return len(batch.raw) + _ENTRY_BYTES * (batch.declared + batch.dependencies)


_ANYTHING: Final = _Size(1, 1, 1)
"""No batch takes less."""

_NOTHING: Final = _Size()

_KEY_CHARACTERS_SHOWN: Final = 16


class ShareRefusal(NamedTuple):
    """That batches are more than one key may hold. ``for_ever``: however empty the queue is."""

    message: str
    for_ever: bool


class Room:
    """What the pending batches take.

    A batcher's key may hold ``pending_share_percent_max`` of the room that the batches of other keys leave. So no key
    takes it all, and two that send all they can come to hold the same; many keys together can take it all.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held = _Size()
        self._of: dict[str, _Size] = {}
        """Of each key that holds any."""

    def take(self, batch: VerifiedBatch) -> None:
        """A batch is pending; whether it fits was asked before."""
        self._held.add(batch)
        self._of.setdefault(batch.signer, _Size()).add(batch)

    def give_back(self, batch: VerifiedBatch) -> None:
        """A batch is pending no more."""
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
        """How many bytes the pending batches have, and what all that they declare takes beside."""
        return self._held.data_bytes

    def refusal(self, batches: Iterable[VerifiedBatch]) -> str | None:
        """Why these new batches do not fit together, whoever signed them, with the values; None if they do."""
        more = _Size()
        for batch in batches:
            more.add(batch)
        return self._refusal(more)

    def share_refusal(self, batches: Iterable[VerifiedBatch]) -> ShareRefusal | None:
        """Why these new batches are more than one of their keys may hold; None if they are not."""
        more_of: defaultdict[str, _Size] = defaultdict(_Size)
        for batch in batches:
            more_of[batch.signer].add(batch)
        return self._share_refusal(more_of)

    def claims_refusal(self, claimed: Mapping[str, int]) -> ShareRefusal | str | None:
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

    def _share_refusal(self, more_of: Mapping[str, _Size]) -> ShareRefusal | None:
        for signer, more in more_of.items():
            held_by = self._of.get(signer, _NOTHING)
            for (name, held, added, most), (_, own, _, _) in zip(
                self._rooms(self._held, more), self._rooms(held_by, more), strict=True
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
