"""The statuses of batches, and the clients' waits for them. Nothing polls."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from dovetail.ledger.ids import BatchId, is_id
from dovetail.ledger.limits import Limits
from dovetail.ledger.status_details import DetailRoom
from dovetail.validator.core.mempool.queue import PendingQueue, Reason
from dovetail.validator.store import StorageFailed, Store
from protos.client_batch_submit_pb2 import ClientBatchStatus

_IDS_A_TURN_MAX: Final = 5_000
"""Ended waits are answered until this many ids were looked up; then the event loop handles other events first."""

CORRELATION_CHARACTERS_MAX: Final = 512
"""A wait with a longer correlation id is answered at once."""

Answer = Callable[[bytes, str, list[ClientBatchStatus] | None], None]
"""Identity and correlation id of the request, and the statuses in the order of its ids; None: see ``answer``."""

log = structlog.get_logger("validator.statuses")


class Statuses:
    """Reads queue and store; owns the waits. ``send`` sends the statuses to the client."""

    def __init__(self, queue: PendingQueue, store: Store, limits: Limits, send: Answer) -> None:
        self._limits = limits
        self._queue = queue
        self._store = store
        self._send = send
        self._ids_held = self._unknown_held = 0
        self._of_batch: dict[BatchId, dict[_Wait, None]] = {}
        self._of_peer: dict[bytes, dict[str, _Wait]] = {}
        self._ids_of_peer: Counter[bytes] = Counter()
        self._ended: deque[_Wait] = deque()
        self._turn: asyncio.Handle | None = None

    def close(self) -> None:
        """Free every wait without an answer."""
        for identity in self.peers:
            self.cancel_all(identity)

    @property
    def waiters(self) -> int:
        return sum(map(len, self._of_peer.values()))

    @property
    def peers(self) -> list[bytes]:
        return list(self._of_peer)

    def of(self, batch_ids: Iterable[str]) -> list[ClientBatchStatus]:
        """One status for each id, in the order asked, with the details that fit. Raises StorageFailed."""
        room = DetailRoom(self._limits.page_bytes_max)
        return [room.fit(self._status(batch_id)) for batch_id in batch_ids]

    def answer(self, identity: bytes, correlation_id: str, batch_ids: Iterable[str]) -> None:
        """Answer at once. The answer is None if the store is damaged at one of the ids."""
        statuses = None
        try:
            statuses = self.of(batch_ids)
        except StorageFailed as failure:
            log.error("the store is damaged, a client gets no answer", reason=str(failure))
        self._send(identity, correlation_id, statuses)

    def wait(self, identity: bytes, correlation_id: str, batch_ids: Sequence[str], timeout_s: float) -> None:
        """Answer once: when all the batches are committed or invalid, or after ``timeout_s``.

        Waits for unknown ids too, because their batches may still arrive, but not for texts that are no ids. Unknown
        ids have a limit of their own, so that they do not use up the limit for pending ids. Unknown ids beyond that
        limit are not waited for. Answers at once if all waits together, or the waits of this peer, have reached their
        limit. If a peer reuses a correlation id, its earlier wait is answered first.
        """
        earlier = self._of_peer.get(identity, {}).get(correlation_id)
        if earlier is not None:
            self._conclude(earlier)
        known = [self._queue.get(BatchId(batch_id)) for batch_id in batch_ids]
        pending = {entry.batch.id for entry in known if entry is not None}
        unknown = {
            BatchId(text)
            for text, entry in zip(batch_ids, known, strict=True)
            if entry is None and self._is_undecided(text)
        }
        if self._unknown_held + len(unknown) > self._limits.status_unknown_ids_waited_for_max:
            unknown = set()
        ids = len(batch_ids)
        if (
            not (pending or unknown)
            or len(correlation_id) > CORRELATION_CHARACTERS_MAX
            or self._ids_held + ids > self._limits.status_ids_waited_for_max
            or self._ids_of_peer[identity] + ids > self._limits.connection_ids_waited_for_max
        ):
            self.answer(identity, correlation_id, batch_ids)
            return
        # Keep the queue's own string of an id, so that a thousand waits for a batch share it.
        asked = tuple(text if entry is None else entry.batch.id for text, entry in zip(batch_ids, known, strict=True))
        wait = _Wait(identity, correlation_id, asked, ids, len(unknown), len(pending) + len(unknown))
        self._ids_held += ids
        self._ids_of_peer[identity] += ids
        self._unknown_held += len(unknown)
        self._of_peer.setdefault(identity, {})[correlation_id] = wait
        for batch_id in pending | unknown:
            self._of_batch.setdefault(batch_id, {})[wait] = None
        wait.timer = asyncio.get_running_loop().call_later(timeout_s, self._end, wait)

    def cancel(self, identity: bytes, correlation_id: str) -> bool:
        """Free a peer's wait without an answer. False if there is no such wait."""
        wait = self._of_peer.get(identity, {}).get(correlation_id)
        if wait is None:
            return False
        self._free(wait)
        return True

    def cancel_all(self, identity: bytes) -> int:
        """Free every wait of a disconnected peer. Returns their number."""
        waits = list(self._of_peer.get(identity, {}).values())
        for wait in waits:
            self._free(wait)
        return len(waits)

    def settled(self, batch_ids: Iterable[BatchId]) -> None:
        """Answer the waits of batches whose final status is on disk."""
        for batch_id in batch_ids:
            for wait in self._of_batch.pop(batch_id, ()):
                wait.left -= 1
                if not wait.left:
                    self._ended.append(wait)
        if self._ended and self._turn is None:
            self._conclude_some()

    def _end(self, wait: "_Wait") -> None:
        """Answer a wait whose time is over, in a later turn of the loop, because many may end together."""
        self._ended.append(wait)
        if self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._conclude_some)

    def _conclude_some(self) -> None:
        """Answer ended waits until ``_IDS_A_TURN_MAX`` ids are looked up; schedule the rest."""
        self._turn = None
        ids = 0
        while self._ended and ids < _IDS_A_TURN_MAX:
            wait = self._ended.popleft()
            # The wait may be cancelled meanwhile, or have ended twice: by its batches and by its time.
            if self._of_peer.get(wait.identity, {}).get(wait.correlation_id) is wait:
                ids += len(wait.asked)
                self._conclude(wait)
        if self._ended:
            self._turn = asyncio.get_running_loop().call_soon(self._conclude_some)

    def _conclude(self, wait: "_Wait") -> None:
        self._free(wait)
        self.answer(wait.identity, wait.correlation_id, wait.asked)

    def _free(self, wait: "_Wait") -> None:
        self._ids_held -= wait.ids
        self._ids_of_peer[wait.identity] -= wait.ids
        self._unknown_held -= wait.unknown
        for batch_id in wait.asked:
            waits = self._of_batch.get(BatchId(batch_id))
            if waits is not None:
                waits.pop(wait, None)
                if not waits:
                    del self._of_batch[BatchId(batch_id)]
        of_peer = self._of_peer[wait.identity]
        del of_peer[wait.correlation_id]
        if not of_peer:
            del self._of_peer[wait.identity], self._ids_of_peer[wait.identity]
        if wait.timer is not None:
            wait.timer.cancel()

    def _is_undecided(self, text: str) -> bool:
        """Whether the batch may still arrive: the id is well-formed, and no committed or invalid batch has it."""
        try:
            return (
                is_id(text)
                and self._store.batch_number(BatchId(text)) is None
                and self._store.invalid(BatchId(text)) is None
            )
        except StorageFailed:
            # The answer to the whole wait will report the damage.
            return False

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
            status.message = entry.activation or entry.failure
            if entry.family is not None:
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
            status.omitted_bytes = invalid.omitted_bytes
            status.invalid_transactions.add(
                transaction_id=invalid.transaction_id or "",
                message=invalid.message,
                extended_data=invalid.extended_data,
            )
        return status


@dataclass(slots=True, eq=False)
class _Wait:
    """A client's wait.

    ``asked``: the ids in the request; ``ids``: how many ids count for the limits; ``unknown``: how many ids are
    unknown; ``left``: how many are undecided.
    """

    identity: bytes
    correlation_id: str
    asked: tuple[str, ...]
    ids: int
    unknown: int
    left: int
    timer: asyncio.TimerHandle | None = None
