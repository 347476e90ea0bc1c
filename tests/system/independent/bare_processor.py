"""A transaction processor that speaks only the 1.x protocol, over one plain DEALER socket.

The module handles registration, transactions that a callable applies, access to state, and a record of everything
received. Reconnection and message numbers above 1.x do not belong here. This module must not import the project's
packages.
"""

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Literal, Self

from tests.system.independent import cbor_map
from tests.system.independent import protobuf_wire as wire
from tests.system.independent.client import INTKEY_NAMESPACE, TransactionHeader, intkey_address
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
INTKEY_NAMESPACES = (INTKEY_NAMESPACE,)
_INTKEY_LIMIT = 2**32 - 1


class Invalid(Exception):
    """Raised by apply: the transaction is invalid."""

    def __init__(self, message: str, extended_data: bytes = b"") -> None:
        super().__init__(message)
        self.message = message
        self.extended_data = extended_data


class Internal(Exception):
    """Raised by apply: there is no verdict, and the validator must try the transaction again."""


class AuthorizationError(Exception):
    """The validator refused access to an address, or receipt data, or an event."""


class RegistrationError(Exception):
    """The validator refused the registration, or answered for another protocol version."""


class StoppedError(ConnectionError):
    """The processor was stopped during a wait for an answer."""


@dataclass(frozen=True)
class Registration:
    """The validator's answer, with the numbers as received."""

    status: int
    protocol_version: int


@dataclass(frozen=True)
class ProcessRequest:
    """One transaction as received. ``header`` is read from ``header_bytes`` if these were sent, else from field 1."""

    header: TransactionHeader
    header_bytes: bytes
    expanded_header: bytes
    payload: bytes
    signature: str
    context_id: str
    correlation_id: str


@dataclass(frozen=True)
class ProcessResponse:
    """The answer to one transaction."""

    signature: str
    status: ProcessStatus
    message: str = ""
    extended_data: bytes = b""


class StateAccess:
    """State, receipt data and events of one transaction, usable until its apply ends."""

    def __init__(self, processor: "BareProcessor", context_id: str) -> None:
        self._processor = processor
        self._context_id = context_id

    def get(self, addresses: Iterable[str]) -> dict[str, bytes]:
        """The data at the given addresses. Addresses without data are left out.

        Some 1.x SDKs fail if the answer lacks an entry for an address, so that is an error here, too.
        """
        asked = list(addresses)
        fields = self._call(MessageType.TP_STATE_GET_REQUEST, wire.repeated(2, asked), 2)
        entries = dict(decode_entries(wire.get_all_bytes(fields, 1)))
        if entries.keys() != set(asked):
            raise Internal(f"asked for {sorted(asked)}, the answer has entries for {sorted(entries)}")
        return {address: data for address, data in entries.items() if data}

    def set(self, entries: Mapping[str, bytes]) -> list[str]:
        """Write all entries. Returns the addresses that were set."""
        encoded = wire.repeated(2, encode_entries(entries.items()))
        return wire.get_all_text(self._call(MessageType.TP_STATE_SET_REQUEST, encoded, 2), 1)

    def delete(self, addresses: Iterable[str]) -> list[str]:
        """Delete the entries. Returns the addresses in the answer: all, also those that were not set."""
        return wire.get_all_text(self._call(MessageType.TP_STATE_DELETE_REQUEST, wire.repeated(2, addresses), 2), 1)

    def add_receipt_data(self, data: bytes) -> None:
        self._call(MessageType.TP_RECEIPT_ADD_DATA_REQUEST, wire.present([(3, data)]), 2)

    def add_event(self, event_type: str, attributes: Iterable[tuple[str, str]] = (), data: bytes = b"") -> None:
        event = Event(event_type, tuple(attributes), data)
        self._call(MessageType.TP_EVENT_ADD_REQUEST, [(2, event.encode())], 2)

    def _call(self, kind: MessageType, fields: list[tuple[int, wire.Value]], status_field: int) -> wire.Fields:
        content = wire.encode([(1, self._context_id), *fields])
        answer = self._processor.request(kind, content)
        if answer.message_type != kind + 1:
            raise Internal(f"{kind.name} was answered with message type {answer.message_type}")
        decoded = wire.decode(answer.content)
        status = wire.get_int(decoded, status_field)
        if status == StateStatus.AUTHORIZATION_ERROR:  # receipts and events use this number for ERROR
            raise AuthorizationError(f"{kind.name} was refused")
        if status != StateStatus.OK:
            raise Internal(f"{kind.name} was answered with status {status}")
        return decoded


Apply = Callable[[ProcessRequest, StateAccess], None]


