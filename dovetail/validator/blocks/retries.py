"""Decides how long batches without a verdict wait, and when they are INVALID.

``dovetail.validator.blocks.production`` writes the verdicts. Blocks and the store do not belong here.
"""

from typing import Final

import structlog

from dovetail.ledger.ids import BatchId, TransactionId
from dovetail.ledger.limits import Limits
from dovetail.validator.core.execution.model import Rejected, Withdrawn
from dovetail.validator.core.journal import proposing
from dovetail.validator.core.mempool.queue import Pending, PendingQueue
from dovetail.validator.processors.registry import Processors

log = structlog.get_logger("validator.production")

_DOUBLINGS_MAX: Final = 16
"""A back-off doubles at most this often, before ``processor_lost_back_off_ms_max`` bounds it."""


class Retries:
    """Times are milliseconds of the clock that drives production.

    ``gives_up``: whether a batch becomes INVALID after processors failed on it too often. This is False in a network of
    several nodes, where no verdict may depend on the trouble of one node.
    """

    def __init__(self, queue: PendingQueue, processors: Processors, limits: Limits, *, gives_up: bool) -> None:
        self._queue = queue
        self._processors = processors
        self._limits = limits
        self._gives_up = gives_up

    def put_off(self, withdrawn: list[tuple[Pending, Withdrawn]], now_ms: int) -> None:
        """Park batches without a verdict, or queue them again if they no longer have to wait."""
        for entry, verdict in withdrawn:
            if back_off_ms := self.back_off_ms(entry, verdict):
                self._queue.back_off(entry, now_ms + back_off_ms)
            elif (verdict.family is not None and self._processors.has(verdict.family)) or (
                verdict.dependency is not None and not self._queue.may_bring(verdict.dependency, entry)
            ):
                self._queue.put_back(entry)
            else:
                proposing.park(self._queue, entry, verdict, now_ms + self._limits.dependency_wait_ms)

    def back_off_ms(self, entry: Pending, verdict: Withdrawn) -> int:
        """The pause of a batch whose processor failed or was lost, in milliseconds; 0 for other reasons."""
        limits = self._limits
        if verdict.reason == "internal_error":
            log.warning("processor failed, batch is tried again", batch_id=entry.batch.id, reason=verdict.message)
            most = f" of at most {limits.internal_error_tries_max}" if self._gives_up else ""
            entry.failure = f"its processor failed {entry.tries}{most} times, the last time with: {verdict.message}"
            failures = entry.tries
        elif verdict.reason == "processor_lost":
            log.warning("processor lost with a batch alone, it is tried again", batch_id=entry.batch.id)
            entry.failure = (
                f"its processor was lost {entry.losses} times while it applied this batch alone, or gave no answer"
                f" within {limits.task_answer_ms_max} ms (task_answer_ms_max)"
            )
            failures = entry.losses
        else:
            return 0
        back_off_ms = limits.internal_error_back_off_ms << min(failures, _DOUBLINGS_MAX)
        return min(back_off_ms, limits.processor_lost_back_off_ms_max)

    def exhausted(self, withdrawn: list[tuple[Pending, Withdrawn]]) -> list[tuple[Pending, Rejected]]:
        """Count failures, and reject the batches on which processors failed too often.

        Removes these batches from ``withdrawn``.
        """
        exhausted = []
        for pair in list(withdrawn):
            entry, verdict = pair
            if verdict.reason != "internal_error":
                continue
            entry.tries += 1
            if self._gives_up and entry.tries >= self._limits.internal_error_tries_max:
                message = f"its processor failed {entry.tries} times, the last time with: {verdict.message}"
                exhausted.append((entry, Rejected("internal_error", message, family=verdict.family)))
                withdrawn.remove(pair)
        return exhausted

    def overdue(self, now_ms: int) -> list[tuple[Pending, Rejected]]:
        """The batches whose dependency did not arrive in time, with their verdicts. Ends the back-offs that are due.

        A batch waits longer if its dependency is pending and may still be committed.
        """
        missing: list[tuple[Pending, Rejected]] = []
        known: dict[BatchId, bool] = {}
        for entry, dependency, asking in self._take_late(now_ms):
            holder = self._queue.holder(dependency)
            if self._may_commit(holder, known):
                entry.due_ms = now_ms + self._limits.dependency_wait_ms
            elif holder is not None and holder.due_ms is not None and holder.due_ms > now_ms:
                # Wait no longer than the holder waits, so that batches that wait for each other both end.
                entry.due_ms = holder.due_ms
            else:
                waited_s = self._limits.dependency_wait_ms / 1000
                message = f"it depends on transaction {dependency}, which did not come within {waited_s:g} s"
                missing.append((entry, Rejected("dependency_missing", message, asking)))
        return missing

    def _may_commit(self, holder: Pending | None, known: dict[BatchId, bool]) -> bool:
        """Whether the chain of dependencies from ``holder`` ends at a batch that waits for none.

        ``known``: the answers so far, by batch.
        """
        path: list[BatchId] = []
        while holder is not None and holder.dependency is not None and holder.batch.id not in known:
            # A path that comes back to this batch is a cycle.
            known[holder.batch.id] = False
            path.append(holder.batch.id)
            holder = self._queue.holder(holder.dependency)
        may_commit = holder is not None and (holder.dependency is None or known[holder.batch.id])
        known.update(dict.fromkeys(path, may_commit))
        return may_commit

    def _take_late(self, now_ms: int) -> list[tuple[Pending, TransactionId, TransactionId]]:
        """The batches whose wait is over, each with its dependency and the transaction that names the dependency."""
        late: list[tuple[Pending, TransactionId, TransactionId]] = []
        for entry in self._queue.tick(now_ms):
            dependency = entry.dependency
            assert dependency is not None, "only waits for dependencies expire"
            asking = entry.asks_for(dependency)
            if asking is not None:
                late.append((entry, dependency, asking))
            else:
                # The batch waited for another batch with the same transaction, and the other batch is still not
                # settled.
                entry.due_ms = None
                self._queue.put_back(entry)
        return late
