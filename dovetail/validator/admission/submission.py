"""Accepts lists of batches: deduplicates verified batches, applies limits, queues and writes them, and answers.

All lists that are verified at one time share one write. A list is accepted completely or not at all (API.md, Batches
and their status).

For lists in which authorized keys change settings, room is kept: no flood of others shuts them out.
"""

from collections import Counter
from collections.abc import Callable, Collection
from typing import NamedTuple

import structlog
from google.protobuf.message import DecodeError

from dovetail.ledger.batch import VerifiedBatch, checked_batch, decode_batch_list
from dovetail.ledger.errors import NotDecodable, RefusedBatch
from dovetail.ledger.ids import BatchId, is_id
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import SETTINGS
from dovetail.validator.admission.authority import authorized_keys
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

WouldWait = Callable[[Collection[VerifiedBatch]], Collection[VerifiedBatch]]
"""The new batches among these that no block could run now. Raises StorageFailed."""


class _Checked(NamedTuple):
    request: Request
    verified: Verified


class _Fresh(NamedTuple):
    """The new batches of a list that is not refused. ``kept``: they use the room for kept batches."""

    batches: Collection[VerifiedBatch]
    kept: bool = False


class _Staged(NamedTuple):
    """A queued list that passed every check. Its write and its answer follow."""

    request: Request
    verified: list[VerifiedBatch]


