"""Decides whether all genesis batches can enter block 0 together. The rules on single batches are in ``rules``."""

from dovetail.ledger.limits import Limits
from dovetail.validator.core.journal.model import InvalidBatch, invalid_batch
from dovetail.validator.core.journal.proposing import Candidate
from dovetail.validator.core.mempool.queue import PendingQueue


def refusal(queue: PendingQueue, candidate: Candidate, limits: Limits) -> str | None:
    """Why some pending batch cannot enter block 0; None if all can."""
    for index, verdict in candidate.run.refused.items():
        return description(invalid_batch(candidate.run.batches[index], verdict))
    chosen = {entry.batch.id for entry in candidate.entries}
    for entry in queue:
        if entry.batch.id in chosen:
            continue
        if entry.dependency is not None:
            # The dependency cannot arrive later: without a chain no client may submit batches.
            return (
                f"batch {entry.batch.id}: dependency_missing: it depends on transaction {entry.dependency}, which no"
                " batch before it holds"
            )
        return (
            f"batch {entry.batch.id} does not fit: a block holds at most {limits.block_transactions_max} transactions,"
            f" {limits.block_bytes_max} bytes and {limits.block_addresses_max} declared addresses"
        )
    return None


def description(batch: InvalidBatch) -> str:
    """Names an INVALID batch with its reason, for the operator."""
    named = f"batch {batch.batch_id}"
    if batch.transaction_id is not None:
        named += f", transaction {batch.transaction_id}"
    return f"{named}: {batch.reason}: {batch.message}"
