"""Between the messages of a request and what a run of it did: what is read from them, checked, and put into them.

No handlers are run here, and nothing is refused but for its size: verdicts are ``processor_sdk.apply.dispatch``'s.
"""

from typing import Final

from dovetail.ledger.ids import TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.transaction import Transaction, decode_header
from processor_sdk.context import Context
from processor_sdk.errors import InvalidTransaction
from protos import packed_pb2, processor_pb2, transaction_receipt_pb2

WRITTEN_BYTES_MAX: Final = Limits().message_bytes_max - 65_536
"""How much a transaction may write, so that the message that says so is not too large for the validator."""

_FRAMING_BYTES: Final = 16
"""More than a message needs to hold one change, event or piece of receipt data."""

_OK: Final = processor_pb2.TpProcessResponse.OK
_SET: Final = transaction_receipt_pb2.StateChange.SET
_DELETE: Final = transaction_receipt_pb2.StateChange.DELETE


def transaction_of(request: processor_pb2.TpProcessRequest) -> Transaction:
    """The transaction in ``request``, in either header style (WIRE.md). Raises as ``decode_header`` does."""
    # An expanded header has lost the bytes that were signed; what stands in for them is only as good as this encoder.
    header_bytes = request.header_bytes or request.header.SerializeToString()
    return Transaction(TransactionId(request.signature), decode_header(header_bytes), header_bytes, request.payload)


def check_size(context: Context) -> None:
    """That what a run did fits in a message. Raises InvalidTransaction."""
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


def report(result: packed_pb2.PackedProcessResponse.TransactionResult, context: Context) -> None:
    """Put what a run did, which was right, into the ``result`` of its transaction."""
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
