"""The processors: registration, liveness, and the tasks that each holds.

Processors' frames come in and ``ProcessorEvent`` values come out; messages go out through the gateway's ``send``.
The node's own processor needs no connection: its requests wait here until ``answer_own``. Nothing here depends on
blocks or batches.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, NamedTuple

import structlog
from google.protobuf.message import DecodeError, Message

from dovetail.ledger.access import namespace_refusal
from dovetail.ledger.addresses import is_prefix
from dovetail.ledger.limits import STATE_REQUEST_ADDRESSES_MAX, Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.transaction import FAMILY_CHARACTERS_MAX
from dovetail.validator.core.execution.model import Task
from dovetail.validator.processors.assignment import (
    Assignment,
    Conversation,
    Outcomes,
    PackedAssignment,
    ViewFor,
    new_context_id,
    refused,
)
from dovetail.validator.processors.own import NO_FAMILIES, OCCUPANCY, OWN_IDENTITY, OwnFamilies
from dovetail.validator.processors.processor import OCCUPANCY_DEFAULT, Held, Holding, Processor, Registered, Stuck
from dovetail.validator.transport.connections import ThrottledWarning
from dovetail.validator.transport.gateway import Delivery
from protos import packed_pb2, processor_pb2, state_context_pb2
from protos.node_pb2 import ProcessorStatus
from protos.validator_pb2 import Message as Envelope

PACKED_VERSION: Final = 2
BUILD_ID_CHARACTERS_MAX: Final = 256
_OCCUPANCY_MAX: Final = 4_096
_FAMILIES_MAX: Final = 100
_NAMESPACES_MAX: Final = 1_000

NOT_NEEDED: Final = "the node judges this family itself; this processor is not needed"

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


log = structlog.get_logger("validator.processors")


class ProcessorAvailable(NamedTuple):
    """A processor accepts tasks of a family: it registered, a silent one sent a frame, or a stuck one an answer."""

    family: FamilyVersion
    packed: bool
    build_id: str = ""
    migrates: bool = False


class ProcessorUnavailable(NamedTuple):
    """A processor accepts no more tasks: it unregistered, closed its connection, went silent or is stuck."""

    families: tuple[FamilyVersion, ...]
    why: str
    migrated: tuple[FamilyVersion, ...] = ()
    """Those of ``families`` for which the processor had registered as a migrator."""


class TaskAnswered(NamedTuple):
    """A processor finished a task.

    ``namespaces``: the processor's registered namespaces of the task's family. ``families``: the families of which the
    processor accepts tasks again.
    """

    task: Task
    outcomes: Outcomes
    namespaces: tuple[str, ...]
    families: tuple[FamilyVersion, ...]
    identity: bytes


class TaskLost(NamedTuple):
    """A task was lost with its processor, or not answered in time. ``begun``: the processor may have begun it."""

    task: Task
    begun: bool


ProcessorEvent = ProcessorAvailable | ProcessorUnavailable | TaskAnswered | TaskLost


class _RegistrationRefused(Exception):
    """The message says why, for the processor and the log."""


class Processors:
    """All processors. ``clock_ms``: fractional milliseconds of a monotonic clock. ``own``: judged by the node itself.

    A connection that unregistered and holds no task is forgotten until it registers again.
    """

    def __init__(
        self, send: SendTo, clock_ms: Callable[[], float], limits: Limits, own: OwnFamilies = NO_FAMILIES
    ) -> None:
        self._send = send
        self._clock_ms = clock_ms
        self._limits = limits
        self._connected: dict[bytes, Processor] = {}
        self._refused = ThrottledWarning("registration refused", lambda: clock_ms() / 1000)
        self._refused_state = ThrottledWarning("state request refused", lambda: clock_ms() / 1000)
        self._own_families = own
        self._own = [_own_processor(own, clock_ms())] if own.namespaces else []
        """The node's own processor."""
        self._own_asked: deque[tuple[int, str, bytes]] = deque()
        """The requests to the node's own processor: message type, correlation id, content."""
        self._warned: set[FamilyVersion] = set()
        """The node's own families for which a processor has registered."""
        self._migrations_lost: Counter[FamilyVersion] = Counter()
        """By version: how many processors were lost during its migration since the last answer to it."""

    def has(self, family: FamilyVersion, *, migration: bool = False) -> bool:
        """Whether a processor accepts tasks of ``family``; with ``migration``: tasks of its migration."""
        return any(processor.takes(family, migration=migration) for processor in self._each())

    def count(self, family: FamilyVersion, *, migration: bool = False) -> int:
        """How many processors accept tasks of ``family``; with ``migration``: tasks of its migration."""
        return sum(processor.takes(family, migration=migration) for processor in self._each())

    def serves(self, identity: bytes, family: FamilyVersion) -> bool:
        """Whether the processor of this connection is registered for ``family``."""
        processor = self._connected.get(identity)
        return processor is not None and family in processor.serves

    def build_id(self, identity: bytes, family: FamilyVersion) -> str:
        """The build with which a processor registered for ``family``; empty if it named none, or left."""
        processor = self._connected.get(identity)
        registered = processor.families.get(family) if processor is not None else None
        return registered.build_id if registered is not None else ""

    def counts(self) -> Counter[FamilyVersion]:
        """``count`` of every family with at least one processor."""
        return Counter(family for processor in self._each() for family in processor.families if processor.takes(family))

    def statuses(self) -> Iterator[ProcessorStatus]:
        """The status of each processor: the node's own, then the others in the order of connection."""
        now_ms = self._clock_ms()
        return (processor.status(now_ms) for processor in self._each())

    def longest_held(self) -> Holding | None:
        """The oldest task in flight; None if there is none."""
        now_ms = self._clock_ms()
        each = (processor.longest_held(now_ms) for processor in self._each())
        return max((held for held in each if held), key=lambda held: held.held_ms, default=None)

    def stuck(self) -> list[Stuck]:
        """The processors that did not answer a task in time and have answered none since, the oldest connection
        first."""
        return [processor.stuck for processor in self._connected.values() if processor.stuck]

    def states(self) -> Counter[str]:
        """The number of connected processors in each state of ``processor.STATES``."""
        return Counter(processor.state for processor in self._connected.values())

    def free(self, family: FamilyVersion, *, migration: bool = False) -> list[Processor]:
        """The processors of ``family`` that accept one more task, those with the fewest tasks first.

        With ``migration``: only the newest processor, because it may be the repaired build of one that refused. Each
        time a processor is lost during the migration, the next older processor has its turn.
        """
        takers = [entry for entry in self._each() if entry.takes(family, migration=migration) and entry.capacity > 0]
        if migration:
            return [takers[-1 - self._migrations_lost[family] % len(takers)]] if takers else []
        return sorted(takers, key=lambda entry: len(entry.held))

    def routes_to_follow(self) -> list[FamilyVersion]:
        """The families of processors whose newest task may be followed by another."""
        takers = (entry for entry in self._each() if entry.capacity > 0 and entry.followed is not None)
        return [family for entry in takers for family in entry.serves]

    def start(self, processor: Processor, task: Task, view_for: ViewFor) -> bool:
        """Give a task to a processor with capacity. TaskAnswered or TaskLost follows.

        False, with nothing sent, if the task is too large for one message: split it.
        """
        context_id = new_context_id()

        def send(message_type: int, correlation_id: str, content: bytes) -> None:
            self._send_needed(processor, message_type, correlation_id, content)

        namespaces = processor.families[task.route].namespaces
        assignment: Assignment
        if processor.packed_version and not (task.alone or task.migration):
            follows = "" if task.follows is None else processor.newest
            assignment = PackedAssignment(task, view_for, send, context_id, follows, namespaces, self._limits)
        else:
            raw_header = processor.raw_header
            assignment = Conversation(task, view_for, send, context_id, namespaces, raw_header, self._limits)
        processor.hold(context_id, Held(assignment, self._clock_ms()))
        if assignment.start():
            processor.newest = context_id
            return True
        processor.release(context_id)
        return False

    @property
    def own_is_asked(self) -> bool:
        """Whether the node's own processor has a request to answer."""
        return bool(self._own_asked)

    def answer_own(self) -> list[ProcessorEvent]:
        """Let the node's own processor answer its oldest request, if it has one. Occupies the caller meanwhile."""
        if not self._own_asked:
            return []
        (processor,) = self._own
        message_type, correlation_id, content = self._own_asked.popleft()

        def call(state_type: int, content: bytes) -> bytes:
            request = _STATE_REQUESTS[state_type][0].FromString(content)
            return self._state_response(processor, request).SerializeToString()

        answer = self._own_families.answer(message_type, content, call)
        return self._take_answer(processor, correlation_id, answer)

    def mark_alive(self, identity: bytes) -> list[ProcessorEvent]:
        """Note a frame of a peer. A silent processor accepts tasks again."""
        processor = self._connected.get(identity)
        if processor is None:
            return []
        processor.heard_ms = self._clock_ms()
        processor.pinged_ms = None
        if not processor.silent:
            return []
        processor.silent = False
        return [_available(processor, family) for family in processor.serves]

    def handle(self, identity: bytes, message_type: int, correlation_id: str, content: bytes) -> list[ProcessorEvent]:
        """Process one frame of ``PROCESSOR_MESSAGES``. Undecodable frames and unknown ids change nothing."""
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
        """Ping quiet processors. Report tasks as lost whose processor answered no ping, or not the task, in time."""
        now_ms = self._clock_ms()
        events: list[ProcessorEvent] = []
        for processor in list(self._connected.values()):
            if processor.unreachable:
                events += self._drop(processor, "it takes no messages")
                continue
            if processor.pinged_ms is not None and not processor.silent:
                silent_ms = now_ms - processor.pinged_ms
                if silent_ms > self._limits.processor_silence_ms - self._limits.processor_ping_ms:
                    processor.silent = True
                    events += self._lose(processor, f"it is silent: no answer to a ping for {silent_ms:.0f} ms")
            elif now_ms - max(processor.heard_ms, processor.asked_ms) > self._limits.processor_ping_ms:
                events += self._ping(processor)
            events += self._lose_overdue(processor, now_ms)
        return events

    def probe(self) -> list[ProcessorEvent]:
        """Drop every processor whose connection is closed. To be called when any connection closed."""
        return [event for processor in list(self._connected.values()) for event in self._ping(processor)]

    def _ping(self, processor: Processor) -> list[ProcessorEvent]:
        if self._send(processor.identity, Envelope.PING_REQUEST, new_context_id(), b"") is Delivery.GONE:
            return self._drop(processor, "its connection closed")
        processor.asked_ms = self._clock_ms()
        if processor.pinged_ms is None:
            processor.pinged_ms = processor.asked_ms
        return []

    def _drop(self, processor: Processor, why: str) -> list[ProcessorEvent]:
        lost = self._lose(processor, why)
        self._connected.pop(processor.identity, None)
        return lost

    def _lose(self, processor: Processor, why: str) -> list[ProcessorEvent]:
        behind = len(processor.overdue)
        tasks = [processor.release(context_id) for context_id in list(processor.held)]
        return [_unavailable(processor, why), *self._lost(processor, tasks, behind)]

    def _lose_overdue(self, processor: Processor, now_ms: float) -> list[ProcessorEvent]:
        """Take back the tasks that a processor did not answer in time. It gets no new ones before it answers one."""
        behind, before = len(processor.overdue), processor.stuck
        tasks = processor.lose_overdue(now_ms, self._limits.task_answer_ms_max)
        lost = self._lost(processor, tasks, behind) if tasks else []
        if processor.stuck is None or before is not None:
            return lost
        why = f"it is stuck: no answer to {processor.stuck.transactions} transactions of {processor.stuck.family}"
        return [_unavailable(processor, f"{why} within {self._limits.task_answer_ms_max} ms"), *lost]

    def _lost(self, processor: Processor, tasks: list[Task], behind: int) -> list[ProcessorEvent]:
        """The losses of a processor's oldest tasks, which were behind so many lost ones."""
        self._forget_drained(processor)
        self._migrations_lost.update(task.route for task in tasks if task.migration)
        return [TaskLost(task, not processor.packed_version or place == 0) for place, task in enumerate(tasks, behind)]

    def _available_again(self, processor: Processor) -> list[ProcessorEvent]:
        """A processor answered a task, or registered again: if it was stuck, it accepts tasks again."""
        if processor.stuck is None:
            return []
        processor.stuck = None
        return [_available(processor, family) for family in processor.serves]

    def _forget_drained(self, processor: Processor) -> None:
        if processor.draining and not processor.held:
            del self._connected[processor.identity]

    def _send_needed(self, processor: Processor, message_type: int, correlation_id: str, content: bytes) -> None:
        """Send a message without which the processor cannot go on."""
        if processor.in_process:
            # Answered later: the task's caller is in the middle of its own work.
            self._own_asked.append((message_type, correlation_id, content))
        elif self._send(processor.identity, message_type, correlation_id, content) is not Delivery.SENT:
            processor.unreachable = True

    def _register(self, identity: bytes, correlation_id: str, content: bytes) -> list[ProcessorEvent]:
        response = processor_pb2.TpRegisterResponse(status=processor_pb2.TpRegisterResponse.OK)
        events: list[ProcessorEvent] = []
        processor = self._connected.get(identity) or Processor(identity, self._clock_ms())
        try:
            request = _decode_registration(content, self._limits)
            response.protocol_version = request.protocol_version
            family = FamilyVersion(request.family, request.version)
            idle = family in self._own_families.namespaces
            registered = Registered(tuple(request.namespaces), request.build_id, request.migrates, idle)
            self._check_room(processor, family, registered)
            _check_registration(processor, family, registered)
            self._check_own(family)
        except _RegistrationRefused as refusal:
            response.status = processor_pb2.TpRegisterResponse.ERROR
            response.message = str(refusal)
            self._refused.warn(connection_id=identity.hex(), reason=str(refusal))
        else:
            self._connected[identity] = processor
            processor.register(family, registered)
            processor.packed_version = min(request.packed_version, PACKED_VERSION)
            processor.raw_header = request.request_header_style == processor_pb2.TpRegisterRequest.RAW
            processor.occupancy = min(request.max_occupancy or OCCUPANCY_DEFAULT, _OCCUPANCY_MAX)
            response.packed_version = processor.packed_version
            processor.overdue.clear()
            events = self._available_again(processor)
            if idle:
                response.message = NOT_NEEDED
                self._warn_once(family)
            elif not events:
                events = [_available(processor, family)]
        self._send(identity, Envelope.TP_REGISTER_RESPONSE, correlation_id, response.SerializeToString())
        return events

    def _check_room(self, processor: Processor, family: FamilyVersion, registered: Registered) -> None:
        """Raises _RegistrationRefused if a registration is too large, alone or with those before."""
        limits = self._limits
        if processor.identity not in self._connected and len(self._connected) >= limits.processors_max:
            raise _RegistrationRefused(f"{len(self._connected)} processors are connected, which is the limit")
        own_bytes = processor.bytes_with(family, registered)
        if own_bytes > limits.connection_registered_bytes_max:
            raise _RegistrationRefused(
                f"the registrations of this connection would have {own_bytes} bytes, at most"
                f" {limits.connection_registered_bytes_max} are allowed (connection_registered_bytes_max): register"
                " shorter namespaces, which cover the same addresses"
            )
        all_bytes = own_bytes + sum(
            entry.registered_bytes for entry in self._connected.values() if entry is not processor
        )
        if all_bytes > limits.registered_bytes_max:
            raise _RegistrationRefused(
                f"the registrations of all processors would have {all_bytes} bytes, at most"
                f" {limits.registered_bytes_max} are allowed (registered_bytes_max): `dovetail processors` lists them"
            )

    def _check_own(self, family: FamilyVersion) -> None:
        """Raises _RegistrationRefused for another version of a family that the node judges itself."""
        own = self._own_families
        if own.judges_name(family.name) and family not in own.namespaces:
            raise _RegistrationRefused(
                f"the node judges {family.name} itself, in {', '.join(map(str, own.namespaces))}, and lets no processor"
                f" judge its version {family.version[:80]!r}"
            )

    def _warn_once(self, family: FamilyVersion) -> None:
        if family not in self._warned:
            self._warned.add(family)
            log.warning(
                "a processor registered for a family that the node judges itself, and gets no tasks of it: it is not"
                " needed, end it",
                family=str(family),
            )

    def _each(self) -> Iterator[Processor]:
        """Every processor."""
        return chain(self._own, self._connected.values())

    def _unregister(self, identity: bytes, processor: Processor | None, correlation_id: str) -> list[ProcessorEvent]:
        response = processor_pb2.TpUnregisterResponse(status=processor_pb2.TpUnregisterResponse.OK)
        if processor is None:
            response.status = processor_pb2.TpUnregisterResponse.ERROR
        self._send(identity, Envelope.TP_UNREGISTER_RESPONSE, correlation_id, response.SerializeToString())
        if processor is None:
            return []
        unavailable = _unavailable(processor, "it unregistered")
        processor.draining = True
        self._forget_drained(processor)
        return [unavailable]

    def _serve_state(self, processor: Processor, message_type: int, correlation_id: str, content: bytes) -> None:
        request_type, response_type = _STATE_REQUESTS[message_type]
        try:
            request = request_type.FromString(content)
        except DecodeError:
            return
        response = self._state_response(processor, request)
        self._send_needed(processor, response_type, correlation_id, response.SerializeToString())

    def _state_response(self, processor: Processor, request: Message) -> Message:
        context_id: str = request.context_id  # type: ignore[attr-defined]
        held = processor.held.get(context_id.partition(":")[0])
        addresses = _address_count(request)
        if addresses > STATE_REQUEST_ADDRESSES_MAX:
            held = None
            self._refused_state.warn(
                connection_id=processor.identity.hex(),
                reason=f"one request has {addresses} addresses, at most {STATE_REQUEST_ADDRESSES_MAX} are allowed",
            )
        return held.assignment.state_request(context_id, request) if held else refused(request)

    def _take_answer(self, processor: Processor, correlation_id: str, content: bytes) -> list[ProcessorEvent]:
        key = correlation_id.partition(":")[0]
        held = processor.held.get(key)
        now_ms = self._clock_ms()
        if held is None:
            return self._available_again(processor) if processor.answer_late(correlation_id, now_ms) else []
        assignment, awaited = held.assignment, held.assignment.awaited
        outcomes = assignment.answer(correlation_id, content)
        if outcomes is None and assignment.awaited == awaited:
            return []
        processor.advance(key, now_ms)
        available = self._available_again(processor)
        if outcomes is None:
            return available
        processor.record.answered(held, outcomes, now_ms)
        if assignment.task.migration:
            del self._migrations_lost[assignment.task.route]
        processor.release(key)
        self._forget_drained(processor)
        return [
            *available,
            TaskAnswered(assignment.task, outcomes, assignment.namespaces, processor.serves, processor.identity),
        ]


