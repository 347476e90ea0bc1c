"""Receipts: the state changes, events and data of a committed transaction, in one canonical encoding."""

from typing import Final, NamedTuple

from dovetail.ledger.ids import TransactionId
from protos import events_pb2, transaction_receipt_pb2

_SET: Final = transaction_receipt_pb2.StateChange.SET
_DELETE: Final = transaction_receipt_pb2.StateChange.DELETE


class Event(NamedTuple):
    """An event of a transaction: a type, (key, value) attributes, and bytes that the family defines."""

    event_type: str
    attributes: tuple[tuple[str, str], ...] = ()
    data: bytes = b""


class Receipt(NamedTuple):
    """``changes``: address to its new value; None if it was removed."""

    transaction_id: TransactionId
    changes: dict[str, bytes | None]
    events: tuple[Event, ...]
    data: tuple[bytes, ...]


def encode_receipt(receipt: Receipt) -> bytes:
    """A serialized TransactionReceipt. Changes are in ascending address order, so equal receipts give equal bytes."""
    message = transaction_receipt_pb2.TransactionReceipt(transaction_id=receipt.transaction_id)
    add_change = message.state_changes.add
    for address, value in sorted(receipt.changes.items()):
        if value is None:
            add_change(address=address, type=_DELETE)
        else:
            add_change(address=address, value=value, type=_SET)
    for event in receipt.events:
        message.events.append(encode_event(event))
    if receipt.data:
        message.data.extend(receipt.data)
    return message.SerializeToString()


def encode_event(event: Event) -> events_pb2.Event:
    message = events_pb2.Event(event_type=event.event_type, data=event.data)
    for key, value in event.attributes:
        message.attributes.add(key=key, value=value)
    return message


def decode_event(message: events_pb2.Event) -> Event:
    return Event(
        message.event_type, tuple((attribute.key, attribute.value) for attribute in message.attributes), message.data
    )
