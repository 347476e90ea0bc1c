"""Accepting batches: verified elsewhere, then deduplicated, bounded, queued, written to disk, answered, in this order.

Every list of one sweep shares one write. A list is accepted whole or not at all (API.md, Batches and their status).
"""

from collections import Counter
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

import structlog
from google.protobuf.message import DecodeError

from dovetail.ledger.batch import VerifiedBatch, decode_submission
from dovetail.ledger.errors import NotDecodable, RefusedBatch
from dovetail.ledger.ids import BatchId, is_id
from dovetail.ledger.limits import Limits
from dovetail.validator.admission.verifier import Verified, VerifierPool
from dovetail.validator.core.mempool.queue import Pending, PendingQueue
from dovetail.validator.core.mempool.quota import ShareRefusal
from dovetail.validator.crash_points import CrashPoint, reach
from dovetail.validator.store import StorageFailed, Store
from dovetail.validator.transport.gateway import Request
from protos import raw_pb2
from protos.batch_pb2 import BatchHeader
from protos.client_batch_submit_pb2 import ClientBatchSubmitResponse

log = structlog.get_logger("validator.submission")

Answer = Callable[[Request, ClientBatchSubmitResponse], None]

_WAITS: Final = raw_pb2.RawBatchList(waits=True).SerializeToString()
"""What a REST API puts before the list of a client that waits."""


class _Checked(NamedTuple):
    request: Request
    verified: Verified
    waits: bool


class _Taken(NamedTuple):
    request: Request
    verified: list[VerifiedBatch]
    waits: bool


