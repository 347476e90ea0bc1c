"""Upper bounds, in bytes, of what a write adds to the store: for room in the map before it begins."""

from collections.abc import Iterable, Sequence
from typing import Final

from dovetail.ledger.ids import TransactionId
from dovetail.validator.core.journal.model import BlockCommit, InvalidBatch

_PRUNED_NODE_BYTES: Final = 2048
"""A removed node's share of the pages that are copied for it."""


def prune_bytes(lists: list[tuple[int, list[int]]]) -> int:
    """What the removal of the nodes that blocks replaced copies of pages; ``lists``: a block's number, its nodes."""
    return _PRUNED_NODE_BYTES * sum(1 + len(numbers) for _, numbers in lists)


def invalid_bytes(invalid: list[InvalidBatch]) -> int:
    """What is remembered of invalid batches and their transactions, keys included."""
    return sum(
        len(entry.message) + len(entry.extended_data) + 1024 + names_bytes(entry.transaction_ids) for entry in invalid
    )


def names_bytes(transactions: Sequence[TransactionId]) -> int:
    """What is remembered of transactions of invalid batches, keys included."""
    return 256 * len(transactions)


def commit_bytes(commit: BlockCommit) -> int:
    """What a block writes, keys included."""
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
