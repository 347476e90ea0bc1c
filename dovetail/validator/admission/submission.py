"""Accepting batches: verified elsewhere, then deduplicated, bounded, queued, written to disk, answered, in this order.

Every list of one sweep shares one write. A list is accepted whole or not at all (API.md, Batches and their status).
"""

from collections import Counter
from collections.abc import Callable, Collection
from typing import NamedTuple

import structlog
from google.protobuf.message import DecodeError

from dovetail.ledger.batch import VerifiedBatch, decode_batch_list
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


class _Checked(NamedTuple):
    request: Request
    verified: Verified


class _Staged(NamedTuple):
    """A list that passed every check and is queued; its write and its answer follow."""

    request: Request
    verified: list[VerifiedBatch]


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
        full = self._queue.quota.is_full()
        if full is not None and not self._claim_known(request.content):
            # A full queue must not cost the splitting and the checking of what it cannot take.
            self._refuse_full(request, full)
            return
        try:
            raw_batches = decode_batch_list(request.content)
        except NotDecodable as error:
            self._refuse(request, "INVALID_BATCH", "not_decodable", f"{error} ({size} bytes)")
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
        self._checking_bytes += size
        self._checking_bytes_of[request.identity] += size

        def verified(result: Verified) -> None:
            self._checking_bytes -= size
            self._checking_bytes_of[request.identity] -= size
            if not self._checking_bytes_of[request.identity]:
                del self._checking_bytes_of[request.identity]
            self._checked.append(_Checked(request, result))

        self._pool.verify(raw_batches, verified)

    def accept_checked(self) -> None:
        """Queue what was verified since the last call, write all of it with one sync, and answer each submitter.

        No other part of the node runs in between, so nobody learns of a batch that is not on disk.
        """
        checked, self._checked = self._checked, []
        staged: list[_Staged] = []
        entries: list[Pending] = []
        for request, verified in checked:
            fresh = self._fresh(request, verified)
            if fresh is None or isinstance(verified, RefusedBatch):
                continue
            first = self._store.next_arrival + len(entries)
            entries += [self._queue.add(arrival, batch) for arrival, batch in enumerate(fresh, first)]
            staged.append(_Staged(request, verified))
        if entries:
            try:
                self._store.add_pending([entry.batch.raw for entry in entries])
            except StorageFailed as failure:
                log.error("batches not accepted", reason=str(failure))
                self._unqueue(entries)
                for request, _ in staged:
                    self._refuse(request, "INTERNAL_ERROR", "storage_failed", str(failure))
                return
        for request, verified in staged:
            ids = [batch.id for batch in verified]
            self._answer(request, ClientBatchSubmitResponse(status="OK", batch_ids=ids))
        if staged:
            reach(CrashPoint.ACCEPTED_AFTER_REPLY)

    def _unqueue(self, entries: list[Pending]) -> None:
        """The disk refused these batches, so they were never accepted."""
        for entry in entries:
            self._queue.remove(entry)

    def _fresh(self, request: Request, verified: Verified) -> Collection[VerifiedBatch] | None:
        """The batches of a list that are not known yet; None where the list was refused."""
        if isinstance(verified, RefusedBatch):
            self._refuse(request, "INVALID_BATCH", verified.rule, verified.message)
            return None
        try:
            fresh = {batch.id: batch for batch in verified if not self._knows(batch.id)}.values()
        except StorageFailed as failure:
            log.error("batches not accepted", reason=str(failure))
            self._refuse(request, "INTERNAL_ERROR", "storage_failed", str(failure))
            return None
        full = self._queue.quota.refusal(fresh) if fresh else None
        if full is not None:
            self._refuse_full(request, full)
            return None
        over = self._queue.quota.share_refusal(fresh) if fresh else None
        if over is not None:
            self._refuse_share(request, over)
            return None
        return fresh

    def _claimed_too_much(self, raw_batches: list[bytes]) -> ShareRefusal | str | None:
        """Why what is not verified yet cannot fit, by the ids and keys that it claims."""
        if self._queue.quota.claims_refusal({_claimed_signer(raw_batches[0]): len(raw_batches)}) is None:
            # As in nearly every list; one of many keys is looked at when it is verified.
            return None
        # A list may name a batch twice; it is queued once.
        fresh = {_claimed_id(raw) or raw: raw for raw in raw_batches if not self._claims_known(raw)}
        return self._queue.quota.claims_refusal(Counter(map(_claimed_signer, fresh.values())))

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
        self.refused_for_room += self._queue.quota.is_half_full()
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
