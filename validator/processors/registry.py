"""Who is connected, for which families, and which tasks each holds.

Frames of processors come in, ``ProcessorEvent`` values come out; sending goes through the function that the gateway
gives. Nothing here knows blocks or batches.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError, Message

from ledger.addresses import is_prefix
from ledger.limits import Limits
from ledger.settings import FamilyVersion
from ledger.transaction import FAMILY_CHARACTERS_MAX
from protos import processor_pb2, state_context_pb2
from protos.validator_pb2 import Message as Envelope
from validator.execution.model import Task
from validator.processors.assignment import (
    Assignment,
    Conversation,
    Outcomes,
    PackedAssignment,
    ReadFor,
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

SendTo = Callable[[bytes, int, str, bytes], bool]
"""Identity, message type, correlation id, content; False when the peer is gone."""

_STATE_REQUESTS: Final[dict[int, tuple[type[Message], int]]] = {
    Envelope.TP_STATE_GET_REQUEST: (state_context_pb2.TpStateGetRequest, Envelope.TP_STATE_GET_RESPONSE),
    Envelope.TP_STATE_SET_REQUEST: (state_context_pb2.TpStateSetRequest, Envelope.TP_STATE_SET_RESPONSE),
    Envelope.TP_STATE_DELETE_REQUEST: (state_context_pb2.TpStateDeleteRequest, Envelope.TP_STATE_DELETE_RESPONSE),
    Envelope.TP_RECEIPT_ADD_DATA_REQUEST: (
        state_context_pb2.TpReceiptAddDataRequest,
        Envelope.TP_RECEIPT_ADD_DATA_RESPONSE,
    ),
    Envelope.TP_EVENT_ADD_REQUEST: (state_context_pb2.TpEventAddRequest, Envelope.TP_EVENT_ADD_RESPONSE),
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
    """A task is done; ``namespaces``: what its processor registered for the family."""

    task: Task
    outcomes: Outcomes
    namespaces: tuple[str, ...]


class Lost(NamedTuple):
    """A task went down with its processor."""

    task: Task


ProcessorEvent = Arrived | Left | Answered | Lost


class Processor:
    """One connection."""

    def __init__(self, identity: bytes, now_ms: int) -> None:
        self.identity = identity
        self.families: dict[FamilyVersion, tuple[str, ...]] = {}
        self.packed = False
        self.occupancy = _OCCUPANCY_DEFAULT
        self.draining = False
        self.assignments: dict[str, Assignment] = {}
        self.heard_ms = now_ms
        self.pinged_ms = now_ms

    @property
    def room(self) -> int:
        """How many more tasks it takes now."""
        return (_PACKED_IN_FLIGHT if self.packed else self.occupancy) - len(self.assignments)


class Processors:
    """All connected processors. ``clock_ms``: milliseconds of a steady clock."""

    def __init__(self, send: SendTo, clock_ms: Callable[[], int], limits: Limits) -> None:
        self._send = send
        self._clock_ms = clock_ms
        self._limits = limits
        self._connected: dict[bytes, Processor] = {}

    def has(self, family: FamilyVersion) -> bool:
        """Whether a processor takes work of ``family``."""
        return any(family in processor.families and not processor.draining for processor in self._connected.values())

    def count(self, family: FamilyVersion) -> int:
        """How many processors take work of ``family``."""
        return sum(family in processor.families and not processor.draining for processor in self._connected.values())

    def free(self, family: FamilyVersion) -> Processor | None:
        """The processor of ``family`` with the fewest tasks, if one has room."""
        best: Processor | None = None
        for processor in self._connected.values():
            if family not in processor.families or processor.draining or processor.room <= 0:
                continue
            if best is None or len(processor.assignments) < len(best.assignments):
                best = processor
        return best

    def start(self, processor: Processor, task: Task, read_for: ReadFor) -> None:
        """Hand a task to a processor with room; it comes back as Answered or Lost."""
        context_id = new_context_id()

        def send(message_type: int, correlation_id: str, content: bytes) -> None:
            self._send(processor.identity, message_type, correlation_id, content)

        assignment: Assignment
        if processor.packed:
            assignment = PackedAssignment(task, read_for, send, context_id, self._limits)
        else:
            namespaces = processor.families[task.route]
            assignment = Conversation(task, read_for, send, context_id, namespaces, self._limits)
        processor.assignments[context_id] = assignment
        assignment.start()

    def heard(self, identity: bytes) -> None:
        """Any frame of a peer shows that it lives."""
        processor = self._connected.get(identity)
        if processor is not None:
            processor.heard_ms = self._clock_ms()

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
        """Ping the quiet ones; drop those that stayed silent for too long."""
        now_ms = self._clock_ms()
        events: list[ProcessorEvent] = []
        for processor in list(self._connected.values()):
            silent_ms = now_ms - processor.heard_ms
            if silent_ms > self._limits.processor_silence_ms:
                events += self._drop(processor, f"silent for {silent_ms} ms")
            elif (
                silent_ms > self._limits.processor_ping_ms
                and now_ms - processor.pinged_ms > self._limits.processor_ping_ms
            ):
                events += self._ping(processor)
        return events

    def probe(self) -> list[ProcessorEvent]:
        """Some connection closed: drop every processor that can no longer be reached."""
        return [event for processor in list(self._connected.values()) for event in self._ping(processor)]

    def _ping(self, processor: Processor) -> list[ProcessorEvent]:
        processor.pinged_ms = self._clock_ms()
        if self._send(processor.identity, Envelope.PING_REQUEST, new_context_id(), b""):
            return []
        return self._drop(processor, "its connection closed")

    def _drop(self, processor: Processor, why: str) -> list[ProcessorEvent]:
        del self._connected[processor.identity]
        lost = [Lost(assignment.task) for assignment in processor.assignments.values()]
        return [Left(tuple(processor.families), why), *lost]

    def _register(self, identity: bytes, correlation_id: str, content: bytes) -> list[ProcessorEvent]:
        response = processor_pb2.TpRegisterResponse(status=processor_pb2.TpRegisterResponse.OK)
        events: list[ProcessorEvent] = []
        try:
            request = processor_pb2.TpRegisterRequest.FromString(content)
            response.protocol_version = request.protocol_version
            processor = self._connected.get(identity) or Processor(identity, self._clock_ms())
            refusal = _registration_refusal(request, processor)
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
            processor.occupancy = min(request.max_occupancy or _OCCUPANCY_DEFAULT, _OCCUPANCY_MAX)
            processor.draining = False
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
        processor.draining = True
        return [Left(tuple(processor.families), "it unregistered")]

    def _serve_state(self, processor: Processor, message_type: int, correlation_id: str, content: bytes) -> None:
        request_type, response_type = _STATE_REQUESTS[message_type]
        try:
            request = request_type.FromString(content)
        except DecodeError:
            return
        context_id: str = request.context_id  # type: ignore[attr-defined]
        assignment = processor.assignments.get(context_id.partition(":")[0])
        response = assignment.state_request(context_id, request) if assignment else refused(request)
        self._send(processor.identity, response_type, correlation_id, response.SerializeToString())

    def _take_answer(self, processor: Processor, correlation_id: str, content: bytes) -> list[ProcessorEvent]:
        key = correlation_id.partition(":")[0]
        assignment = processor.assignments.get(key)
        outcomes = assignment.answer(correlation_id, content) if assignment else None
        if assignment is None or outcomes is None:
            return []
        del processor.assignments[key]
        return [Answered(assignment.task, outcomes, processor.families[assignment.task.route])]


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
    if len(processor.families) >= _FAMILIES_MAX:
        return f"this connection registered {_FAMILIES_MAX} families already"
    return None