class Submissions:
    """``answer`` sends a response to whoever made a request."""

    def __init__(self, store: Store, queue: PendingQueue, pool: VerifierPool, limits: Limits, answer: Answer) -> None:
        self._store = store
        self._queue = queue
        self._pool = pool
        self._limits = limits
        self._answer = answer
        self._checking_bytes = 0
        self._checking_bytes_of: Counter[bytes] = Counter()
        """Of each connection that has any."""
        self._checked: list[_Checked] = []
        self._taken: list[_Taken] = []
        self._unwritten: list[Pending] = []
        self.refused_for_room = 0
        """How many lists were refused because the queue was full; not those of a key that had its share of it."""

        self.open = False
        """Whether there is a chain, and what was pending before the last stop is queued again."""

    def submit(self, request: Request) -> None:
        """Take a BatchList; the answer follows when it is verified and on disk, or refused."""
        limits = self._limits
        size = len(request.content)
        if not self.open:
            self._refuse(request, "INTERNAL_ERROR", "not_ready", "the validator has no genesis block yet, or starts")
            return
        if size > limits.body_bytes_max:
            message = f"the list has {size} bytes, at most {limits.body_bytes_max} are allowed"
            self._refuse(request, "INVALID_BATCH", "too_large", message)
            return
        if self._checking_bytes + size > limits.pending_bytes_max:
            message = f"{self._checking_bytes} bytes of batches are being verified, {size} more do not fit"
            self._refuse_full(request, message)
            return
        of_one = self._checking_bytes_of[request.identity]
        if of_one + size > limits.connection_checking_bytes_max:
            message = (
                f"{of_one} bytes of batches of this connection are being verified, {size} more are over its"
                f" {limits.connection_checking_bytes_max}"
            )
            self._refuse(request, "QUEUE_FULL", "queue_full", message)
            return
        full = self._queue.room.is_full()
        if full is not None and not self._claim_known(request.content):
            # A full queue must not cost the splitting and the checking of what it cannot take.
            self._refuse_full(request, full)
            return
        try:
            raw_batches, waits = decode_submission(request.content)
        except NotDecodable as error:
            sent = len(request.content.removeprefix(_WAITS))
            self._refuse(request, "INVALID_BATCH", "not_decodable", f"{error} ({sent} bytes)")
            return
        if not raw_batches:
            self._refuse(request, "INVALID_BATCH", "no_batches", "the list holds no batch")
            return
        if len(raw_batches) > limits.pending_batches_max:
            message = f"the list holds {len(raw_batches)} batches, at most {limits.pending_batches_max} can be pending"
            self._refuse(request, "INVALID_BATCH", "too_large", message)
            return
        # Nor may it cost the checking what does not fit, or is more than one key may hold, however small it is. To
        # claim another's key gains nothing.
        claimed = self._claimed_too_much(raw_batches)
        if isinstance(claimed, ShareRefusal):
            self._refuse_share(request, claimed)
            return
        if claimed is not None:
            self._refuse_full(request, claimed)
            return
        if waits and not len(self._queue) and not self._checked:
            # Nobody else is kept waiting, and its submitter does not wait for the verifiers (ADR 19).
            at_once = self._pool.verify_at_once(raw_batches)
            if at_once is not None:
                self._checked.append(_Checked(request, at_once, waits))
                return
        self._checking_bytes += size
        self._checking_bytes_of[request.identity] += size

        def verified(result: Verified) -> None:
            self._checking_bytes -= size
            self._checking_bytes_of[request.identity] -= size
            if not self._checking_bytes_of[request.identity]:
                del self._checking_bytes_of[request.identity]
            self._checked.append(_Checked(request, result, waits))

        self._pool.verify(raw_batches, verified)

    @property
    def has_checked(self) -> bool:
        """Whether anything was verified that ``take_checked`` has not taken."""
        return bool(self._checked)

    def take_checked(self) -> bool:
        """Queue or refuse what was verified since the last time; whether anything is to be written and answered.

        What is queued must be written, or settled, before any client is heard again: until then nobody may hear of it.
        """
        checked, self._checked = self._checked, []
        for request, verified, waits in checked:
            if isinstance(verified, RefusedBatch):
                self._refuse(request, "INVALID_BATCH", verified.rule, verified.message)
                continue
            try:
                fresh = {batch.id: batch for batch in verified if not self._knows(batch.id)}.values()
            except StorageFailed as failure:
                log.error("batches not accepted", reason=str(failure))
                self._refuse(request, "INTERNAL_ERROR", "storage_failed", str(failure))
                continue
            full = self._queue.room.refusal(fresh) if fresh else None
            if full is not None:
                self._refuse_full(request, full)
                continue
            over = self._queue.room.share_refusal(fresh) if fresh else None
            if over is not None:
                self._refuse_share(request, over)
                continue
            first = self._store.next_arrival + len(self._unwritten)
            for arrival, batch in enumerate(fresh, first):
                entry = self._queue.add(arrival, batch)
                entry.unwritten = True
                self._unwritten.append(entry)
            self._taken.append(_Taken(request, verified, waits))
        return bool(self._taken)

    def write_taken(self) -> list[Pending]:
        """Write with one sync what was taken, and answer. Returns what the disk refused: it must leave the queue."""
        taken, self._taken = self._taken, []
        unwritten, self._unwritten = self._unwritten, []
        if unwritten:
            try:
                self._store.add_pending([entry.batch.raw for entry in unwritten])
            except StorageFailed as failure:
                log.error("batches not accepted", reason=str(failure))
                for request, _, _ in taken:
                    self._refuse(request, "INTERNAL_ERROR", "storage_failed", str(failure))
                return unwritten
            for entry in unwritten:
                entry.unwritten = False
        for request, verified, _ in taken:
            self._accept(request, verified)
        reach(CrashPoint.ACCEPTED_AFTER_REPLY)
        return []

    @property
    def may_wait_for_block(self) -> bool:
        """Whether what is to be written is one batch, the only pending one, whose submitter waits for its verdict."""
        return len(self._queue) == len(self._unwritten) == len(self._taken) == 1 and self._taken[0].waits

    @property
    def unanswered(self) -> bool:
        """Whether anything was taken that is not answered yet, since it is not written: nobody may hear of it."""
        return bool(self._taken)

    def settled(self, batch_ids: Collection[BatchId]) -> None:
        """The verdicts on these batches are on disk: what waited for that needs no other write, and is answered."""
        if self.unanswered and all(entry.batch.id in batch_ids for entry in self._unwritten):
            taken, self._taken, self._unwritten = self._taken, [], []
            for request, verified, _ in taken:
                self._accept(request, verified, committed=self._are_committed(verified))
            reach(CrashPoint.ACCEPTED_AFTER_REPLY)

    def _are_committed(self, verified: list[VerifiedBatch]) -> bool:
        try:
            return all(self._store.batch_number(batch.id) is not None for batch in verified)
        except StorageFailed:
            # It is told when the status is asked for.
            return False

    def _accept(self, request: Request, verified: list[VerifiedBatch], *, committed: bool = False) -> None:
        ids = [batch.id for batch in verified]
        self._answer(request, ClientBatchSubmitResponse(status="OK", batch_ids=ids, committed=committed))

    def _claimed_too_much(self, raw_batches: list[bytes]) -> ShareRefusal | str | None:
        """Why what is not verified yet cannot fit, by the ids and keys that it claims."""
        if self._queue.room.claims_refusal({_claimed_signer(raw_batches[0]): len(raw_batches)}) is None:
            # As in nearly every list; one of many keys is looked at when it is verified.
            return None
        # A list may name a batch twice; it is queued once.
        fresh = {_claimed_id(raw) or raw: raw for raw in raw_batches if not self._claims_known(raw)}
        return self._queue.room.claims_refusal(Counter(map(_claimed_signer, fresh.values())))

    def _claim_known(self, content: bytes) -> bool:
        """Whether a list names known batches alone, read up to the first that is not; true of what is no list."""
        try:
            batches = raw_pb2.RawBatchList.FromString(content).batches
        except DecodeError:
            return True
        return all(map(self._claims_known, batches))

    def _claims_known(self, raw: bytes) -> bool:
        """Whether a batch that is not verified yet bears the id of one that is known."""
        batch_id = _claimed_id(raw)
        try:
            return batch_id is not None and self._knows(batch_id)
        except StorageFailed:
            # It is told once the batch is verified.
            return True

    def _knows(self, batch_id: BatchId) -> bool:
        """Whether a batch is pending or committed; an invalid one is judged again."""
        return self._queue.get(batch_id) is not None or self._store.batch_number(batch_id) is not None

    def _refuse_share(self, request: Request, over: ShareRefusal) -> None:
        if over.for_ever:
            self._refuse(request, "INVALID_BATCH", "too_large", over.message)
        else:
            self._refuse(request, "QUEUE_FULL", "queue_full", over.message)

    def _refuse_full(self, request: Request, message: str) -> None:
        # Whoever sends more than there is room for makes no full queue of an idle one.
        self.refused_for_room += self._queue.room.is_half_full()
        self._refuse(request, "QUEUE_FULL", "queue_full", message)

    def _refuse(self, request: Request, status: str, reason: str, message: str) -> None:
        self._answer(request, ClientBatchSubmitResponse(status=status, reason=reason, message=message))


def _claimed_id(raw: bytes) -> BatchId | None:
    """The id that a batch which is not verified yet bears, if it is one."""
    try:
        batch_id = raw_pb2.RawBatch.FromString(raw).header_signature
    except DecodeError:
        return None
    return BatchId(batch_id) if is_id(batch_id) else None


def _claimed_signer(raw: bytes) -> str:
    """The key that a batch which is not verified yet says it is signed with; nothing of what is no batch."""
    try:
        return BatchHeader.FromString(raw_pb2.RawBatch.FromString(raw).header).signer_pubkey
    except DecodeError:
        return ""
