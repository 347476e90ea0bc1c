"""A registry of processors that records its messages instead of sending them, and tasks for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from google.protobuf.message import Message

from dovetail.ledger.batch import VerifiedTransaction
from dovetail.ledger.ids import BatchId
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.execution.model import Task, Unit
from dovetail.validator.processors.own import NO_FAMILIES, OwnFamilies
from dovetail.validator.processors.processor import Processor
from dovetail.validator.processors.registry import ProcessorEvent, Processors
from dovetail.validator.transport.gateway import Delivery
from protos import packed_pb2, processor_pb2, state_context_pb2
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.support import address, make_id, make_transaction, view_of

FAMILY = FamilyVersion("intkey", "1.0")
OTHER = FamilyVersion("other", "2.0")
STATE: Mapping[str, bytes] = {address(1): b"one", address(2): b"two"}

TYPES: dict[int, type[Message]] = {
    Envelope.TP_REGISTER_RESPONSE: processor_pb2.TpRegisterResponse,
    Envelope.TP_UNREGISTER_RESPONSE: processor_pb2.TpUnregisterResponse,
    Envelope.TP_PROCESS_REQUEST: processor_pb2.TpProcessRequest,
    Envelope.PACKED_PROCESS_REQUEST: packed_pb2.PackedProcessRequest,
    Envelope.TP_STATE_GET_RESPONSE: state_context_pb2.TpStateGetResponse,
    Envelope.TP_STATE_SET_RESPONSE: state_context_pb2.TpStateSetResponse,
    Envelope.TP_STATE_DELETE_RESPONSE: state_context_pb2.TpStateDeleteResponse,
    Envelope.TP_RECEIPT_ADD_DATA_RESPONSE: state_context_pb2.TpReceiptAddDataResponse,
    Envelope.TP_EVENT_ADD_RESPONSE: state_context_pb2.TpEventAddResponse,
    Envelope.STATE_LIST_RESPONSE: packed_pb2.StateListResponse,
}


class Sent(NamedTuple):
    """One decoded message of the registry."""

    identity: bytes
    message_type: int
    correlation_id: str
    message: Any


@dataclass
class Bench:
    """A registry and its messages.

    ``gone``: identities that are disconnected. ``full``: identities that do not read.
    """

    limits: Limits = field(default_factory=Limits)
    sent: list[Sent] = field(default_factory=list)
    gone: set[bytes] = field(default_factory=set)
    full: set[bytes] = field(default_factory=set)
    now_ms: int = 1_000_000
    own: OwnFamilies = NO_FAMILIES

    def __post_init__(self) -> None:
        self.processors = Processors(self._send, lambda: self.now_ms, self.limits, self.own)

    def _send(self, identity: bytes, message_type: int, correlation_id: str, content: bytes) -> Delivery:
        if identity in self.gone | self.full:
            return Delivery.GONE if identity in self.gone else Delivery.FULL
        opened = TYPES[message_type].FromString(content) if message_type in TYPES else content
        self.sent.append(Sent(identity, message_type, correlation_id, opened))
        return Delivery.SENT

    def take_sent(self) -> list[Sent]:
        """The messages that were sent since the last call."""
        taken, self.sent[:] = list(self.sent), []
        return taken

    def handle(
        self, identity: bytes, message_type: int, message: Message | bytes, correlation_id: str = "c"
    ) -> list[ProcessorEvent]:
        content = message if isinstance(message, bytes) else message.SerializeToString()
        return self.processors.handle(identity, message_type, correlation_id, content)

    def ask(self, identity: bytes, message_type: int, message: Message) -> Any:
        """Send a processor's request that is answered at once. Returns the answer."""
        self.sent.clear()
        assert self.handle(identity, message_type, message, "asked") == []
        (answer,) = self.take_sent()
        assert (answer.identity, answer.correlation_id) == (identity, "asked")
        return answer.message

    def register(self, identity: bytes = b"p", family: FamilyVersion = FAMILY, **fields: Any) -> list[ProcessorEvent]:
        request = processor_pb2.TpRegisterRequest(
            family=family.name, version=family.version, **{"namespaces": ["1cf126"], **fields}
        )
        return self.handle(identity, Envelope.TP_REGISTER_REQUEST, request)

    def unregister(self, identity: bytes = b"p") -> list[ProcessorEvent]:
        return self.handle(identity, Envelope.TP_UNREGISTER_REQUEST, processor_pb2.TpUnregisterRequest())

    def free(self, family: FamilyVersion = FAMILY) -> Processor:
        processor = next(iter(self.processors.free(family)), None)
        assert processor is not None
        return processor

    def start(self, task: Task, state: Mapping[str, bytes] = STATE) -> Sent:
        """Give a task to a free processor. Returns the message that the processor gets."""
        self.sent.clear()
        assert self.processors.start(self.free(task.route), task, lambda batch: view_of(state))
        (sent,) = self.take_sent()
        return sent

    def answer(self, sent: Sent, message: Message | bytes) -> list[ProcessorEvent]:
        """Send a processor's last answer to a message."""
        packed = sent.message_type == Envelope.PACKED_PROCESS_REQUEST
        message_type = Envelope.PACKED_PROCESS_RESPONSE if packed else Envelope.TP_PROCESS_RESPONSE
        return self.handle(sent.identity, message_type, message, sent.correlation_id)


def make_task(number: int, *units: Sequence[VerifiedTransaction]) -> Task:
    """A task of ``units``; by default, of one transaction that may access addresses 1 to 3."""
    held = units or ([touching(number)],)
    return Task(
        number,
        FAMILY,
        tuple(Unit(index, BatchId(make_id("batch", index)), tuple(unit)) for index, unit in enumerate(held)),
    )


def touching(name: object) -> VerifiedTransaction:
    """A transaction that may read addresses 1 and 3 and write 2 and 3."""
    return make_transaction(name, inputs=[address(1), address(3)], outputs=[address(2), address(3)])