def _address_count(request: Message) -> int:
    if isinstance(request, state_context_pb2.TpStateSetRequest):
        return len(request.entries)
    if isinstance(request, state_context_pb2.TpStateGetRequest | state_context_pb2.TpStateDeleteRequest):
        return len(request.addresses)
    return 0


def _own_processor(own: OwnFamilies, now_ms: float) -> Processor:
    processor = Processor(OWN_IDENTITY, now_ms)
    processor.families.update({family: Registered(namespaces) for family, namespaces in own.namespaces.items()})
    processor.packed_version, processor.raw_header, processor.occupancy = PACKED_VERSION, True, OCCUPANCY
    return processor


def _available(processor: Processor, family: FamilyVersion) -> ProcessorAvailable:
    registered = processor.families[family]
    return ProcessorAvailable(family, bool(processor.packed_version), registered.build_id, registered.migrates)


def _unavailable(processor: Processor, why: str) -> ProcessorUnavailable:
    migrated = tuple(family for family in processor.serves if processor.families[family].migrates)
    return ProcessorUnavailable(processor.serves, why, migrated)


def _decode_registration(content: bytes, limits: Limits) -> processor_pb2.TpRegisterRequest:
    """Raises _RegistrationRefused. A message over the limit costs no decoding."""
    most = limits.connection_registered_bytes_max
    if len(content) > most:
        raise _RegistrationRefused(
            f"the registration has {len(content)} bytes, at most {most} are allowed (connection_registered_bytes_max)"
        )
    try:
        return processor_pb2.TpRegisterRequest.FromString(content)
    except DecodeError:
        raise _RegistrationRefused(f"{len(content)} bytes that are no TpRegisterRequest") from None