class Submissions:
    """``answer`` sends the response to a request. ``would_wait``: a method of block production."""

    def __init__(
        self,
        store: Store,
        queue: PendingQueue,
        pool: VerifierPool,
        limits: Limits,
        answer: Answer,
        would_wait: WouldWait,
    ) -> None:
        self._would_wait = would_wait
        self._store = store
        self._queue = queue
        self._pool = pool
        self._limits = limits
        self._answer = answer
        self._checking_bytes = 0
        self._checking_bytes_of: Counter[bytes] = Counter()
        """Bytes under verification by connection, without zeros."""
        self._checked: list[_Checked] = []
        self.refused_when_full = 0
        """How many lists were refused because the queue was full. Lists over the share of one key do not count."""
        self.open = False
        """Whether the node has a chain and has restored its pending batches."""

    def submit(self, request: Request) -> None:
        """Begin to accept a BatchList. The answer follows when the list is refused, or verified and on disk."""
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
            self._refuse_unverified(request, message, full=True)
            return
        of_one = self._checking_bytes_of[request.identity]
        if of_one + size > limits.connection_checking_bytes_max:
            message = (
                f"{of_one} bytes of batches of this connection are being verified, {size} more are over its"
                f" {limits.connection_checking_bytes_max}"
            )
            self._refuse_unverified(request, message, full=False)
            return
        full = self._queue.quota.is_full()
        if full is not None and not self._claims_only_known(request.content):
            # The node does not split and verify a list that a full queue cannot hold.
            self._refuse_unverified(request, full, full=True)
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
        # The node does not verify a list that does not fit into the queue, or that exceeds the share of one key. A
        # false claim of a key gains nothing, because the signature would be refused.
        claimed = self._claims_refusal(raw_batches)
        if isinstance(claimed, ShareRefusal):
            if claimed.for_ever:
                self._refuse_share(request, claimed)
            else:
                self._refuse_unverified(request, claimed.message, full=False)
            return
        if claimed is not None:
            self._refuse_unverified(request, claimed, full=True)
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
        """Queue the lists verified since the last call, write them with one sync, and answer each submitter.

        No other part of the node runs in between, so no client sees a batch that is not on disk.
        """
        checked, self._checked = self._checked, []
        staged: list[_Staged] = []
        entries: list[Pending] = []
        for request, verified in checked:
            fresh = self._fresh(request, verified)
            if fresh is None or isinstance(verified, RefusedBatch):
                continue
            first = self._store.next_arrival + len(entries)
            entries += [
                self._queue.add(arrival, batch, kept=fresh.kept) for arrival, batch in enumerate(fresh.batches, first)
            ]
            staged.append(_Staged(request, verified))
        if entries:
            try:
                self._store.add_pending([entry.batch.raw for entry in entries])
            except StorageFailed as failure:
                log.error("batches not accepted", reason=str(failure))
                for entry in entries:
                    self._queue.remove(entry)
                for request, _ in staged:
                    self._refuse(request, "INTERNAL_ERROR", "storage_failed", str(failure))
                return
        for request, verified in staged:
            ids = [batch.id for batch in verified]
            self._answer(request, ClientBatchSubmitResponse(status="OK", batch_ids=ids))
        if staged:
            reach(CrashPoint.ACCEPTED_AFTER_REPLY)

    def _fresh(self, request: Request, verified: Verified) -> _Fresh | None:
        """The batches of a list that are neither pending nor committed; None if the list is refused."""
        if isinstance(verified, RefusedBatch):
            self._refuse(request, "INVALID_BATCH", verified.rule, verified.message)
            return None
        quota = self._queue.quota
        try:
            fresh = {batch.id: batch for batch in verified if not self._knows(batch.id)}.values()
            waiting = quota.waiting_refusal(fresh)
            if waiting is not None:
                # Only now it matters which of them would wait: the answer costs more than all other checks.
                waiting = quota.waiting_refusal(self._would_wait(fresh))
        except StorageFailed as failure:
            log.error("batches not accepted", reason=str(failure))
            self._refuse(request, "INTERNAL_ERROR", "storage_failed", str(failure))
            return None
        if not fresh:
            return _Fresh(())
        full, over = quota.refusal(fresh), quota.share_refusal(fresh)
        waiting = quota.unserved_refusal(fresh) or waiting
        if full is None and over is None and waiting is None:
            return _Fresh(fresh)
        if self._keeps(fresh):
            return _Fresh(fresh, kept=True)
        if full is not None:
            self._refuse_full(request, full)
        elif over is not None:
            self._refuse_share(request, over)
        elif waiting is not None:
            self._refuse(request, "QUEUE_FULL", "queue_full", waiting)
        return None

    def _keeps(self, batches: Collection[VerifiedBatch]) -> bool:
        """Whether there is kept room for new batches: authorized keys signed them, and all of them change settings."""
        try:
            authorized = authorized_keys(self._store)
        except StorageFailed:
            return False
        return self._queue.quota.keeps(batches) and all(
            batch.signer in authorized and all(transaction.family == SETTINGS for transaction in batch.transactions)
            for batch in batches
        )

    def _refuse_unverified(self, request: Request, message: str, *, full: bool) -> None:
        """Refuse a list for want of room, unless there is kept room for it. ``full``: no list has room."""
        batches = self._verified_here(request.content)
        if batches is not None:
            self._checked.append(_Checked(request, batches))
        elif full:
            self._refuse_full(request, message)
        else:
            self._refuse(request, "QUEUE_FULL", "queue_full", message)

    def _verified_here(self, content: bytes) -> list[VerifiedBatch] | None:
        """The batches of a list that uses kept room; None for every other list.

        They are verified here, because a flood may fill the queue of the verifier processes too. For a list that no
        authorized key signed, at most one signature is checked.
        """
        try:
            raw_batches = decode_batch_list(content)
            if not raw_batches or not self._queue.quota.may_keep(len(raw_batches), len(content)):
                return None
            authorized = authorized_keys(self._store)
        except (NotDecodable, StorageFailed):
            return None
        # Everybody can copy the signature of a batch that was judged before, so it says nothing.
        if not all(_claimed_signer(raw) in authorized and not self._was_judged(raw) for raw in raw_batches):
            return None
        batches: list[VerifiedBatch] = []
        for raw in raw_batches:
            checked = checked_batch(raw)
            if isinstance(checked, RefusedBatch):
                return None
            batches.append(checked)
        return batches if self._keeps(batches) else None

    def _was_judged(self, raw: bytes) -> bool:
        """Whether an unverified batch claims the id of one that is known or INVALID. True if it has no id."""
        batch_id = _claimed_id(raw)
        try:
            return batch_id is None or self._knows(batch_id) or self._store.invalid(batch_id) is not None
        except StorageFailed:
            return True

    def _claims_refusal(self, raw_batches: list[bytes]) -> ShareRefusal | str | None:
        """Why an unverified list cannot fit, by the ids and keys that its batches claim."""
        if self._queue.quota.claims_refusal({_claimed_signer(raw_batches[0]): len(raw_batches)}) is None:
            # Nearly every list has one key. A list of several keys is checked again when it is verified.
            return None
        # A list may name a batch twice; it is queued once.
        fresh = {_claimed_id(raw) or raw: raw for raw in raw_batches if not self._claims_known(raw)}
        return self._queue.quota.claims_refusal(Counter(map(_claimed_signer, fresh.values())))

    def _claims_only_known(self, content: bytes) -> bool:
        """Whether all ids that a list claims are known. True if ``content`` is no list."""
        try:
            batches = raw_pb2.RawBatchList.FromString(content).batches
        except DecodeError:
            return True
        return all(map(self._claims_known, batches))

    def _claims_known(self, raw: bytes) -> bool:
        """Whether an unverified batch claims the id of a known one."""
        batch_id = _claimed_id(raw)
        try:
            return batch_id is not None and self._knows(batch_id)
        except StorageFailed:
            # The failure is reported when the batch is verified.
            return True

    def _knows(self, batch_id: BatchId) -> bool:
        """Whether a batch is pending or committed. An INVALID batch may be submitted again."""
        return self._queue.get(batch_id) is not None or self._store.batch_number(batch_id) is not None

    def _refuse_share(self, request: Request, over: ShareRefusal) -> None:
        if over.for_ever:
            self._refuse(request, "INVALID_BATCH", "too_large", over.message)
        else:
            self._refuse(request, "QUEUE_FULL", "queue_full", over.message)

    def _refuse_full(self, request: Request, message: str) -> None:
        # A list that is too large for a nearly empty queue is no sign of a full queue.
        self.refused_when_full += self._queue.quota.is_half_full()
        self._refuse(request, "QUEUE_FULL", "queue_full", message)

    def _refuse(self, request: Request, status: str, reason: str, message: str) -> None:
        self._answer(request, ClientBatchSubmitResponse(status=status, reason=reason, message=message))


def _claimed_id(raw: bytes) -> BatchId | None:
    """The id of an unverified batch; None if ``raw`` is no batch."""
    try:
        batch_id = raw_pb2.RawBatch.FromString(raw).header_signature
    except DecodeError:
        return None
    return BatchId(batch_id) if is_id(batch_id) else None


def _claimed_signer(raw: bytes) -> str:
    """The signer's key that an unverified batch claims; empty if ``raw`` is no batch."""
    try:
        return BatchHeader.FromString(raw_pb2.RawBatch.FromString(raw).header).signer_pubkey
    except DecodeError:
        return ""
