"""Removes or counts pending batches for the operator of the node. The reasons are in the log."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from dovetail.ledger.ids import BatchId
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.mempool.queue import Pending, PendingQueue, Reason
from dovetail.validator.metrics import DropCause
from dovetail.validator.store import Store
from protos.node_pb2 import PendingDropRequest, PendingDropResponse

DROPPED_MAX: Final = 1_000
"""The most batches that one request removes, so that other events are handled in between."""

_NAMED_MAX: Final = 10
"""The most families and the most signers in an answer."""

Drop = Callable[[list[Pending], DropCause, str], bool]
"""The batches, the cause, and the reason in words; False if the write failed."""


class Drops:
    """``drop``: the method of block production."""

    def __init__(self, queue: PendingQueue, store: Store, drop: Drop, limits: Limits) -> None:
        self._queue = queue
        self._store = store
        self._drop = drop
        self._ids_max = limits.status_ids_max

    def answer(self, asked: PendingDropRequest, reason: str) -> PendingDropResponse:
        """Remove or count the selected batches. ``reason``: the operator's, fit for the log; may be empty."""
        refusal = self._refusal(asked)
        if refusal is not None:
            return PendingDropResponse(status="INVALID_REQUEST", message=refusal)
        executing = sum(entry.reason is Reason.EXECUTING for entry in self._selected(asked, iter(self._queue)))
        selected = list(self._selected(asked, self._queue.droppable()))
        response = PendingDropResponse(status="OK", executing=executing)
        if asked.count_only:
            response.batches = len(selected)
            _add_groups(response, selected)
            return response
        dropped = list(islice(selected, DROPPED_MAX))
        words = f"the operator dropped it: {reason}" if reason else "the operator dropped it"
        if dropped and not self._drop(dropped, DropCause.OPERATOR, words):
            return PendingDropResponse(status="STORAGE_FAILED", message=self._store.failure or "", executing=executing)
        response.batches, response.left = len(dropped), len(selected) - len(dropped)
        return response

    def _refusal(self, asked: PendingDropRequest) -> str | None:
        if self._store.head is None:
            return "the validator has no genesis block yet"
        selectors = bool(asked.batch_ids) + bool(asked.family_name) + bool(asked.signer_pubkey)
        if selectors > 1 or not (selectors or asked.count_only):
            return f"{selectors} of batch ids, family and signer are given; exactly one of the three selects batches"
        if len(asked.batch_ids) > self._ids_max:
            return f"{len(asked.batch_ids)} batch ids are given, at most {self._ids_max} are allowed"
        return None

    def _selected(self, asked: PendingDropRequest, entries: Iterator[Pending]) -> Iterator[Pending]:
        ids = frozenset(map(BatchId, asked.batch_ids))
        for entry in entries:
            batch = entry.batch
            if (
                (not ids or batch.id in ids)
                and (not asked.signer_pubkey or batch.signer == asked.signer_pubkey)
                and (
                    not asked.family_name
                    or any(_is_of(transaction.family, asked) for transaction in batch.transactions)
                )
            ):
                yield entry


def _is_of(family: FamilyVersion, asked: PendingDropRequest) -> bool:
    return family.name == asked.family_name and asked.family_version in ("", family.version)


def _add_groups(response: PendingDropResponse, entries: list[Pending]) -> None:
    families = Counter(
        family for entry in entries for family in {transaction.family for transaction in entry.batch.transactions}
    )
    for family, batches in families.most_common(_NAMED_MAX):
        response.families.add(family_name=family.name, family_version=family.version, batches=batches)
    for signer, batches in Counter(entry.batch.signer for entry in entries).most_common(_NAMED_MAX):
        response.signers.add(signer_pubkey=signer, batches=batches)
