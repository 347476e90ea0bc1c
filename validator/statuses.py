"""What became of a batch, and those who wait to hear it. Each waiter is registered once, freed once; nothing polls."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable

from ledger.ids import BatchId, is_id
from ledger.limits import Limits
from protos.client_batch_submit_pb2 import ClientBatchStatus
from validator.mempool.queue import PendingQueue, Reason
from validator.store import Store


class Statuses:
    """Reads queue and store; owns the waiters."""

    def __init__(self, queue: PendingQueue, store: Store, limits: Limits) -> None:
        self._limits = limits
        self._waited_for = 0
        self._queue = queue
        self._store = store
        self._waiters: defaultdict[BatchId, set[_Waiter]] = defaultdict(set)

    def of(self, batch_ids: Iterable[str]) -> list[ClientBatchStatus]:
        """One status for each id, in the order asked."""
        return [self._status(batch_id) for batch_id in batch_ids]

    def wait(self, batch_ids: Iterable[str], timeout_s: float, answer: Callable[[], None]) -> None:
        """Call ``answer`` once: when none of the batches is pending any more, or when the time is over.

        At once, too, where so many are waited for already that there is no room for more.
        """
        pending = {entry.batch.id for entry in map(self._queue.get, map(BatchId, batch_ids)) if entry is not None}
        if not pending or self._waited_for + len(pending) > self._limits.status_ids_waited_for_max:
            answer()
            return
        self._waited_for += len(pending)
        waiter = _Waiter(pending, answer)
        for batch_id in pending:
            self._waiters[batch_id].add(waiter)
        waiter.timer = asyncio.get_running_loop().call_later(timeout_s, self._release, waiter)

    def settled(self, batch_ids: Iterable[BatchId]) -> None:
        """These batches are committed or invalid, and that is on disk."""
        for batch_id in batch_ids:
            for waiter in self._waiters.pop(batch_id, ()):
                waiter.pending.discard(batch_id)
                self._waited_for -= 1
                if not waiter.pending:
                    self._release(waiter)

    def _release(self, waiter: "_Waiter") -> None:
        self._waited_for -= len(waiter.pending)
        for batch_id in waiter.pending:
            waiters = self._waiters[batch_id]
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[batch_id]
        if waiter.timer is not None:
            waiter.timer.cancel()
        waiter.answer()

    def _status(self, text: str) -> ClientBatchStatus:
        status = ClientBatchStatus(batch_id=text, status=ClientBatchStatus.UNKNOWN)
        if not is_id(text):
            status.reason = "not_an_id"
            return status
        batch_id = BatchId(text)
        entry = self._queue.get(batch_id)
        if entry is not None:
            status.status = ClientBatchStatus.PENDING
            status.reason = entry.reason
            if entry.reason is Reason.WAITING_FOR_PROCESSOR and entry.family is not None:
                status.family_name, status.family_version = entry.family
            elif entry.reason is Reason.WAITING_FOR_DEPENDENCY and entry.dependency is not None:
                status.dependency = entry.dependency
        elif self._store.batch_number(batch_id) is not None:
            status.status = ClientBatchStatus.COMMITTED
        elif (invalid := self._store.invalid(batch_id)) is not None:
            status.status = ClientBatchStatus.INVALID
            status.reason = invalid.reason
            status.family_name = invalid.family_name
            status.family_version = invalid.family_version
            status.invalid_transactions.add(
                transaction_id=invalid.transaction_id or "",
                message=invalid.message,
                extended_data=invalid.extended_data,
            )
        return status


class _Waiter:
    __slots__ = ("answer", "pending", "timer")

    def __init__(self, pending: set[BatchId], answer: Callable[[], None]) -> None:
        self.pending = pending
        self.answer = answer
        self.timer: asyncio.TimerHandle | None = None
