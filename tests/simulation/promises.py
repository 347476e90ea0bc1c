"""What the node promised to clients, held against the disk when it says so, after every crash, and in the end."""

from ledger.ids import is_id
from protos import raw_pb2
from protos.client_batch_submit_pb2 import ClientBatchStatus, ClientBatchStatusResponse, ClientBatchSubmitResponse
from protos.validator_pb2 import Message as Envelope
from tests.simulation.clients import is_client
from tests.simulation.disk import Disk
from tests.simulation.maker import Maker
from tests.simulation.model import Model, Violated
from tests.simulation.programs import FLAKY
from tests.simulation.stage import Stage
from validator.store import records

_NAMES = {number: name for name, number in Envelope.MessageType.items()}


class Promises:
    """Batches that were accepted, and those that a client was told are COMMITTED."""

    def __init__(self, disk: Disk, model: Model, maker: Maker, stage: Stage) -> None:
        self._disk = disk
        self._model = model
        self._maker = maker
        self._stage = stage
        self.accepted: set[str] = set()
        self.committed: set[str] = set()

    def watch(self, identity: bytes, envelope: Envelope) -> None:
        """Something leaves the node. Raises Violated where it says what is not so."""
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
        """What was promised still stands. Raises Violated."""
        on_chain = self._disk.records("batch_ids")
        for batch_id in self.committed:
            if records.id_key(batch_id) not in on_chain:
                raise Violated(f"batch {batch_id[:8]} was told COMMITTED and is not on the chain")
        self.check_accepted(self.accepted)

    def check_accepted(self, batch_ids: "set[str] | list[str]") -> None:
        """Each of them is committed, invalid or pending, on the disk."""
        unsettled = {batch_id for batch_id in batch_ids if not self.is_settled(batch_id)}
        missing = unsettled - pending_ids(self._disk).keys() if unsettled else None
        if missing:
            raise Violated(f"accepted and lost: {_short(sorted(missing))}")

    def is_settled(self, batch_id: str) -> bool:
        name = records.id_key(batch_id)
        return name in self._disk.records("batch_ids") or name in self._disk.records("invalid")

    def check_verdicts(self) -> None:
        """Every batch that was judged INVALID could be. Raises Violated."""
        for name, record in self._disk.records("invalid").items():
            verdict = records.decode_invalid(record)
            made = self._maker.made.get(name.hex())
            if made is None:
                # A migration, or what a liar made of it.
                possible = self._stage.lied
            elif verdict.reason == "invalid_transaction":
                possible = made.may_fail or self._stage.lied
            elif verdict.reason == "duplicate_transaction":
                possible = any(item.id in self._model.transactions for item in made.transactions)
            elif verdict.reason == "internal_error":
                possible = self._stage.lied or FLAKY in made.families
            else:
                possible = verdict.reason in ("dependency_invalid", "dependency_missing", "family_not_permitted")
            if not possible:
                raise Violated(f"batch {name.hex()[:8]} cannot be invalid: {verdict.reason}: {verdict.message}")

    def _check_status(self, status: ClientBatchStatus) -> None:
        batch_id = status.batch_id
        word = ClientBatchStatus.Status.Name(status.status)
        if self._stage.traced:
            self._stage.trace(f"   {batch_id[:8]} {word} {status.reason}")
        if batch_id in self.committed and status.status != ClientBatchStatus.COMMITTED:
            raise Violated(f"batch {batch_id[:8]} was told COMMITTED, and now {word}")
        if status.status == ClientBatchStatus.COMMITTED:
            self.committed.add(batch_id)
            if batch_id not in self._model.batches:
                raise Violated(f"batch {batch_id[:8]} is told COMMITTED and is not on the chain")
        elif status.status == ClientBatchStatus.UNKNOWN and batch_id in self.accepted and is_id(batch_id):
            raise Violated(f"batch {batch_id[:8]} was accepted, and now it is UNKNOWN")


def pending_ids(disk: Disk) -> dict[str, int]:
    """The arrival numbers of the pending batches on the disk, by batch id."""
    return {
        _batch_id(records.decode_pending(record)[1]): int.from_bytes(name, "big")
        for name, record in disk.records("pending").items()
    }


def _batch_id(raw: bytes) -> str:
    return raw_pb2.RawBatch.FromString(raw).header_signature


def _short(batch_ids: "list[str] | set[str]") -> str:
    return " ".join(batch_id[:8] for batch_id in batch_ids)