class BareProcessor:
    """Serves one family and version. The socket thread answers pings even while the apply threads are busy."""

    def __init__(
        self,
        url: str,
        family: str,
        version: str,
        namespaces: Iterable[str],
        apply: Apply,
        *,
        max_occupancy: int | None = None,
        protocol_version: int | None = 1,
        header_style: Literal["RAW", "EXPANDED"] | None = None,
        workers: int = 1,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        self.url = url
        self.family = family
        self.version = version
        self.namespaces = tuple(namespaces)
        self.max_occupancy = max_occupancy
        self.protocol_version = protocol_version
        self.header_style = header_style
        self.identity = secrets.token_hex(16).encode()
        self.registration: Registration | None = None
        self.requests: list[ProcessRequest] = []
        self.responses: list[ProcessResponse] = []
        self.failures: list[Exception] = []
        self.unexpected: list[Message] = []
        self.pings_answered = 0
        self.answer_pings = True
        self._apply = apply
        self._timeout = timeout
        self._workers = workers
        self.owner = SocketOwner(f"bare processor {family} {version}", self._on_message)
        self._jobs: SimpleQueue[ProcessRequest | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()
        self._awaited: dict[str, Future[Message]] = {}
        self._stopped = True

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def malformed(self) -> list[bytes]:
        """Received frames that were not a message."""
        return self.owner.malformed

    def start(self) -> None:
        """Connect and register. If the validator refuses, closes everything and raises RegistrationError."""
        self._stopped = False
        self.owner.connect(self.url, self.identity)
        for index in range(self._workers):
            name = f"bare processor {self.family} apply {index}"
            self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
            self._threads[-1].start()
        try:
            self.register()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Close the connection at once, without notice to the validator, as when the process dies."""
        if self._stopped:
            return
        with self._changed:
            self._stopped = True
            awaited = list(self._awaited.values())
            self._awaited.clear()
            self._changed.notify_all()
        self.owner.stop()
        for future in awaited:
            future.set_exception(StoppedError("the processor was stopped"))
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(self._timeout)
        alive = [thread.name for thread in self._threads if thread.is_alive()]
        self._threads.clear()
        if alive:
            raise TimeoutError(f"apply has not returned in {', '.join(alive)}")

    def register(self) -> Registration:
        """Register as ``start`` does. A test may register again by calling this."""
        style = 0 if self.header_style is None else int(HeaderStyle[self.header_style])
        content = wire.encode(
            [
                *wire.present([(1, self.family), (2, self.version)]),
                *wire.repeated(4, self.namespaces),
                *wire.present([(5, self.max_occupancy), (6, self.protocol_version), (7, style)]),
            ]
        )
        answer = self.request(MessageType.TP_REGISTER_REQUEST, content)
        if answer.message_type != MessageType.TP_REGISTER_RESPONSE:
            raise RegistrationError(f"registration was answered with message type {answer.message_type}")
        fields = wire.decode(answer.content)
        self.registration = Registration(wire.get_int(fields, 1), wire.get_int(fields, 2))
        if self.registration.status != Status.OK:
            raise RegistrationError(f"registration was answered with status {self.registration.status}")
        if self.registration.protocol_version != (self.protocol_version or 0):
            self.unregister()
            raise RegistrationError(f"the validator answered for protocol version {self.registration.protocol_version}")
        return self.registration

    def unregister(self) -> int:
        """Ask for no new work; transactions in progress continue. Returns the status of the answer."""
        answer = self.request(MessageType.TP_UNREGISTER_REQUEST, b"")
        if answer.message_type != MessageType.TP_UNREGISTER_RESPONSE:
            raise RegistrationError(f"unregistration was answered with message type {answer.message_type}")
        return wire.get_int(wire.decode(answer.content), 1)

    def ping(self) -> None:
        """Ping the validator. Raises TimeoutError without an answer."""
        answer = self.request(MessageType.PING_REQUEST, b"")
        if answer.message_type != MessageType.PING_RESPONSE:
            raise ConnectionError(f"a ping was answered with message type {answer.message_type}")

    def request(self, message_type: int, content: bytes) -> Message:
        """Send any message and wait for its answer. Must not run in the socket thread."""
        correlation_id = secrets.token_hex(16)
        future: Future[Message] = Future()
        with self._changed:
            if self._stopped:
                raise StoppedError("the processor is stopped")
            self._awaited[correlation_id] = future
        self.owner.send(Message(message_type, correlation_id, content))
        try:
            return future.result(self._timeout)
        finally:
            with self._changed:
                self._awaited.pop(correlation_id, None)

    def send(self, message: Message) -> None:
        """Send a message without waiting for an answer."""
        self.owner.send(message)

    def wait_for_requests(self, count: int, timeout: float = DEFAULT_TIMEOUT) -> None:
        """Wait until so many transactions have arrived since the start."""
        self._wait_until(lambda: len(self.requests) >= count, timeout, f"{count} requests")

    def wait_for_responses(self, count: int, timeout: float = DEFAULT_TIMEOUT) -> None:
        """Wait until so many transactions have been answered since the start."""
        self._wait_until(lambda: len(self.responses) >= count, timeout, f"{count} responses")

    def _wait_until(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._stopped or condition(), timeout):
                raise TimeoutError(f"no {what} in {timeout} s")
            if not condition():
                raise StoppedError("the processor was stopped")

    def _on_message(self, _identity: bytes, message: Message) -> None:
        if message.message_type == MessageType.PING_REQUEST:
            if self.answer_pings:
                self.owner.send(Message(MessageType.PING_RESPONSE, message.correlation_id))
                self.pings_answered += 1
        elif message.message_type == MessageType.TP_PROCESS_REQUEST:
            request = _read_request(message)
            with self._changed:
                self.requests.append(request)
                self._changed.notify_all()
            self._jobs.put(request)
        else:
            with self._changed:
                future = self._awaited.pop(message.correlation_id, None)
            if future is None:
                self.unexpected.append(message)
            else:
                future.set_result(message)

    def _work(self) -> None:
        while (request := self._jobs.get()) is not None:
            if self._stopped:
                continue
            response = self._run(request)
            fields: list[tuple[int, wire.Value | None]] = [
                (1, int(response.status)),
                (2, response.message),
                (3, response.extended_data),
            ]
            content = wire.encode(wire.present(fields))
            self.owner.send(Message(MessageType.TP_PROCESS_RESPONSE, request.correlation_id, content))
            with self._changed:
                self.responses.append(response)
                self._changed.notify_all()

    def _run(self, request: ProcessRequest) -> ProcessResponse:
        try:
            self._apply(request, StateAccess(self, request.context_id))
        except Invalid as error:
            return ProcessResponse(
                request.signature, ProcessStatus.INVALID_TRANSACTION, error.message, error.extended_data
            )
        except AuthorizationError as error:
            return ProcessResponse(request.signature, ProcessStatus.INVALID_TRANSACTION, str(error))
        except Internal as error:
            return ProcessResponse(request.signature, ProcessStatus.INTERNAL_ERROR, str(error))
        except Exception as error:  # every exception of apply gets an answer, and tests read ``failures``
            self.failures.append(error)
            return ProcessResponse(request.signature, ProcessStatus.INTERNAL_ERROR, repr(error))
        return ProcessResponse(request.signature, ProcessStatus.OK)


def _read_request(message: Message) -> ProcessRequest:
    fields = wire.decode(message.content)
    header_bytes, expanded = wire.get_bytes(fields, 5), wire.get_bytes(fields, 1)
    return ProcessRequest(
        header=TransactionHeader.decode(header_bytes or expanded),
        header_bytes=header_bytes,
        expanded_header=expanded,
        payload=wire.get_bytes(fields, 2),
        signature=wire.get_text(fields, 3),
        context_id=wire.get_text(fields, 4),
        correlation_id=message.correlation_id,
    )


def intkey_apply(request: ProcessRequest, state: StateAccess) -> None:
    """intkey 1.0: set, inc and dec of unsigned 32-bit values under names of 1 to 20 characters."""
    verb, name, value = _read_intkey(request.payload)
    address = intkey_address(name)
    stored = state.get([address]).get(address)
    try:
        values = {} if stored is None else cbor_map.decode_map(stored)
    except cbor_map.CborError as error:
        raise Internal(f"state at {address} is not readable: {error}") from error
    if verb == "set":
        if name in values:
            raise Invalid(f"{name} is set already")
        result = value
    else:
        current = values.get(name)
        if not isinstance(current, int):
            raise Invalid(f"{name} is not set")
        result = current + value if verb == "inc" else current - value
        if not 0 <= result <= _INTKEY_LIMIT:
            raise Invalid(f"{verb} by {value} takes {name} from {current} out of the range")
    if state.set({address: cbor_map.encode({**values, name: result}, sort_keys=True)}) != [address]:
        raise Internal(f"{address} was not set")


def _read_intkey(payload: bytes) -> tuple[str, str, int]:
    content: dict[str, cbor_map.Decoded] = {}
    with contextlib.suppress(cbor_map.CborError):
        content = cbor_map.decode_map(payload)
    if not content:
        raise Invalid("the payload is not a CBOR map of Verb, Name and Value")
    verb, name, value = content.get("Verb"), content.get("Name"), content.get("Value")
    if verb not in ("set", "inc", "dec"):
        raise Invalid(f"Verb is set, inc or dec, not {verb!r}")
    if not isinstance(name, str) or not 1 <= len(name) <= 20:
        raise Invalid(f"Name has 1 to 20 characters, unlike {name!r}")
    if not isinstance(value, int) or not 0 <= value <= _INTKEY_LIMIT:
        raise Invalid(f"Value is 0 to {_INTKEY_LIMIT}, not {value!r}")
    return str(verb), name, value
