"""Conversions between protocol messages and an apply: its transaction, its effects, and their size limit.

``processor_sdk.apply.dispatch`` runs the handlers and gives the verdicts.
"""

import logging
from typing import Final

from dovetail.ledger.ids import TransactionId
from dovetail.ledger.limits import PROCESSOR_MESSAGE_BYTES_MAX
from dovetail.ledger.transaction import Transaction, decode_header
from processor_sdk.context import Context
from processor_sdk.errors import InvalidTransaction
from protos import packed_pb2, processor_pb2, transaction_receipt_pb2

WRITTEN_BYTES_MAX: Final = PROCESSOR_MESSAGE_BYTES_MAX - 65_536
"""The most bytes that one transaction may write, so that the answer fits in one message to the validator."""

ANSWER_BYTES_MAX: Final = PROCESSOR_MESSAGE_BYTES_MAX - 65_536
"""The most bytes of the answer to one packed request, which leaves room for its envelope."""

_FRAMING_BYTES: Final = 16
"""An upper bound on the framing of one change, event or piece of receipt data."""

_log = logging.getLogger(__name__)

_OK: Final = processor_pb2.TpProcessResponse.OK
_SET: Final = transaction_receipt_pb2.StateChange.SET
_DELETE: Final = transaction_receipt_pb2.StateChange.DELETE


def transaction_of(request: processor_pb2.TpProcessRequest) -> Transaction:
    """The transaction in ``request``, in either header style (WIRE.md). Raises as ``decode_header`` does."""
    # A parsed header no longer has its signed bytes. Encoding it again usually gives the same bytes.
    header_bytes = request.header_bytes or request.header.SerializeToString()
    return Transaction(TransactionId(request.signature), decode_header(header_bytes), header_bytes, request.payload)


def check_size(context: Context) -> None:
    """Check that the effects fit in one message. Raises InvalidTransaction."""
    # The validator closes a connection that sends a larger message, and would then retry the transaction for ever.
    # Plain loops: a generator for each sum costs more than the few changes of an apply.
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


def succeeded(status: int) -> bool:
    """Whether an answer of the validator is a success: OK, or no status at all, as the published 1.x SDKs take it."""
    # OK is 1 in every answer to a processor (WIRE.md, Messages).
    return status in (0, 1)


def encode_answer(response: packed_pb2.PackedProcessResponse) -> bytes:
    """The serialized answer. Leaves out the last extended data, then the last messages, if it would exceed one message.

    Both explain verdicts and change no state. The verdicts would be lost with the connection.
    """
    content = response.SerializeToString()
    surplus = len(content) - ANSWER_BYTES_MAX
    if surplus <= 0:
        return content
    _log.warning("explanations of verdicts are left out: the answer has %d bytes", len(content))
    failed = [result for unit in response.units for result in unit.results if result.status != _OK]
    for result in reversed(failed):
        if surplus > 0:
            surplus -= len(result.extended_data)
            result.ClearField("extended_data")
    for result in reversed(failed):
        if surplus > 0:
            surplus -= len(result.message.encode())
            result.ClearField("message")
    return response.SerializeToString()


def report(result: packed_pb2.PackedProcessResponse.TransactionResult, context: Context) -> None:
    """Write the effects of a valid apply into ``result``."""
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
