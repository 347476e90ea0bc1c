"""A validator's processor side that speaks only the 1.x protocol, on a ROUTER at a free loopback port.

The module handles registration, transactions that a test submits, their contexts with enforced inputs and outputs,
pings, and a record of everything. Verification of signatures, scheduling (``max_occupancy`` is recorded only) and
message numbers above 1.x do not belong here. This module must not import the project's packages.
"""

import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

from tests.system.independent import protobuf_wire as wire
from tests.system.independent.client import TransactionHeader
from tests.system.independent.messages import (
    Event,
    HeaderStyle,
    Message,
    MessageType,
    ProcessStatus,
    StateStatus,
    Status,
    decode_entries,
    encode_entries,
)
from tests.system.independent.socket_owner import SocketOwner

DEFAULT_TIMEOUT = 5.0
Style = Literal["RAW", "EXPANDED", "BOTH"]


class NoProcessorError(LookupError):
    """No processor is registered for the family and version."""


@dataclass(frozen=True)
class Registered:
    """One registration request, as a 1.x validator reads it: without the fields that 1.x does not have."""

    identity: bytes
    family: str
    version: str
    namespaces: tuple[str, ...]
    max_occupancy: int
    protocol_version: int
    header_style: int


@dataclass(frozen=True)
class Access:
    """One state request of a transaction and whether it was granted."""

    kind: Literal["get", "set", "delete"]
    addresses: tuple[str, ...]
    granted: bool


@dataclass(frozen=True)
class Verdict:
    """The result of a transaction.

    ``sets`` and ``deletes`` are the net effect. They are written to the state only if the status is OK.
    """

    status: int
    message: str
    extended_data: bytes
    sets: dict[str, bytes]
    deletes: frozenset[str]
    receipt_data: tuple[bytes, ...]
    events: tuple[Event, ...]
    accesses: tuple[Access, ...]
    context_id: str

    @property
    def ok(self) -> bool:
        return self.status == ProcessStatus.OK


@dataclass(frozen=True)
class Ping:
    """An answered ping, and the processor's contexts that were still open when the answer came."""

    identity: bytes
    correlation_id: str
    running: tuple[str, ...]


@dataclass
class _Context:
    context_id: str
    identity: bytes
    header: TransactionHeader
    namespaces: tuple[str, ...]
    state: MutableMapping[str, bytes]
    verdict: Future[Verdict]
    changes: dict[str, bytes | None] = field(default_factory=dict)
    receipt_data: list[bytes] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)

    def read(self, address: str) -> bytes | None:
        return self.changes[address] if address in self.changes else self.state.get(address)

    def may_read(self, addresses: Iterable[str]) -> bool:
        return all(_covered(address, self.header.inputs) for address in addresses)

    def may_write(self, addresses: Iterable[str]) -> bool:
        return all(
            _covered(address, self.header.outputs) and _covered(address, self.namespaces) for address in addresses
        )


