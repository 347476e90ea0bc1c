"""Writes blocks and verdicts, removes their batches from the queue, and wakes the batches that waited for them."""

from collections.abc import Callable, Container

import structlog

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.ids import BatchId
from dovetail.validator.blocks.migrating import Migrating
from dovetail.validator.core.journal.model import BlockCommit, InvalidBatch
from dovetail.validator.core.mempool.queue import INJECTED, Pending, PendingQueue
from dovetail.validator.metrics import DropCause, Metrics
from dovetail.validator.store import BlockInfo, StorageFailed, Store

log = structlog.get_logger("validator.production")


class Settling:
    """``clock_s``: seconds of a steady clock. ``refused``: batches that never ran, because the rules on blocks refused
    them."""

    def __init__(
        self, store: Store, queue: PendingQueue, migrating: Migrating, metrics: Metrics, clock_s: Callable[[], float]
    ) -> None:
        self._store = store
        self._queue = queue
        self._migrating = migrating
        self._metrics = metrics
        self._clock_s = clock_s
        self._settled: list[BatchId] = []
        self._blocks: list[BlockInfo] = []
        self.count = 0
        """How many batches were settled so far."""

    def collect(self) -> tuple[list[BatchId], list[BlockInfo]]:
        """The batches and blocks that reached the disk since the last call."""
        collected = self._settled, self._blocks
        self._settled, self._blocks = [], []
        return collected

    def commit(
        self, commit: BlockCommit, settled: list[VerifiedBatch], refused: Container[BatchId], started_ms: int
    ) -> BlockInfo | None:
        """Write a block and its verdicts; None if the write failed."""
        writing_s = self._clock_s()
        try:
            info = self._store.commit_block(commit._replace(settled=self._arrivals(settled)))
        except StorageFailed as failure:
            num = commit.block.header.block_num
            log.error("block not written, its batches stay pending", block_num=num, reason=str(failure))
            return None
        now_s = self._clock_s()
        self._blocks.append(info)
        invalid = {verdict.batch_id for verdict in commit.invalid}
        applied = [batch for batch in settled if batch.id not in invalid]
        self._metrics.block_committed(applied, now_s - started_ms / 1000, now_s - writing_s)
        self._metrics.judged_invalid([batch for batch in settled if batch.id in invalid])
        self._forget(settled, commit.invalid, refused)
        return info

    def reject(
        self, invalid: list[InvalidBatch], settled: list[VerifiedBatch], refused: Container[BatchId] = ()
    ) -> bool:
        """Write verdicts without a block; False if the write failed."""
        if not settled:
            return True
        try:
            self._store.reject(invalid, self._arrivals(settled))
        except StorageFailed as failure:
            log.error("verdicts not written, their batches stay pending", reason=str(failure))
            return False
        self._metrics.judged_invalid(settled)
        self._forget(settled, invalid, refused)
        return True

    def drop(self, entries: list[Pending], cause: DropCause, why: str) -> bool:
        """Remove batches without a verdict, so that their status is UNKNOWN; False if the write failed.

        Batches that wait for a transaction of a dropped one keep waiting: it may be submitted again.
        """
        try:
            self._store.reject([], [entry.arrival for entry in entries])
        except StorageFailed as failure:
            log.error("batches are not dropped, they stay pending", reason=str(failure))
            return False
        for entry in entries:
            log.warning(
                "batch dropped without a verdict",
                batch_id=entry.batch.id,
                reason=why,
                was=str(entry.reason),
                family=str(entry.family or entry.batch.transactions[0].family),
                signer=entry.batch.signer,
            )
            self._queue.remove(entry)
            self._settled.append(entry.batch.id)
        self._metrics.dropped[cause] += len(entries)
        self.count += len(entries)
        return True

    def _arrivals(self, settled: list[VerifiedBatch]) -> list[int]:
        """The arrival numbers of pending batches. The store holds no injected batches."""
        entries = (self._queue.get(batch.id) for batch in settled)
        return [entry.arrival for entry in entries if entry is not None and entry.arrival != INJECTED]

    def _forget(self, settled: list[VerifiedBatch], invalid: list[InvalidBatch], refused: Container[BatchId]) -> None:
        rejected = {verdict.batch_id for verdict in invalid}
        for batch in settled:
            entry = self._queue.get(batch.id)
            if entry is not None:
                self._queue.remove(entry)
        self._migrating.settled(invalid)
        for batch in settled:
            for transaction in batch.transactions:
                if batch.id in rejected:
                    self._queue.wake_refused(transaction.id, never_ran=batch.id in refused)
                else:
                    self._queue.wake(transaction.id)
            self._settled.append(batch.id)
        self.count += len(settled)
