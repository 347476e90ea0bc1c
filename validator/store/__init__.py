"""The store: one LMDB environment that holds chain, state, receipts, indexes, statuses and the pending queue."""

from validator.store.records import BlockInfo, StoredBatch, StoredTransaction
from validator.store.store import StorageFailed, Store

__all__ = ["BlockInfo", "StorageFailed", "Store", "StoredBatch", "StoredTransaction"]
