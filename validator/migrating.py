"""Migrations at this node: puts those that are due before all other pending batches, and remembers what became of them.

Which are due is said in ``journal.rules``, what they are made of in ``journal.migrations``, who runs them in
``processors.registry``.
"""

import structlog

from ledger.ids import BatchId
from ledger.permitted import Permission
from ledger.settings import FamilyVersion
from validator.journal import migrations
from validator.journal.model import InvalidBatch
from validator.journal.rules import Body
from validator.mempool.queue import PendingQueue, Reason
from validator.processors.registry import Processors
from validator.state.view import View
from validator.store import Store

log = structlog.get_logger("validator.migrating")


class Migrating:
    """Owns the injected batches of the queue."""

    def __init__(self, store: Store, queue: PendingQueue, processors: Processors) -> None:
        self._store = store
        self._queue = queue
        self._processors = processors
        self._pending: dict[Permission, BatchId] = {}
        self._refused: dict[Permission, str] = {}

    def state_of(self, permission: Permission) -> tuple[str, str]:
        """How far the migration of a version is, as the word of FamilyStatus.Migration, and why it was refused."""
        if not permission.migrate:
            return "NONE", ""
        if self._is_committed(permission):
            return "DONE", ""
        refused = self._refused.get(permission)
        return ("DUE", "") if refused is None else ("REFUSED", refused)

    def inject(self, body: Body, base: View) -> None:
        """Queue the migrations that the next block may hold and a processor may run; take back what is neither."""
        for permission, batch_id in list(self._pending.items()):
            entry = self._queue.get(batch_id)
            assert entry is not None, "what is settled is not pending"
            if entry.reason is not Reason.EXECUTING and not (permission in body.due and self._is_served(permission)):
                self._queue.remove(entry)
                del self._pending[permission]
        for permission in body.due:
            if permission not in self._pending and permission not in self._refused and self._is_served(permission):
                batch = migrations.batch_for(permission, base)
                log.info("migration is due", family=str(permission.family), batch_id=batch.id)
                self._pending[permission] = batch.id
                self._queue.inject(batch)

    def settled(self, invalid: list[InvalidBatch]) -> None:
        """Batches were settled on disk, these of them with a verdict against them."""
        if not self._pending:
            return
        refused = {verdict.batch_id: verdict for verdict in invalid}
        for permission, batch_id in list(self._pending.items()):
            if self._queue.get(batch_id) is not None:
                continue
            del self._pending[permission]
            verdict = refused.get(batch_id)
            if verdict is None:
                log.info("migration committed", family=str(permission.family), batch_id=batch_id)
                self._queue.wake_all()
            else:
                self._refused[permission] = f"{verdict.reason}: {verdict.message}"
                log.error(
                    "migration refused, its version waits: start a build that migrates this, or cancel the upgrade",
                    family=str(permission.family), reason=verdict.reason, message=verdict.message,
                )  # fmt: skip

    def try_again(self, family: FamilyVersion) -> None:
        """Processors of ``family`` came or went: what was refused may go otherwise now."""
        for permission in [permission for permission in self._refused if permission.family == family]:
            del self._refused[permission]

    def try_all_again(self) -> None:
        """The setting has changed."""
        self._refused.clear()

    def _is_served(self, permission: Permission) -> bool:
        return self._processors.has(permission.family, migration=True)

    def _is_committed(self, permission: Permission) -> bool:
        ids = migrations.transaction_ids_of(permission)
        return any(self._store.transaction_number(transaction_id) is not None for transaction_id in ids)
