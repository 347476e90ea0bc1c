"""Checks the node's promises to clients against the disk: when they are sent, after every crash, and at the end."""

from collections.abc import Callable, Iterable

from dovetail.ledger.ids import TransactionId, is_id
from dovetail.validator.core.journal.model import InvalidBatch
from dovetail.validator.core.mempool.queue import Pending, Reason
from dovetail.validator.store import records
from protos import raw_pb2
from protos.client_batch_submit_pb2 import ClientBatchStatus, ClientBatchStatusResponse, ClientBatchSubmitResponse
from protos.validator_pb2 import Message as Envelope
from tests.system.simulation.clients import is_client
from tests.system.simulation.disk import Disk
from tests.system.simulation.maker import Made, Maker
from tests.system.simulation.model import Model, Violated
from tests.system.simulation.programs import FLAKY
from tests.system.simulation.stage import Stage

_NAMES = {number: name for name, number in Envelope.MessageType.items()}


class Promises:
    """The batches that the node accepted, and the batches that it reported COMMITTED."""

    def __init__(self, disk: Disk, model: Model, maker: Maker, stage: Stage) -> None:
        self._disk = disk
        self._model = model
        self._maker = maker
        self._stage = stage
        self.accepted: set[str] = set()
        self.committed: set[str] = set()
        self.holder: Callable[[TransactionId], Pending | None] = lambda name: None
        """The running node's pending batch that holds a transaction."""
        self._verdicts: set[bytes] = set()
        """The keys of ``invalid_order`` that were checked."""

    def watch(self, identity: bytes, envelope: Envelope) -> None:
        """Check a message that leaves the node. Raises Violated if it is untrue."""
        message_type = envelope.message_type
        self._stage.trace(f"-> {identity.decode()} {_NAMES.get(message_type, message_type)}")
        if not is_client(identity):
            return
        if message_type == Envelope.CLIENT_BATCH_SUBMIT_RESPONSE:
            submitted = ClientBatchSubmitResponse.FromString(envelope.content)
            if self._stage.traced:
                self._stage.trace(f"   {submitted.reason or 'OK'} {_short(submitted.batch_ids)}")
            if submitted.status == ClientBatchSubmitResponse.OK:
                self.accepted.update(submitted.batch_ids)
                self.check_accepted(submitted.batch_ids)
        elif message_type == Envelope.CLIENT_BATCH_STATUS_RESPONSE:
            for status in ClientBatchStatusResponse.FromString(envelope.content).batch_statuses:
                self._check_status(status)

    def check(self) -> None:
        """Check all promises against the disk. Raises Violated."""
        on_chain = self._disk.records("batch_ids")
        for batch_id in self.committed:
            if records.id_key(batch_id) not in on_chain:
                raise Violated(f"batch {batch_id[:8]} was reported COMMITTED and is not on the chain")
        self.check_accepted(self.accepted)

    def check_accepted(self, batch_ids: Iterable[str]) -> None:
        """Check that each batch is committed, invalid or pending on the disk."""
        unsettled = {batch_id for batch_id in batch_ids if not self.is_settled(batch_id)}
        missing = unsettled - pending_ids(self._disk).keys() if unsettled else None
        if missing:
            raise Violated(f"accepted and lost: {_short(sorted(missing))}")

    def is_settled(self, batch_id: str) -> bool:
        name = records.id_key(batch_id)
        return name in self._disk.records("batch_ids") or name in self._disk.records("invalid")

    def check_verdicts(self) -> None:
        """Check that the batches that became INVALID in the last write may be invalid. Raises Violated."""
        order = self._disk.records("invalid_order")
        for key in reversed(order):
            if key in self._verdicts:
                break
            self._verdicts.add(key)
            name = order[key]
            verdict = records.decode_invalid(self._disk.records("invalid")[name])
            if not self._is_possible(self._maker.made.get(name.hex()), verdict):
                raise Violated(f"batch {name.hex()[:8]} cannot be invalid: {verdict.reason}: {verdict.message}")

    def _is_possible(self, made: Made | None, verdict: InvalidBatch) -> bool:
        lied = self._stage.lied
        if made is None:
            # The batch is a migration, or a lying processor damaged it.
            return lied
        if verdict.reason == "invalid_transaction":
            return made.may_fail or lied
        if verdict.reason == "internal_error":
            return FLAKY in made.families or lied
        if verdict.reason == "family_not_permitted":
            return any(self._model.was_shut_out(family) for family in made.families)
        committed = self._model.transactions
        if verdict.reason == "duplicate_transaction":
            return any(item.id in committed for item in made.transactions)
        missing = [name for name in made.dependencies if name not in committed]
        if verdict.reason == "dependency_invalid":
            return any(records.id_key(name) in self._disk.records("invalid_transactions") for name in missing)
        return verdict.reason == "dependency_missing" and not all(self._still_comes(name) for name in missing)

    def _still_comes(self, name: TransactionId) -> bool:
        """Whether a pending batch holds a transaction and does not wait for a dependency itself."""
        holder = self.holder(name)
        return holder is not None and holder.reason is not Reason.WAITING_FOR_DEPENDENCY

    def _check_status(self, status: ClientBatchStatus) -> None:
        batch_id = status.batch_id
        word = ClientBatchStatus.Status.Name(status.status)
        if self._stage.traced:
            self._stage.trace(f"   {batch_id[:8]} {word} {status.reason}")
        if batch_id in self.committed and status.status != ClientBatchStatus.COMMITTED:
            raise Violated(f"batch {batch_id[:8]} was reported COMMITTED, and is now {word}")
        name = records.id_key(batch_id) if is_id(batch_id) else b""
        on_chain = batch_id in self._model.batches
        if status.status == ClientBatchStatus.COMMITTED:
            self.committed.add(batch_id)
            true = on_chain
        elif status.status == ClientBatchStatus.INVALID:
            true = not on_chain and name in self._disk.records("invalid")
        elif status.status == ClientBatchStatus.PENDING:
            true = not on_chain and (not self._model.blocks or batch_id in pending_ids(self._disk))
        else:
            true = not on_chain and batch_id not in self.accepted and name not in self._disk.records("invalid")
        if not true:
            raise Violated(f"batch {batch_id[:8]} is reported {word}, which is untrue")


def pending_ids(disk: Disk) -> dict[str, int]:
    """The arrival numbers of the pending batches on the disk, by batch id."""
    return {_batch_id(raw): int.from_bytes(name, "big") for name, raw in disk.records("pending").items()}


def _batch_id(raw: bytes) -> str:
    return raw_pb2.RawBatch.FromString(raw).header_signature


def _short(batch_ids: Iterable[str]) -> str:
    return " ".join(batch_id[:8] for batch_id in batch_ids)
