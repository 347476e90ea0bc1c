"""Who is connected, for which families, and which tasks each holds.

Frames of processors come in, ``ProcessorEvent`` values come out; sending goes through the function that the gateway
gives. Nothing here knows blocks or batches.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError, Message

from ledger.addresses import is_prefix
from ledger.limits import Limits
from ledger.settings import FamilyVersion
from ledger.transaction import FAMILY_CHARACTERS_MAX
from protos import packed_pb2, processor_pb2, state_context_pb2
from protos.validator_pb2 import Message as Envelope
from validator.execution.model import Task
from validator.gateway import Delivery
from validator.processors.assignment import (
    Assignment,
    Conversation,
    Outcomes,
    PackedAssignment,
    ViewFor,
    new_context_id,
    refused,
)

PACKED_VERSION: Final = 1
_PACKED_IN_FLIGHT: Final = 2
"""Tasks at a packed processor at once: it works on one while the other travels."""

_OCCUPANCY_DEFAULT: Final = 10
_OCCUPANCY_MAX: Final = 1_000
_FAMILIES_MAX: Final = 100
_NAMESPACES_MAX: Final = 1_000

SendTo = Callable[[bytes, int, str, bytes], Delivery]
"""Identity, message type, correlation id, content."""

_STATE_REQUESTS: Final[dict[int, tuple[type[Message], int]]] = {
    Envelope.TP_STATE_GET_REQUEST: (state_context_pb2.TpStateGetRequest, Envelope.TP_STATE_GET_RESPONSE),
    Envelope.TP_STATE_SET_REQUEST: (state_context_pb2.TpStateSetRequest, Envelope.TP_STATE_SET_RESPONSE),
    Envelope.TP_STATE_DELETE_REQUEST: (state_context_pb2.TpStateDeleteRequest, Envelope.TP_STATE_DELETE_RESPONSE),
    Envelope.TP_RECEIPT_ADD_DATA_REQUEST: (
        state_context_pb2.TpReceiptAddDataRequest,
        Envelope.TP_RECEIPT_ADD_DATA_RESPONSE,
    ),
    Envelope.TP_EVENT_ADD_REQUEST: (state_context_pb2.TpEventAddRequest, Envelope.TP_EVENT_ADD_RESPONSE),
    Envelope.STATE_LIST_REQUEST: (packed_pb2.StateListRequest, Envelope.STATE_LIST_RESPONSE),
}

MESSAGE_TYPES: Final = frozenset(
    {
        *_STATE_REQUESTS,
        Envelope.TP_REGISTER_REQUEST,
        Envelope.TP_UNREGISTER_REQUEST,
        Envelope.TP_PROCESS_RESPONSE,
        Envelope.PACKED_PROCESS_RESPONSE,
    }
)
"""What only processors send."""


class Arrived(NamedTuple):
    """A processor registered for a family."""

    family: FamilyVersion
    packed: bool


class Left(NamedTuple):
    """A processor takes no more work: it unregistered, closed or went silent."""

    families: tuple[FamilyVersion, ...]
    why: str


class Answered(NamedTuple):
    """A task is done.

    ``namespaces``: what its processor had registered for the task's family; ``families``: what it has room for again.
    """

    task: Task
    outcomes: Outcomes
    namespaces: tuple[str, ...]
    families: tuple[FamilyVersion, ...]


class Lost(NamedTuple):
    """A task went down with its processor. ``begun``: it may have been at it, and not at one before."""

    task: Task
    begun: bool


ProcessorEvent = Arrived | Left | Answered | Lost


class Processor:
    """One connection."""

    def __init__(self, identity: bytes, now_ms: int) -> None:
        self.identity = identity
        self.families: dict[FamilyVersion, tuple[str, ...]] = {}
        self.packed = False
        self.raw_header = False
        self.occupancy = _OCCUPANCY_DEFAULT
        self.silent = False
        """It answered no ping for too long: its tasks are lost, and it gets none until it is heard again."""
        self.unreachable = False
        """A message to it could not be sent: it is dropped at the next tick."""
        self.assignments: dict[str, Assignment] = {}
        self.heard_ms = now_ms
        self.asked_ms = now_ms
        """When the last ping was sent."""
        self.pinged_ms: int | None = None
        """When the first ping was sent that it has not answered."""

    def takes(self, family: FamilyVersion) -> bool:
        """Whether it is given work of ``family`` at all."""
        return family in self.families and not (self.silent or self.unreachable)

    @property
    def room(self) -> int:
        """How many more tasks it takes now.

        One that works them off in their order takes none behind one that is alone: of that it may die, and the next
        would be lost for nothing.
        """
        if not self.packed:
            return self.occupancy - len(self.assignments)
        if any(assignment.task.alone for assignment in self.assignments.values()):
            return 0
        return _PACKED_IN_FLIGHT - len(self.assignments)

    @property
    def transactions_max(self) -> int:
        """How many transactions one task may give it."""
        return max(1, self.occupancy // _PACKED_IN_FLIGHT) if self.packed else 1


class Processors:
    """All connected processors. ``clock_ms``: milliseconds of a steady clock."""

    def __init__(self, send: SendTo, clock_ms: Callable[[], int], limits: Limits) -> None:
        self._send = send
        self._clock_ms = clock_ms
        self._limits = limits
        self._connected: dict[bytes, Processor] = {}

    def has(self, family: FamilyVersion) -> bool:
        """Whether a processor takes work of ``family``."""
        return any(processor.takes(family) for processor in self._connected.values())

    def count(self, family: FamilyVersion) -> int:
        """How many processors take work of ``family``."""
        return sum(processor.takes(family) for processor in self._connected.values())

    def counts(self) -> Counter[FamilyVersion]:
        """``count`` of every family that some processor takes work of."""
        return Counter(
            family for processor in self._connected.values() for family in processor.families if processor.takes(family)
        )

    def free(self, family: FamilyVersion) -> Processor | None:
        """The processor of ``family`` with the fewest tasks, if one has room."""
        takers = (entry for entry in self._connected.values() if entry.takes(family) and entry.room > 0)
        return min(takers, key=lambda entry: len(entry.assignments), default=None)

    def start(self, processor: Processor, task: Task, view_for: ViewFor) -> bool:
        """Hand a task to a processor with room: it comes back as Answered or Lost.

        False, and nothing has happened, where it is too large for one message and could be split.
        """
        context_id = new_context_id()

        def send(message_type: int, correlation_id: str, content: bytes) -> None:
            self._tell(processor, message_type, correlation_id, content)

        namespaces = processor.families[task.route]
        assignment: Assignment
        if processor.packed and not task.alone:
            assignment = PackedAssignment(task, view_for, send, context_id, namespaces, self._limits)
        else:
            raw_header = processor.raw_header
            assignment = Conversation(task, view_for, send, context_id, namespaces, raw_header, self._limits)
        processor.assignments[context_id] = assignment
        if assignment.start():
            return True
        del processor.assignments[context_id]
        return False

    def heard(self, identity: bytes) -> list[ProcessorEvent]:
        """Any frame of a peer shows that it lives; one that was silent takes work again."""
        processor = self._connected.get(identity)
        if processor is None:
            return []
        processor.heard_ms = self._clock_ms()
        processor.pinged_ms = None
        if not processor.silent:
            return []
        processor.silent = False
        return [Arrived(family, processor.packed) for family in processor.families]

    def handle(self, identity: bytes, message_type: int, correlation_id: str, content: bytes) -> list[ProcessorEvent]:
        """Take one frame of ``MESSAGE_TYPES``; what cannot be understood or belongs to nobody changes nothing."""
        if message_type == Envelope.TP_REGISTER_REQUEST:
            return self._register(identity, correlation_id, content)
        processor = self._connected.get(identity)
        if message_type == Envelope.TP_UNREGISTER_REQUEST:
            return self._unregister(identity, processor, correlation_id)
        if processor is None:
            return []
        if message_type in _STATE_REQUESTS:
            self._serve_state(processor, message_type, correlation_id, content)
            return []
        return self._take_answer(processor, correlation_id, content)

    def tick(self) -> list[ProcessorEvent]:
        """Ping the quiet ones; take their tasks from those that did not answer one for too long."""
        now_ms = self._clock_ms()
        events: list[ProcessorEvent] = []
        for processor in list(self._connected.values()):
            if processor.unreachable:
                events += self._drop(processor, "it takes no messages")
            elif processor.pinged_ms is not None and not processor.silent:
                silent_ms = now_ms - processor.pinged_ms
                if silent_ms > self._limits.processor_silence_ms - self._limits.processor_ping_ms:
                    processor.silent = True
                    events += self._lose(processor, f"it is silent: no answer to a ping for {silent_ms} ms")
            elif now_ms - max(processor.heard_ms, processor.asked_ms) > self._limits.processor_ping_ms:
                events += self._ping(processor)
        return events

    def probe(self) -> list[ProcessorEvent]:
        """Some connection closed: drop every processor that is not connected any more."""
        return [event for processor in list(self._connected.values()) for event in self._ping(processor)]

    def _ping(self, processor: Processor) -> list[ProcessorEvent]:
        if self._send(processor.identity, Envelope.PING_REQUEST, new_context_id(), b"") is Delivery.GONE:
            return self._drop(processor, "its connection closed")
        processor.asked_ms = self._clock_ms()
        if processor.pinged_ms is None:
            processor.pinged_ms = processor.asked_ms
        return []

    def _drop(self, processor: Processor, why: str) -> list[ProcessorEvent]:
        del self._connected[processor.identity]
        return self._lose(processor, why)

    def _lose(self, processor: Processor, why: str) -> list[ProcessorEvent]:
        assignments = processor.assignments.values()
        lost = [Lost(entry.task, not processor.packed or place == 0) for place, entry in enumerate(assignments)]
        processor.assignments.clear()
        return [Left(tuple(processor.families), why), *lost]

    def _tell(self, processor: Processor, message_type: int, correlation_id: str, content: bytes) -> None:
        """Send what a processor must get to go on."""
        if self._send(processor.identity, message_type, correlation_id, content) is not Delivery.SENT:
            processor.unreachable = True

    def _register(self, identity: bytes, correlation_id: str, content: bytes) -> list[ProcessorEvent]:
        response = processor_pb2.TpRegisterResponse(status=processor_pb2.TpRegisterResponse.OK)
        events: list[ProcessorEvent] = []
        try:
            request = processor_pb2.TpRegisterRequest.FromString(content)
            response.protocol_version = request.protocol_version
            processor = self._connected.get(identity) or Processor(identity, self._clock_ms())
            refusal = _registration_refusal(request, processor)
            if identity not in self._connected and len(self._connected) >= self._limits.processors_max:
                refusal = f"{len(self._connected)} processors are connected, which is the limit"
        except DecodeError:
            refusal = f"{len(content)} bytes that are no TpRegisterRequest"
        if refusal:
            response.status = processor_pb2.TpRegisterResponse.ERROR
            response.message = refusal
        else:
            family = FamilyVersion(request.family, request.version)
            self._connected[identity] = processor
            processor.families[family] = tuple(request.namespaces)
            processor.packed = request.packed_version >= PACKED_VERSION
            processor.raw_header = request.request_header_style == processor_pb2.TpRegisterRequest.RAW
            processor.occupancy = min(request.max_occupancy or _OCCUPANCY_DEFAULT, _OCCUPANCY_MAX)
            response.packed_version = PACKED_VERSION if processor.packed else 0
            events.append(Arrived(family, processor.packed))
        self._send(identity, Envelope.TP_REGISTER_RESPONSE, correlation_id, response.SerializeToString())
        return events

    def _unregister(self, identity: bytes, processor: Processor | None, correlation_id: str) -> list[ProcessorEvent]:
        response = processor_pb2.TpUnregisterResponse(status=processor_pb2.TpUnregisterResponse.OK)
        if processor is None:
            response.status = processor_pb2.TpUnregisterResponse.ERROR
        self._send(identity, Envelope.TP_UNREGISTER_RESPONSE, correlation_id, response.SerializeToString())
        if processor is None:
            return []
        families = tuple(processor.families)
        processor.families.clear()
        return [Left(families, "it unregistered")]

    def _serve_state(self, processor: Processor, message_type: int, correlation_id: str, content: bytes) -> None:
        request_type, response_type = _STATE_REQUESTS[message_type]
        try:
            request = request_type.FromString(content)
        except DecodeError:
            return
        context_id: str = request.context_id  # type: ignore[attr-defined]
        assignment = processor.assignments.get(context_id.partition(":")[0])
        response = assignment.state_request(context_id, request) if assignment else refused(request)
        self._tell(processor, response_type, correlation_id, response.SerializeToString())

    def _take_answer(self, processor: Processor, correlation_id: str, content: bytes) -> list[ProcessorEvent]:
        key = correlation_id.partition(":")[0]
        assignment = processor.assignments.get(key)
        outcomes = assignment.answer(correlation_id, content) if assignment else None
        if assignment is None or outcomes is None:
            return []
        del processor.assignments[key]
        return [Answered(assignment.task, outcomes, assignment.namespaces, tuple(processor.families))]


def _registration_refusal(request: processor_pb2.TpRegisterRequest, processor: Processor) -> str | None:
    """Why a registration cannot stand, with the values; None if it can."""
    for name, value in (("family", request.family), ("version", request.version)):
        if not 0 < len(value) <= FAMILY_CHARACTERS_MAX:
            return f"{name} has {len(value)} characters, allowed are 1 to {FAMILY_CHARACTERS_MAX}"
    if len(request.namespaces) > _NAMESPACES_MAX:
        return f"{len(request.namespaces)} namespaces, at most {_NAMESPACES_MAX} are allowed"
    for namespace in request.namespaces:
        if not is_prefix(namespace):
            return f"namespace {namespace[:80]!r} is not an even number of lower-case hex characters, at most 70"
    family = FamilyVersion(request.family, request.version)
    if family not in processor.families and len(processor.families) >= _FAMILIES_MAX:
        return f"this connection registered {_FAMILIES_MAX} families already"
    return None
