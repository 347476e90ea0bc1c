"""Counts how long batches are pending, over restarts, and remembers which families were served.

The time in which the node does not run does not count, and no change of the system's clock does. ``production`` drops
the batches that are pending for too long.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice, takewhile
from typing import Final

import structlog

from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.mempool.queue import Pending, PendingQueue
from dovetail.validator.store import QueueRecord, StorageFailed, Store

_STEPS_MAX: Final = 96
"""The steps in which ``pending_wait_s_max`` is counted. A step has at least a second."""

OVERDUE_MAX: Final = 1_000
"""The most batches that one call of ``tick`` returns, because dropping them takes time."""

log = structlog.get_logger("validator.production")


class Remembered:
    """Notes the arrival number of the next batch at each step. A batch with a lower number has waited since that step.

    ``has_processor``: whether a processor serves a family now. ``clock_s``: seconds of a steady clock.
    """

    def __init__(
        self,
        store: Store,
        queue: PendingQueue,
        limits: Limits,
        has_processor: Callable[[FamilyVersion], bool],
        clock_s: Callable[[], float],
    ) -> None:
        self._store = store
        self._queue = queue
        self._has_processor = has_processor
        self._clock_s = clock_s
        self._steps = min(_STEPS_MAX, limits.pending_wait_s_max)
        self._step_s = limits.pending_wait_s_max / self._steps
        record = self._read()
        # Steps of another length count for nothing: the limit was changed.
        marks = record.marks if record.step_s == self._step_s else ()
        # With an empty queue, a start begins again with low numbers, and every new batch would be below the old marks.
        self._marks = deque((min(mark, store.next_arrival) for mark in marks), maxlen=self._steps + 1)
        for family in record.served:
            queue.quota.serve(family, has_processor)
        self._next_s = clock_s() + self._step_s
        self._changed = False

    def serve(self, family: FamilyVersion) -> None:
        """Note that a processor has registered a family."""
        self._changed |= self._queue.quota.serve(family, self._has_processor)

    def tick(self) -> list[Pending]:
        """The batches that are pending for too long, except those that a block is running now."""
        now_s = self._clock_s()
        if now_s >= self._next_s:
            self._next_s += self._step_s
            if self._next_s <= now_s:
                # The process was suspended. However long that was, it counts as one step.
                self._next_s = now_s + self._step_s
            self._marks.append(self._store.next_arrival)
            # Marks of an empty queue are not worth a write: older ones never make a batch look older.
            self._changed |= len(self._queue) > 0
        if self._changed and self._store.failure is None:
            self._write()
        if len(self._marks) <= self._steps:
            return []
        since = self._marks[0]
        return list(islice(takewhile(lambda entry: entry.arrival < since, self._queue.droppable()), OVERDUE_MAX))

    def _read(self) -> QueueRecord:
        try:
            return self._store.queue_record()
        except StorageFailed as failure:
            log.error("begins anew to count how long batches are pending", reason=str(failure))
            return QueueRecord()

    def _write(self) -> None:
        record = QueueRecord(self._step_s, tuple(self._marks), tuple(self._queue.quota.served))
        try:
            self._store.remember_queue(record)
        except StorageFailed as failure:
            log.error("how long batches are pending is not written, trying again", reason=str(failure))
        else:
            self._changed = False
