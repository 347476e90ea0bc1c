"""The store: one LMDB environment that holds chain, state, receipts, indexes, statuses and the pending queue."""

from validator.store.reader import StoreReader
from validator.store.records import BlockInfo, StoredBatch, StoredTransaction
from validator.store.snapshot import StorageDamaged, StorageFailed, StorageLost
from validator.store.store import Store

__all__ = [
    "BlockInfo",
    "StorageDamaged",
    "StorageFailed",
    "StorageLost",
    "Store",
    "StoreReader",
    "StoredBatch",
    "StoredTransaction",
]
