"""What becomes of batches that got no verdict: what they wait for, how long, and when they are tried no more.

No blocks, no store: what is judged here is written by ``dovetail.validator.blocks.production``.
"""

import structlog

from dovetail.ledger.ids import BatchId, TransactionId
from dovetail.ledger.limits import Limits
from dovetail.validator.core.execution.model import Rejected, Withdrawn
from dovetail.validator.core.journal import proposing
from dovetail.validator.core.mempool.queue import Pending, PendingQueue
from dovetail.validator.processors.registry import Processors

log = structlog.get_logger("validator.production")

_DOUBLINGS_MAX = 16
"""Of a back-off, before its own bound is looked at."""


class Retries:
    """Times are milliseconds of the clock that drives production.

    ``gives_up``: whether a batch becomes INVALID that processors failed on too often. In a network no verdict rests on
    the trouble of one node.
    """

    def __init__(self, queue: PendingQueue, processors: Processors, limits: Limits, *, gives_up: bool) -> None:
        self._queue = queue
        self._processors = processors
        self._limits = limits
        self._gives_up = gives_up

    def put_off(self, withdrawn: list[tuple[Pending, Withdrawn]], now_ms: int) -> None:
        """Put batches where they wait.

        What they waited for may have come, or settled, meanwhile: then they are looked at again at once.
        """
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
        """How long a batch must not be tried again whose processor failed or was lost with it; 0 for other reasons."""
        limits = self._limits
        if verdict.reason == "internal_error":
            log.warning("processor failed, batch is tried again", batch_id=entry.batch.id, reason=verdict.message)
            most = f" of at most {limits.internal_error_tries_max}" if self._gives_up else ""
            entry.failure = f"its processor failed {entry.tries}{most} times, the last time with: {verdict.message}"
            failures = entry.tries
        elif verdict.reason == "processor_lost":
            log.warning("processor lost with a batch alone, it is tried again", batch_id=entry.batch.id)
            entry.failure = f"its processor was lost {entry.losses} times while it applied this batch alone"
            failures = entry.losses
        else:
            return 0
        back_off_ms = limits.internal_error_back_off_ms << min(failures, _DOUBLINGS_MAX)
        return min(back_off_ms, limits.processor_lost_back_off_ms_max)

    def exhausted(self, withdrawn: list[tuple[Pending, Withdrawn]]) -> list[tuple[Pending, Rejected]]:
        """Counts the tries. Returns the batches that processors failed on too often; they leave ``withdrawn``."""
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
        """The batches whose dependency did not come in time, and the verdicts on them.

        Ends the back-offs whose time has come. Who waits for a batch that may still come waits on.
        """
        missing: list[tuple[Pending, Rejected]] = []
        known: dict[BatchId, bool] = {}
        for entry, dependency, asking in self._late(now_ms):
            holder = self._queue.holder(dependency)
            if self._may_come(holder, known):
                entry.due_ms = now_ms + self._limits.dependency_wait_ms
            elif holder is not None and holder.due_ms is not None and holder.due_ms > now_ms:
                # Not longer than its holder waits itself: two that wait for each other both end.
                entry.due_ms = holder.due_ms
            else:
                waited_s = self._limits.dependency_wait_ms / 1000
                message = f"it depends on transaction {dependency}, which did not come within {waited_s:g} s"
                missing.append((entry, Rejected("dependency_missing", message, asking)))
        return missing

    def _may_come(self, holder: Pending | None, known: dict[BatchId, bool]) -> bool:
        """Whether a batch waits for none, or through others for one that does not; ``known``: what was found so far."""
        way: list[BatchId] = []
        while holder is not None and holder.dependency is not None and holder.batch.id not in known:
            # Until the end of the way is found: who comes back here goes in circles.
            known[holder.batch.id] = False
            way.append(holder.batch.id)
            holder = self._queue.holder(holder.dependency)
        comes = holder is not None and (holder.dependency is None or known[holder.batch.id])
        known.update(dict.fromkeys(way, comes))
        return comes

    def _late(self, now_ms: int) -> list[tuple[Pending, TransactionId, TransactionId]]:
        """The batches whose time is over, with the dependency, and with their transaction that names it."""
        late: list[tuple[Pending, TransactionId, TransactionId]] = []
        for entry in self._queue.tick(now_ms):
            dependency = entry.dependency
            assert dependency is not None, "only waits for dependencies end"
            asking = entry.asks_for(dependency)
            if asking is not None:
                late.append((entry, dependency, asking))
            else:
                # It lacks nothing: it let another batch with the same transaction go first, which came to no end.
                entry.due_ms = None
                self._queue.put_back(entry)
        return late
