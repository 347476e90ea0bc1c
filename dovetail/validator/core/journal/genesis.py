"""Block 0 takes every genesis batch or is not made: why it cannot be made of them.

Rules on single batches stand in ``rules``. Nothing is written here.
"""

from dovetail.ledger.limits import Limits
from dovetail.validator.core.journal.model import InvalidBatch, invalid_batch
from dovetail.validator.core.journal.proposing import Candidate
from dovetail.validator.core.mempool.queue import PendingQueue


def refusal(queue: PendingQueue, candidate: Candidate, limits: Limits) -> str | None:
    """Why not all pending batches may enter block 0 together, the first one's reason; None if they may."""
    for index, verdict in candidate.run.refused.items():
        return judged(invalid_batch(candidate.run.batches[index], verdict))
    chosen = {entry.batch.id for entry in candidate.entries}
    for entry in queue:
        if entry.batch.id in chosen:
            continue
        if entry.dependency is not None:
            # Whoever could hand it in later is not heard before there is a chain.
            return (
                f"batch {entry.batch.id}: dependency_missing: it depends on transaction {entry.dependency}, which no"
                " batch before it holds"
            )
        return (
            f"batch {entry.batch.id} does not fit: a block holds at most {limits.block_transactions_max} transactions,"
            f" {limits.block_bytes_max} bytes and {limits.block_addresses_max} declared addresses"
        )
    return None


def judged(batch: InvalidBatch) -> str:
    """The same for a batch that its processor, or a rule, found INVALID."""
    named = f"batch {batch.batch_id}"
    if batch.transaction_id is not None:
        named += f", transaction {batch.transaction_id}"
    return f"{named}: {batch.reason}: {batch.message}"
