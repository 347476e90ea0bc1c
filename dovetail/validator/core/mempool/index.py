"""The index of the queue: which pending batches hold a transaction. Its cost does not grow with their number."""

from collections import OrderedDict

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.ids import BatchId, TransactionId


class TransactionIndex:
    """For each transaction, the batches that hold it, in an order. Nearly always only one batch holds a transaction."""

    def __init__(self) -> None:
        self._first: dict[TransactionId, BatchId] = {}
        """By transaction that only one batch holds: that batch."""
        self._shared: dict[TransactionId, OrderedDict[BatchId, None]] = {}
        """By transaction that several batches hold: all these batches, in order."""

    def __contains__(self, transaction_id: TransactionId) -> bool:
        return transaction_id in self._first or transaction_id in self._shared

    def first(self, transaction_id: TransactionId) -> BatchId | None:
        """The first batch that holds a transaction; None if no batch does."""
        shared = self._shared.get(transaction_id)
        return next(iter(shared)) if shared else self._first.get(transaction_id)

    def is_held_by_another(self, batch_id: BatchId, transaction_id: TransactionId) -> bool:
        """Whether a batch other than this one holds a transaction."""
        only = self._first.get(transaction_id)
        return transaction_id in self._shared if only is None else only != batch_id

    def is_shared_by(self, batch_id: BatchId, transaction_id: TransactionId) -> bool:
        """Whether this batch and another one hold a transaction."""
        return batch_id in self._shared.get(transaction_id, ())

    def add(self, batch: VerifiedBatch) -> None:
        """Add a new batch, as the first holder of each of its transactions."""
        for transaction in batch.transactions:
            shared = self._shared.get(transaction.id)
            if shared is None:
                other = self._first.setdefault(transaction.id, batch.id)
                if other == batch.id:
                    continue
                del self._first[transaction.id]
                shared = self._shared[transaction.id] = OrderedDict.fromkeys([other])
            shared[batch.id] = None
            shared.move_to_end(batch.id, last=False)

    def remove(self, batch: VerifiedBatch) -> None:
        """Remove a batch."""
        for transaction in batch.transactions:
            shared = self._shared.get(transaction.id)
            if shared is None:
                del self._first[transaction.id]
                continue
            del shared[batch.id]
            if len(shared) == 1:
                (self._first[transaction.id],) = shared
                del self._shared[transaction.id]

    def reorder(self, batch: VerifiedBatch, *, last: bool) -> None:
        """Move a batch to the first or the last place among the holders of each of its transactions."""
        if not self._shared:
            return
        for transaction in batch.transactions:
            shared = self._shared.get(transaction.id)
            if shared is not None:
                shared.move_to_end(batch.id, last=last)
