"""Upper bounds of the bytes that a write adds to the store, to grow the map before the write begins."""

from collections.abc import Iterable, Sequence
from typing import Final

from dovetail.ledger.ids import TransactionId
from dovetail.validator.core.journal.model import BlockCommit, InvalidBatch

_PRUNED_NODE_BYTES: Final = 2048
"""A removed node's share of the copied pages."""


def prune_bytes(lists: list[tuple[int, list[int]]]) -> int:
    """The bytes of pages that pruning copies. ``lists``: numbers of blocks, each with the nodes that it replaced."""
    return _PRUNED_NODE_BYTES * sum(1 + len(numbers) for _, numbers in lists)


def invalid_bytes(invalid: list[InvalidBatch]) -> int:
    """The bytes that the store remembers of invalid batches and their transactions, keys included."""
    return sum(
        len(entry.message) + len(entry.extended_data) + 1024 + names_bytes(entry.transaction_ids) for entry in invalid
    )


def names_bytes(transactions: Sequence[TransactionId]) -> int:
    """The bytes that the store remembers of the transactions of invalid batches, keys included."""
    return 256 * len(transactions)


def commit_bytes(commit: BlockCommit) -> int:
    """The bytes that a block writes, keys included."""
    batches: Iterable[int] = (
        len(batch.raw) + 512 + sum(len(receipt) + 512 for _, receipt in batch.transactions) for batch in commit.batches
    )
    nodes = sum(len(node) + 64 for _, node in commit.nodes)
    return (
        sum(batches)
        + nodes
        + invalid_bytes(commit.invalid)
        + len(commit.block.header_bytes)
        + 16 * len(commit.superseded)
        + 65_536
    )
