"""Queues the due migrations before all other batches, and remembers which migrations were refused.

``journal.rules`` decides which are due, and ``journal.migrations`` builds their batches.
"""

import structlog

from dovetail.ledger.ids import BatchId
from dovetail.ledger.permitted import Permission, Plan
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.journal import migrations
from dovetail.validator.core.journal.model import InvalidBatch
from dovetail.validator.core.journal.rules import Body
from dovetail.validator.core.mempool.queue import PendingQueue, Reason
from dovetail.validator.core.state.view import View
from dovetail.validator.processors.registry import Processors
from dovetail.validator.store import Store

log = structlog.get_logger("validator.migrating")


class Migrating:
    """Owns the injected batches of the queue."""

    def __init__(self, store: Store, queue: PendingQueue, processors: Processors) -> None:
        self._store = store
        self._queue = queue
        self._processors = processors
        self._pending: dict[Plan, BatchId] = {}
        self._refused: dict[Plan, str] = {}
        self._changed: set[Plan] = set()
        """Running migrations whose processors have changed: a refusal may be the verdict of a build that is gone."""

    def state_of(self, permission: Permission) -> tuple[str, str]:
        """The state of a version's migration (a value of FamilyStatus.Migration), and why it was refused."""
        if not permission.migrate:
            return "NONE", ""
        if self._is_committed(permission):
            return "DONE", ""
        refused = self._refused.get(permission.plan)
        return ("DUE", "") if refused is None else ("REFUSED", refused)

    def inject(self, body: Body, base: View) -> None:
        """Queue each due migration that has a processor.

        Removes queued ones that are no longer due or have lost their processor.
        """
        due = {entry.plan: entry for entry in body.due if self._processors.has(entry.family, migration=True)}
        for plan, batch_id in list(self._pending.items()):
            entry = self._queue.get(batch_id)
            assert entry is not None, "settled batches are not pending"
            if entry.reason is Reason.EXECUTING or (plan in due and entry.due_ms is not None):
                continue
            # The state may have grown since the batch was built, so that it needs other slices.
            if plan not in due or migrations.batch_for(due[plan], base).id != batch_id:
                self._queue.remove(entry)
                del self._pending[plan]
                self._changed.discard(plan)
        for plan, permission in due.items():
            if plan not in self._pending and plan not in self._refused:
                batch = migrations.batch_for(permission, base)
                log.info("migration is due", family=str(plan.family), batch_id=batch.id)
                self._pending[plan] = batch.id
                self._queue.inject(batch)

    def settled(self, invalid: list[InvalidBatch]) -> None:
        """Note the migrations that were just written: those in ``invalid`` are refused, the others committed."""
        if not self._pending:
            return
        refused = {verdict.batch_id: verdict for verdict in invalid}
        for plan, batch_id in list(self._pending.items()):
            if self._queue.get(batch_id) is not None:
                continue
            del self._pending[plan]
            changed = plan in self._changed
            self._changed.discard(plan)
            verdict = refused.get(batch_id)
            if verdict is None:
                log.info("migration committed", family=str(plan.family), batch_id=batch_id)
            elif not changed:
                self._refused[plan] = f"{verdict.reason}: {verdict.message}"
                log.error(
                    "migration refused, its version waits: start a build that migrates this, or cancel the upgrade",
                    family=str(plan.family), reason=verdict.reason, message=verdict.message,
                )  # fmt: skip

    def try_again(self, family: FamilyVersion) -> None:
        """Allow another try: a processor that migrates ``family`` came or went, so the verdict may change."""
        for plan in [plan for plan in self._refused if plan.family == family]:
            del self._refused[plan]
        for plan, batch_id in self._pending.items():
            entry = self._queue.get(batch_id)
            if plan.family == family and entry is not None and entry.reason is Reason.EXECUTING:
                self._changed.add(plan)
        self._queue.wake_activation(family)

    def try_all_again(self) -> None:
        """Allow another try of every refused migration, because the setting has changed."""
        self._refused.clear()

    def _is_committed(self, permission: Permission) -> bool:
        ids = migrations.transaction_ids_of(permission)
        return any(self._store.transaction_number(transaction_id) is not None for transaction_id in ids)