class BareValidator:
    """Accepts processors and sends them the transactions that a test submits.

    ``terse``: leaves out protocol_version, which release 1.0 does not have, and each OK, which no 1.x SDK misses.
    """

    def __init__(self, *, terse: bool = False) -> None:
        self._terse = terse
        self.url = ""
        self.registrations: list[Registered] = []
        self.unregistered: list[bytes] = []
        self.pings: list[Ping] = []
        self.refusals: deque[bytes | None] = deque()
        """Contents of the answers to the next registrations, which then have no effect. None means no answer."""
        self.unknown: list[Message] = []
        self._owner = SocketOwner("bare validator", self._on_message)
        self._changed = threading.Condition()
        self._active: list[Registered] = []
        self._contexts: dict[str, _Context] = {}
        self._by_correlation: dict[str, _Context] = {}
        self._awaited_pings: dict[str, tuple[bytes, Future[Ping]]] = {}
        self._handlers: dict[int, Callable[[bytes, Message], bytes | None]] = {
            MessageType.TP_REGISTER_REQUEST: self._register,
            MessageType.TP_UNREGISTER_REQUEST: self._unregister,
            MessageType.TP_STATE_GET_REQUEST: self._get,
            MessageType.TP_STATE_SET_REQUEST: self._set,
            MessageType.TP_STATE_DELETE_REQUEST: self._delete,
            MessageType.TP_RECEIPT_ADD_DATA_REQUEST: self._add_receipt_data,
            MessageType.TP_EVENT_ADD_REQUEST: self._add_event,
            MessageType.PING_REQUEST: lambda _identity, _message: b"",
        }

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def malformed(self) -> list[bytes]:
        """Frames that were not a message of 1.x."""
        return self._owner.malformed

    def start(self) -> str:
        """Bind to a free port, or to the port of the earlier start. Returns the address, which is also ``url``."""
        self.url = self._owner.bind(self.url) if self.url else self._owner.bind()
        return self.url

    def stop(self) -> None:
        """Close the socket. Open transactions end with a ConnectionError."""
        self._owner.stop()
        with self._changed:
            contexts = list(self._contexts.values())
            pings = list(self._awaited_pings.values())
            self._contexts.clear()
            self._by_correlation.clear()
            self._awaited_pings.clear()
            self._active.clear()
        for context in contexts:
            context.verdict.set_exception(ConnectionError("the validator was stopped"))
        for _, future in pings:
            future.set_exception(ConnectionError("the validator was stopped"))

    def wait_for_registration(self, family: str, version: str, timeout: float = DEFAULT_TIMEOUT) -> Registered:
        """Wait until a processor is registered for the family and version, and return its registration."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._find(family, version) is not None, timeout):
                raise TimeoutError(f"no registration for {family} {version} in {timeout} s")
            found = self._find(family, version)
        assert found is not None
        return found

    def wait_for_registrations(self, count: int, timeout: float = DEFAULT_TIMEOUT) -> list[Registered]:
        """Wait until so many registrations were requested since the start, and return them, granted or not."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.registrations) >= count, timeout):
                raise TimeoutError(f"{len(self.registrations)} of {count} registrations in {timeout} s")
            return list(self.registrations)

    def wait_for_unregistration(self, count: int = 1, timeout: float = DEFAULT_TIMEOUT) -> None:
        """Wait until so many processors have unregistered since the start."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.unregistered) >= count, timeout):
                raise TimeoutError(f"fewer than {count} unregistrations in {timeout} s")

    def submit(
        self,
        transaction_header: bytes,
        payload: bytes,
        signature: str,
        state: MutableMapping[str, bytes],
        style: Style | None = None,
        *,
        identity: bytes | None = None,
    ) -> Future[Verdict]:
        """Send a transaction. Without ``style``, the processor chooses. Only an OK verdict writes to ``state``."""
        header = TransactionHeader.decode(transaction_header)
        future: Future[Verdict] = Future()
        with self._changed:
            processor = self._find(header.family_name, header.family_version, identity)
            if processor is None:
                raise NoProcessorError(f"no processor serves {header.family_name} {header.family_version}")
            correlation_id, context_id = secrets.token_hex(16), secrets.token_hex(16)
            context = _Context(context_id, processor.identity, header, processor.namespaces, state, future)
            self._contexts[context_id] = self._by_correlation[correlation_id] = context
        if style is None:
            style = "RAW" if processor.header_style == HeaderStyle.RAW else "EXPANDED"
        content = wire.encode(
            wire.present(
                [
                    (1, b"" if style == "RAW" else transaction_header),
                    (2, payload),
                    (3, signature),
                    (4, context_id),
                    (5, b"" if style == "EXPANDED" else transaction_header),
                ]
            )
        )
        self._owner.send(Message(MessageType.TP_PROCESS_REQUEST, correlation_id, content), processor.identity)
        return future

    def process(
        self,
        transaction_header: bytes,
        payload: bytes,
        signature: str,
        state: MutableMapping[str, bytes],
        style: Style | None = None,
        *,
        identity: bytes | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> Verdict:
        """Send a transaction and wait for its verdict."""
        return self.submit(transaction_header, payload, signature, state, style, identity=identity).result(timeout)

    def ping(self, identity: bytes, timeout: float = DEFAULT_TIMEOUT) -> Ping:
        """Ping a processor and wait for the answer. Raises TimeoutError without one."""
        correlation_id = secrets.token_hex(16)
        future: Future[Ping] = Future()
        with self._changed:
            self._awaited_pings[correlation_id] = identity, future
        self._owner.send(Message(MessageType.PING_REQUEST, correlation_id), identity)
        try:
            return future.result(timeout)
        finally:
            with self._changed:
                self._awaited_pings.pop(correlation_id, None)

    def send(self, identity: bytes, message: Message) -> None:
        """Send any message to a processor."""
        self._owner.send(message, identity)

    def _find(self, family: str, version: str, identity: bytes | None = None) -> Registered | None:
        for registered in self._active:
            if (registered.family, registered.version) == (family, version) and identity in (None, registered.identity):
                return registered
        return None

    def _on_message(self, identity: bytes, message: Message) -> None:
        handler = self._handlers.get(message.message_type)
        if handler is not None:
            content = handler(identity, message)
            if content is not None:
                self._owner.send(Message(message.message_type + 1, message.correlation_id, content), identity)
        elif message.message_type == MessageType.TP_PROCESS_RESPONSE:
            self._conclude(identity, message)
        elif message.message_type == MessageType.PING_RESPONSE:
            self._note_ping(identity, message)
        else:
            self.unknown.append(message)

    def _register(self, identity: bytes, message: Message) -> bytes | None:
        fields = wire.decode(message.content)
        registered = Registered(
            identity=identity,
            family=wire.get_text(fields, 1),
            version=wire.get_text(fields, 2),
            namespaces=tuple(wire.get_all_text(fields, 4)),
            max_occupancy=wire.get_int(fields, 5),
            protocol_version=wire.get_int(fields, 6),
            header_style=wire.get_int(fields, 7),
        )
        with self._changed:
            self.registrations.append(registered)
            if self.refusals:
                self._changed.notify_all()
                return self.refusals.popleft()
            self._active = [
                other
                for other in self._active
                if (other.identity, other.family, other.version) != (identity, registered.family, registered.version)
            ]
            self._active.append(registered)
            self._changed.notify_all()
        return b"" if self._terse else wire.encode([(1, int(Status.OK)), (2, registered.protocol_version)])

    def _unregister(self, identity: bytes, _message: Message) -> bytes:
        with self._changed:
            self._active = [other for other in self._active if other.identity != identity]
            self.unregistered.append(identity)
            self._changed.notify_all()
        return wire.encode([(1, int(Status.OK))])

    def _context_of(self, identity: bytes, fields: wire.Fields) -> _Context | None:
        with self._changed:
            context = self._contexts.get(wire.get_text(fields, 1))
        return context if context is not None and context.identity == identity else None

    def _get(self, identity: bytes, message: Message) -> bytes:
        fields = wire.decode(message.content)
        context, addresses = self._context_of(identity, fields), wire.get_all_text(fields, 2)
        if context is None or not _granted(context, "get", addresses, context.may_read(addresses)):
            return wire.encode([(2, int(StateStatus.AUTHORIZATION_ERROR))])
        # A 1.x validator does not tell an address that is not set from an entry without bytes.
        entries = encode_entries((address, context.read(address) or b"") for address in addresses)
        return self._ok(wire.repeated(1, entries))

    def _set(self, identity: bytes, message: Message) -> bytes:
        fields = wire.decode(message.content)
        context, entries = self._context_of(identity, fields), decode_entries(wire.get_all_bytes(fields, 2))
        addresses = [address for address, _ in entries]
        if context is None or not _granted(context, "set", addresses, context.may_write(addresses)):
            return wire.encode([(2, int(StateStatus.AUTHORIZATION_ERROR))])
        context.changes.update(entries)
        return self._ok(wire.repeated(1, addresses))

    def _delete(self, identity: bytes, message: Message) -> bytes:
        fields = wire.decode(message.content)
        context, addresses = self._context_of(identity, fields), wire.get_all_text(fields, 2)
        if context is None or not _granted(context, "delete", addresses, context.may_write(addresses)):
            return wire.encode([(2, int(StateStatus.AUTHORIZATION_ERROR))])
        context.changes.update(dict.fromkeys(addresses))
        return self._ok(wire.repeated(1, addresses))

    def _add_receipt_data(self, identity: bytes, message: Message) -> bytes:
        fields = wire.decode(message.content)
        context = self._context_of(identity, fields)
        if context is None:
            return wire.encode([(2, int(Status.ERROR))])
        context.receipt_data.append(wire.get_bytes(fields, 3))
        return self._ok([])

    def _add_event(self, identity: bytes, message: Message) -> bytes:
        fields = wire.decode(message.content)
        context = self._context_of(identity, fields)
        if context is None:
            return wire.encode([(2, int(Status.ERROR))])
        context.events.append(Event.decode(wire.get_bytes(fields, 2)))
        return self._ok([])

    def _ok(self, fields: list[tuple[int, wire.Value]]) -> bytes:
        """A successful answer to a state request. OK is 1 in all of them."""
        return wire.encode(fields if self._terse else [*fields, (2, int(Status.OK))])

    def _conclude(self, identity: bytes, message: Message) -> None:
        fields = wire.decode(message.content)
        with self._changed:
            context = self._by_correlation.get(message.correlation_id)
            if context is None or context.identity != identity:
                self.unknown.append(message)
                return
            del self._by_correlation[message.correlation_id], self._contexts[context.context_id]
        verdict = Verdict(
            status=wire.get_int(fields, 1),
            message=wire.get_text(fields, 2),
            extended_data=wire.get_bytes(fields, 3),
            sets={address: data for address, data in context.changes.items() if data is not None},
            deletes=frozenset(address for address, data in context.changes.items() if data is None),
            receipt_data=tuple(context.receipt_data),
            events=tuple(context.events),
            accesses=tuple(context.accesses),
            context_id=context.context_id,
        )
        if verdict.ok:
            _write(context.state, context.changes)
        context.verdict.set_result(verdict)

    def _note_ping(self, identity: bytes, message: Message) -> None:
        with self._changed:
            awaited = self._awaited_pings.get(message.correlation_id)
            if awaited is None or awaited[0] != identity:
                self.unknown.append(message)
                return
            del self._awaited_pings[message.correlation_id]
            running = tuple(key for key, context in self._contexts.items() if context.identity == identity)
            answered = Ping(identity, message.correlation_id, running)
            self.pings.append(answered)
        awaited[1].set_result(answered)


def _covered(address: str, prefixes: Iterable[str]) -> bool:
    """Whether a whole address (not a prefix) begins with one of the prefixes."""
    well_formed = len(address) == 70 and set(address) <= set("0123456789abcdef")
    return well_formed and any(address.startswith(prefix) for prefix in prefixes)


def _granted(context: _Context, kind: Literal["get", "set", "delete"], addresses: Iterable[str], granted: bool) -> bool:
    context.accesses.append(Access(kind, tuple(addresses), granted))
    return granted


def _write(state: MutableMapping[str, bytes], changes: Mapping[str, bytes | None]) -> None:
    for address, data in changes.items():
        if data is None:
            state.pop(address, None)
        else:
            state[address] = data
