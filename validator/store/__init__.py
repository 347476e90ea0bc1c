"""The store: one LMDB environment that holds chain, state, receipts, indexes, statuses and the pending queue."""

from validator.store.records import BlockCommit, BlockInfo, InvalidBatch, StoredBatch, StoredTransaction
from validator.store.store import StorageFailed, Store

__all__ = [
    "BlockCommit",
    "BlockInfo",
    "InvalidBatch",
    "StorageFailed",
    "Store",
    "StoredBatch",
    "StoredTransaction",
]
