"""From a request of the validator to its answer: decodes, runs the handler, collects what it did. Always answers.

Both protocols: one transaction with state calls (Sawtooth 1.x), and packed execution (many transactions over a local
overlay). No sockets: state calls go through a ``Link`` that is handed in. Of the three catch-alls of the house, this
module holds the one around handlers.
"""

import logging
from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.message import DecodeError

from ledger.addresses import AccessList
from ledger.ids import TransactionId
from ledger.limits import Limits
from ledger.transaction import Transaction, decode_header, decode_transaction
from processor_sdk.context import Context, StateBefore
from processor_sdk.errors import InternalError, InvalidTransaction, StateUnavailable
from processor_sdk.handler import TransactionHandler
from processor_sdk.progress import Family, Progress
from processor_sdk.state import Link, Overlay, StateCalls
from processor_sdk.transaction import with_payload
from protos import packed_pb2, processor_pb2, transaction_receipt_pb2

MESSAGE_CHARACTERS_MAX: Final = 4096
EXTENDED_BYTES_MAX: Final = 65_536
WRITTEN_BYTES_MAX: Final = Limits().message_bytes_max - 65_536
"""How much a transaction may write, so that the message that says so is not too large for the validator."""

_FRAMING_BYTES: Final = 16
"""More than a message needs to hold one change, event or piece of receipt data."""

_OK: Final = processor_pb2.TpProcessResponse.OK
_SET: Final = transaction_receipt_pb2.StateChange.SET
_DELETE: Final = transaction_receipt_pb2.StateChange.DELETE

_log = logging.getLogger(__name__)


class Dispatcher:
    """Knows the handlers by the exact name and version of their family."""

    def __init__(
        self,
        handlers: Iterable[TransactionHandler[Any]],
        progress: Progress | None = None,
        interrupt: type[KeyboardInterrupt] = KeyboardInterrupt,
    ) -> None:
        """``progress`` is told of each apply; ``interrupt`` is what ends one without an answer.

        Raises TypeError for a handler whose declaration does not fit (``TransactionHandler.check_declaration``), and
        ValueError for two handlers of the same family and version.
        """
        self._progress = progress or Progress()
        self._interrupt = interrupt
        self._handlers: dict[Family, TransactionHandler[Any]] = {}
        for handler in handlers:
            handler.check_declaration()
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
        overlay = Overlay(request, link)
        progress = self._progress
        alone = len(request.units) == 1 and len(request.units[0].transactions) == 1
        # One reading of the clock for each apply: where one ends, the next of the message begins.
        at = progress.now()
        for unit in request.units:
            results = response.units.add().results
            batch_id = unit.batch_id
            for position, raw in enumerate(unit.transactions):
                result = results.add()
                try:
                    transaction = decode_transaction(raw)
                    header = transaction.header
                    family = (header.family_name, header.family_version)
                    progress.begin(transaction.id, batch_id, family, alone, at)
                    readable = AccessList(header.inputs)
                    overlay.begin(position, readable)
                    context = self._apply(transaction, family, readable, overlay)
                    _report(result, context)
                except self._interrupt:
                    raise
                except BaseException as error:
                    result.Clear()
                    _refuse(result, error)
                    at = progress.end(result.status)
                    overlay.drop_unit()
                    break
                at = progress.end(_OK)
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
            calls = StateCalls(request.context_id, request.batch_id, link)
            transaction = _transaction_of(request)
            header = transaction.header
            family = (header.family_name, header.family_version)
            self._progress.begin(transaction.id, request.batch_id, family, True, self._progress.now())
            calls.flush(self._apply(transaction, family, AccessList(header.inputs), calls))
            response.status = _OK
        except self._interrupt:
            raise
        except BaseException as error:
            _refuse(response, error)
        self._progress.end(response.status)
        return response.SerializeToString()

    def _apply(self, transaction: Transaction, family: Family, readable: AccessList, before: StateBefore) -> Context:
        header = transaction.header
        handler = self._handlers.get(family)
        if handler is None:
            raise InternalError(f"no handler here for the family {header.family_name} {header.family_version}")
        try:
            judged = with_payload(transaction, handler.encodings)
        except InvalidTransaction:
            raise
        except Exception as error:
            encoding = header.payload_encoding or next(iter(handler.encodings))
            raise InternalError(
                f"the codec of {encoding} raised {_name(error)}: {_text(error)}; a codec refuses with NotDecodable or"
                " ValueError"
            ) from error
        writable = readable if header.outputs == header.inputs else AccessList(header.outputs)
        context = Context(readable, writable, handler.namespaces, before)
        # What apply returns is checked because "async def" and "return a refusal" would otherwise pass for success.
        try:
            result: object = handler.apply(judged, context)
            if result is not None:
                raise TypeError(f"apply of {header.family_name} returned {type(result).__name__}, not None")
        except (InvalidTransaction, StateUnavailable, self._interrupt):
            raise
        except BaseException as error:
            if context.refused is None:
                raise
            raise context.refused from error
        if context.refused is not None:
            raise context.refused
        _check_size(context)
        return context


def _transaction_of(request: processor_pb2.TpProcessRequest) -> Transaction:
    # An expanded header has lost the bytes that were signed; what stands in for them is only as good as this encoder.
    header_bytes = request.header_bytes or request.header.SerializeToString()
    return Transaction(TransactionId(request.signature), decode_header(header_bytes), header_bytes, request.payload)


def _check_size(context: Context) -> None:
    # The validator closes a connection on which more comes, and that is no answer: it would try for ever.
    # Plain loops: a generator for each sum costs more than an apply's few changes.
    size = 0
    for address, data in context.changes.items():
        size += _FRAMING_BYTES + len(address) + len(data or b"")
    for data in context.receipt_data:
        size += _FRAMING_BYTES + len(data)
    for event in context.events:
        size += _FRAMING_BYTES + event.ByteSize()
    if size > WRITTEN_BYTES_MAX:
        raise InvalidTransaction(
            f"it writes {size} bytes of state, receipt data and events; one transaction may write {WRITTEN_BYTES_MAX}"
        )


def _report(result: packed_pb2.PackedProcessResponse.TransactionResult, context: Context) -> None:
    result.status = _OK
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
        result.extended_data = _extended_data(error)
        _log.debug("invalid: %s", result.message)
        return
    _log.error("an apply ended without a verdict", exc_info=error)
    result.status = processor_pb2.TpProcessResponse.INTERNAL_ERROR
    result.message = f"{type(error).__name__}: {_text(error)}"


def _name(error: BaseException) -> str:
    """What its class is called, with its module where that says more."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    """What the exception says, short enough and encodable; an exception of a handler may fail even at that."""
    try:
        text = str(error)
    except BaseException as failure:
        return f"(no message: its str() raised {type(failure).__name__})"
    return text[:MESSAGE_CHARACTERS_MAX].encode(errors="replace").decode()


def _extended_data(error: InvalidTransaction) -> bytes:
    """As much of it as travels to the submitter; a subclass may have put anything there."""
    try:
        data: object = error.extended_data
    except BaseException:
        return b""
    return data[:EXTENDED_BYTES_MAX] if isinstance(data, bytes) else b""
