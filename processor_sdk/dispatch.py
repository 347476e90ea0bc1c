"""From a request of the validator to its answer: decodes, runs the handler, collects what it did. Always answers.

Both protocols: one transaction with state calls (Sawtooth 1.x), and packed execution (many transactions over a local
overlay). No sockets: state calls go through a ``Link`` that is handed in. Of the three catch-alls of the house, this
module holds the one around handlers.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from google.protobuf.message import DecodeError, Message

from ledger.addresses import AccessList
from ledger.ids import TransactionId
from ledger.transaction import Transaction, decode_header, decode_transaction
from processor_sdk.context import Context, Fetch
from processor_sdk.errors import AuthorizationException, InternalError, InvalidTransaction, StateUnavailable
from processor_sdk.handler import TransactionHandler
from protos import packed_pb2, processor_pb2, state_context_pb2, transaction_receipt_pb2, validator_pb2

Link = Callable[[validator_pb2.Message.MessageType, bytes], bytes]
"""Sends a state request (message type, content) to the validator and gives the content of its answer.

Raises StateUnavailable where there will be none.
"""

MESSAGE_CHARACTERS_MAX: Final = 4096

_OK: Final = processor_pb2.TpProcessResponse.OK
_SET: Final = transaction_receipt_pb2.StateChange.SET
_DELETE: Final = transaction_receipt_pb2.StateChange.DELETE

_log = logging.getLogger(__name__)


class Dispatcher:
    """Knows the handlers by the exact name and version of their family."""

    def __init__(self, handlers: Iterable[TransactionHandler]) -> None:
        """Raises ValueError where two handlers are of the same family and version."""
        self._handlers: dict[tuple[str, str], TransactionHandler] = {}
        for handler in handlers:
            family = (handler.family_name, handler.family_version)
            if family in self._handlers:
                raise ValueError(f"two handlers for the family {family[0]} {family[1]}")
            self._handlers[family] = handler

    def packed(self, content: bytes, link: Link) -> bytes:
        """A serialized PackedProcessResponse to a serialized PackedProcessRequest (``protos/packed.proto``).

        Has exactly the request's units, unless the request is not decodable: then one unit with one INTERNAL_ERROR.
        """
        response = packed_pb2.PackedProcessResponse()
        try:
            request = packed_pb2.PackedProcessRequest.FromString(content)
        except DecodeError:
            error = InternalError(f"{len(content)} bytes from the validator are no PackedProcessRequest")
            _refuse(response.units.add().results.add(), error)
            return response.SerializeToString()
        overlay = _Overlay(request, link)
        for unit in request.units:
            results = response.units.add().results
            for position, raw in enumerate(unit.transactions):
                try:
                    transaction = decode_transaction(raw)
                    readable = AccessList(transaction.header.inputs)
                    overlay.begin(position, readable)
                    context = self._apply(transaction, readable, overlay.fetch)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    _refuse(results.add(), error)
                    overlay.drop_unit()
                    break
                _report(results.add(status=_OK), context)
                overlay.unit.update(context.changes)
            overlay.end_unit(len(unit.transactions))
        return response.SerializeToString()

    def single(self, content: bytes, link: Link) -> bytes:
        """A serialized TpProcessResponse to a serialized TpProcessRequest, in either header style (WIRE.md)."""
        response = processor_pb2.TpProcessResponse()
        try:
            try:
                request = processor_pb2.TpProcessRequest.FromString(content)
            except DecodeError:
                raise InternalError(f"{len(content)} bytes from the validator are no TpProcessRequest") from None
            calls = _StateCalls(request.context_id, link)
            transaction = _transaction_of(request)
            calls.flush(self._apply(transaction, AccessList(transaction.header.inputs), calls.fetch))
            response.status = _OK
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            _refuse(response, error)
        return response.SerializeToString()

    def _apply(self, transaction: Transaction, readable: AccessList, fetch: Fetch) -> Context:
        header = transaction.header
        handler = self._handlers.get((header.family_name, header.family_version))
        if handler is None:
            raise InternalError(f"no handler here for the family {header.family_name} {header.family_version}")
        writable = readable if header.outputs == header.inputs else AccessList(header.outputs)
        context = Context(readable, writable, handler.namespaces, fetch)
        # What apply returns is checked because "async def" and "return a refusal" would otherwise pass for success.
        try:
            result: object = handler.apply(transaction, context)
            if result is not None:
                raise TypeError(f"apply of {header.family_name} returned {type(result).__name__}, not None")
        except (InvalidTransaction, StateUnavailable, KeyboardInterrupt):
            raise
        except BaseException as error:
            if context.refused is None:
                raise
            raise context.refused from error
        if context.refused is not None:
            raise context.refused
        return context


class _Overlay:
    """The state that the transactions of one packed request see: the entries, what earlier units left, their own."""

    def __init__(self, request: packed_pb2.PackedProcessRequest, link: Link) -> None:
        self._context_id = request.context_id
        self._link = link
        self._values: dict[str, bytes | None] = {entry.address: entry.data for entry in request.entries}
        self._named: Collection[str] = ()
        self._unit_start = 0
        self._position = 0
        self.unit: dict[str, bytes | None] = {}

    def begin(self, position: int, readable: AccessList) -> None:
        """The transaction at ``position`` of the current unit is the next to read."""
        self._position = position
        self._named = readable.entries

    def drop_unit(self) -> None:
        """The current unit failed: nobody sees what it wrote."""
        self.unit = {}

    def end_unit(self, transactions: int) -> None:
        """The current unit, of that many transactions, is over; later ones see what is left of it."""
        self._values.update(self.unit)
        self.unit = {}
        self._unit_start += transactions

    def fetch(self, addresses: Collection[str]) -> Mapping[str, bytes]:
        """See ``processor_sdk.context.Fetch``."""
        found: dict[str, bytes] = {}
        unknown: list[str] = []
        for address in addresses:
            if address in self.unit:
                data = self.unit[address]
            elif address in self._values:
                data = self._values[address]
            elif address in self._named:
                continue  # The request names every fully named input that holds data.
            else:
                unknown.append(address)
                continue
            if data is not None:
                found[address] = data
        if unknown:
            context_id = f"{self._context_id}:{self._unit_start + self._position}"
            fetched = _get_state(self._link, context_id, unknown)
            # Kept for the whole request: what it fetches is the state that all its units run over.
            for address in unknown:
                self._values[address] = fetched.get(address)
            found.update(fetched)
        return found


class _StateCalls:
    """The 1.x conversation of one transaction."""

    def __init__(self, context_id: str, link: Link) -> None:
        self._context_id = context_id
        self._link = link
        self._values: dict[str, bytes | None] = {}

    def fetch(self, addresses: Collection[str]) -> Mapping[str, bytes]:
        """See ``processor_sdk.context.Fetch``; asks once for each address."""
        values = self._values
        unknown = [address for address in addresses if address not in values]
        if unknown:
            fetched = _get_state(self._link, self._context_id, unknown)
            for address in unknown:
                values[address] = fetched.get(address)
        return {address: data for address in addresses if (data := values[address]) is not None}

    def flush(self, context: Context) -> None:
        """Tell the validator all that the transaction did."""
        written = {address: data for address, data in context.changes.items() if data is not None}
        removed = [address for address, data in context.changes.items() if data is None]
        if written:
            self._set(written)
        if removed:
            self._delete(removed)
        for data in context.receipt_data:
            receipt_request = state_context_pb2.TpReceiptAddDataRequest(context_id=self._context_id, data=data)
            receipt_reply = state_context_pb2.TpReceiptAddDataResponse()
            self._call(validator_pb2.Message.TP_RECEIPT_ADD_DATA_REQUEST, receipt_request, receipt_reply)
            _require_ok(receipt_reply.status, receipt_reply)
        for event in context.events:
            event_request = state_context_pb2.TpEventAddRequest(context_id=self._context_id, event=event)
            event_reply = state_context_pb2.TpEventAddResponse()
            self._call(validator_pb2.Message.TP_EVENT_ADD_REQUEST, event_request, event_reply)
            _require_ok(event_reply.status, event_reply)

    def _set(self, written: dict[str, bytes]) -> None:
        request = state_context_pb2.TpStateSetRequest(context_id=self._context_id)
        for address, data in written.items():
            request.entries.add(address=address, data=data)
        reply = state_context_pb2.TpStateSetResponse()
        self._call(validator_pb2.Message.TP_STATE_SET_REQUEST, request, reply)
        _require_authorized(reply.status, reply, "write", list(written))
        # Validators of the 1.x line answer OK and name no address when the context is already gone.
        missing = written.keys() - set(reply.addresses)
        if missing:
            raise StateUnavailable(f"the validator wrote all but {len(missing)} of {len(written)} addresses")

    def _delete(self, removed: list[str]) -> None:
        request = state_context_pb2.TpStateDeleteRequest(context_id=self._context_id, addresses=removed)
        reply = state_context_pb2.TpStateDeleteResponse()
        self._call(validator_pb2.Message.TP_STATE_DELETE_REQUEST, request, reply)
        _require_authorized(reply.status, reply, "delete", removed)

    def _call(self, message_type: validator_pb2.Message.MessageType, request: Message, reply: Message) -> None:
        _parse(reply, self._link(message_type, request.SerializeToString()))


def _get_state(link: Link, context_id: str, addresses: list[str]) -> dict[str, bytes]:
    request = state_context_pb2.TpStateGetRequest(context_id=context_id, addresses=addresses)
    reply = state_context_pb2.TpStateGetResponse()
    _parse(reply, link(validator_pb2.Message.TP_STATE_GET_REQUEST, request.SerializeToString()))
    _require_authorized(reply.status, reply, "read", addresses)
    asked = set(addresses)
    return {entry.address: entry.data for entry in reply.entries if entry.address in asked}


def _parse(reply: Message, content: bytes) -> None:
    try:
        reply.ParseFromString(content)
    except DecodeError:
        raise StateUnavailable(f"{len(content)} bytes from the validator are no {reply.DESCRIPTOR.name}") from None


def _require_authorized(status: int, reply: Message, verb: str, addresses: list[str]) -> None:
    if status == state_context_pb2.TpStateGetResponse.AUTHORIZATION_ERROR:
        raise AuthorizationException(f"the validator does not let this transaction {verb} all of {addresses[:8]}")
    _require_ok(status, reply)


def _require_ok(status: int, reply: Message) -> None:
    # OK is 1 in every state message, and so is AUTHORIZATION_ERROR 2 (WIRE.md, state_context).
    if status != state_context_pb2.TpStateGetResponse.OK:
        raise StateUnavailable(f"the validator answered {reply.DESCRIPTOR.name} with status {status}")


def _transaction_of(request: processor_pb2.TpProcessRequest) -> Transaction:
    # An expanded header has lost the bytes that were signed; what stands in for them is only as good as this encoder.
    header_bytes = request.header_bytes or request.header.SerializeToString()
    return Transaction(TransactionId(request.signature), decode_header(header_bytes), header_bytes, request.payload)


def _report(result: packed_pb2.PackedProcessResponse.TransactionResult, context: Context) -> None:
    changes = result.state_changes
    for address, data in context.changes.items():
        if data is None:
            changes.add(address=address, type=_DELETE)
        else:
            changes.add(address=address, value=data, type=_SET)
    if context.events:
        result.events.extend(context.events)
    if context.receipt_data:
        result.data.extend(context.receipt_data)


def _refuse(
    result: processor_pb2.TpProcessResponse | packed_pb2.PackedProcessResponse.TransactionResult, error: BaseException
) -> None:
    if isinstance(error, InvalidTransaction):
        result.status = processor_pb2.TpProcessResponse.INVALID_TRANSACTION
        result.message = _text(error)
        # A subclass may have put anything there.
        result.extended_data = error.extended_data if isinstance(error.extended_data, bytes) else b""
        return
    _log.error("an apply ended without a verdict", exc_info=error)
    result.status = processor_pb2.TpProcessResponse.INTERNAL_ERROR
    result.message = f"{type(error).__name__}: {_text(error)}"


def _text(error: BaseException) -> str:
    """What the exception says, short enough and encodable; an exception of a handler may fail even at that."""
    try:
        text = str(error)
    except Exception as failure:
        return f"(no message: its str() raised {type(failure).__name__})"
    return text[:MESSAGE_CHARACTERS_MAX].encode(errors="replace").decode()
