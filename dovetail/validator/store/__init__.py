"""The store: one LMDB environment with chain, state, receipts, indexes, statuses and the pending queue."""

from dovetail.validator.store.reader import StoreReader
from dovetail.validator.store.records import BlockInfo, QueueRecord, StoredBatch, StoredTransaction
from dovetail.validator.store.snapshot import StorageDamaged, StorageFailed, StorageLost
from dovetail.validator.store.store import Store

__all__ = [
    "BlockInfo",
    "QueueRecord",
    "StorageDamaged",
    "StorageFailed",
    "StorageLost",
    "Store",
    "StoreReader",
    "StoredBatch",
    "StoredTransaction",
]
