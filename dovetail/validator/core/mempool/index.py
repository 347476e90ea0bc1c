"""Which pending batches hold each transaction, found without a look at all of them, however many hold the same one."""

from collections import OrderedDict

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.ids import BatchId, TransactionId


class Homes:
    """Those who hold the same transaction stand in a row; nearly always it is one."""

    def __init__(self) -> None:
        self._first: dict[TransactionId, BatchId] = {}
        """Where only one batch holds a transaction: that one."""
        self._shared: dict[TransactionId, OrderedDict[BatchId, None]] = {}
        """Where several do: all, in their row."""

    def __contains__(self, transaction_id: TransactionId) -> bool:
        return transaction_id in self._first or transaction_id in self._shared

    def first(self, transaction_id: TransactionId) -> BatchId | None:
        """The first in the row of those who hold a transaction; None where nobody does."""
        shared = self._shared.get(transaction_id)
        return next(iter(shared)) if shared else self._first.get(transaction_id)

    def hold_another(self, batch_id: BatchId, transaction_id: TransactionId) -> bool:
        """Whether a batch other than this one holds a transaction."""
        only = self._first.get(transaction_id)
        return transaction_id in self._shared if only is None else only != batch_id

    def is_shared_by(self, batch_id: BatchId, transaction_id: TransactionId) -> bool:
        """Whether this batch holds a transaction, and another one too."""
        return batch_id in self._shared.get(transaction_id, ())

    def add(self, batch: VerifiedBatch) -> None:
        """A batch that was not there stands first in the rows of all its transactions."""
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
        """Forget a batch that is there."""
        for transaction in batch.transactions:
            shared = self._shared.get(transaction.id)
            if shared is None:
                del self._first[transaction.id]
                continue
            del shared[batch.id]
            if len(shared) == 1:
                (self._first[transaction.id],) = shared
                del self._shared[transaction.id]

    def line_up(self, batch: VerifiedBatch, *, last: bool) -> None:
        """Put a batch first or last in the rows of all its transactions."""
        if not self._shared:
            return
        for transaction in batch.transactions:
            shared = self._shared.get(transaction.id)
            if shared is not None:
                shared.move_to_end(batch.id, last=last)
