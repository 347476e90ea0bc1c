"""The values that the store writes: a finished block, and the record of an invalid batch."""

from typing import NamedTuple

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.block import SealedBlock
from dovetail.ledger.ids import BatchId, TransactionId
from dovetail.validator.core.execution.model import Rejected
from dovetail.validator.core.state.nodes import Ref


class InvalidBatch(NamedTuple):
    """Why a batch is INVALID (API.md, Batches and their status).

    ``transaction_ids``: the batch's transactions. The store keeps these ids separately, to refuse batches that depend
    on them.
    ``omitted_bytes``: the bytes of message and extended data that are no longer kept (``without_details``).
    """

    batch_id: BatchId
    reason: str
    message: str
    transaction_id: TransactionId | None = None
    extended_data: bytes = b""
    family_name: str = ""
    family_version: str = ""
    transaction_ids: tuple[TransactionId, ...] = ()
    omitted_bytes: int = 0

    def without_details(self) -> "InvalidBatch":
        """The record with reason and ids alone."""
        omitted = self.omitted_bytes + len(self.message.encode()) + len(self.extended_data)
        return InvalidBatch(self.batch_id, self.reason, "", self.transaction_id, omitted_bytes=omitted)


class CommittedBatch(NamedTuple):
    """One batch of a block to commit: its bytes, and each transaction's id and serialized receipt in order."""

    id: BatchId
    raw: bytes
    transactions: tuple[tuple[TransactionId, bytes], ...]


class BlockCommit(NamedTuple):
    """All changes of one block to the store, for one write transaction.

    ``settled``: arrival numbers of the pending batches that get their status in this block or by ``invalid``.
    """

    block: SealedBlock
    batches: list[CommittedBatch]
    root: Ref
    nodes: list[tuple[int, bytes]]
    superseded: list[int]
    invalid: list[InvalidBatch]
    settled: list[int]


def invalid_batch(batch: VerifiedBatch, verdict: Rejected) -> InvalidBatch:
    """The record of a batch that is INVALID by ``verdict``."""
    return InvalidBatch(
        batch_id=batch.id,
        reason=verdict.reason,
        message=verdict.message,
        transaction_id=verdict.transaction_id,
        extended_data=verdict.extended_data,
        family_name=verdict.family.name if verdict.family else "",
        family_version=verdict.family.version if verdict.family else "",
        transaction_ids=tuple(transaction.id for transaction in batch.transactions),
    )