def _check_registration(processor: Processor, family: FamilyVersion, registered: Registered) -> None:
    """Raises _RegistrationRefused, with the offending values."""
    for name, value in (("family", family.name), ("version", family.version)):
        if not 0 < len(value) <= FAMILY_CHARACTERS_MAX:
            raise _RegistrationRefused(f"{name} has {len(value)} characters, allowed are 1 to {FAMILY_CHARACTERS_MAX}")
    if len(registered.build_id) > BUILD_ID_CHARACTERS_MAX:
        raise _RegistrationRefused(
            f"build_id has {len(registered.build_id)} characters, at most {BUILD_ID_CHARACTERS_MAX} are allowed"
        )
    if len(registered.namespaces) > _NAMESPACES_MAX:
        raise _RegistrationRefused(f"{len(registered.namespaces)} namespaces, at most {_NAMESPACES_MAX} are allowed")
    for namespace in registered.namespaces:
        if not is_prefix(namespace):
            raise _RegistrationRefused(
                f"namespace {namespace[:80]!r} is not an even number of lower-case hex characters, at most 70"
            )
    refusal = namespace_refusal(family.name, registered.namespaces)
    if refusal is not None:
        raise _RegistrationRefused(refusal)
    if family not in processor.serves and len(processor.serves) >= _FAMILIES_MAX:
        raise _RegistrationRefused(f"this connection registered {_FAMILIES_MAX} families already")
