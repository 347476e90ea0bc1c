"""Message numbers of the 1.x socket protocol, the envelope of every message, and the event message.

The bare processor and the bare validator share this module. Sockets, behaviour and message numbers from 1000 on, which
no 1.x peer knows, do not belong here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from tests.system.independent import protobuf_wire as wire


class MessageType(IntEnum):
    """The message types that a processor and its validator exchange."""

    TP_REGISTER_REQUEST = 1
    TP_REGISTER_RESPONSE = 2
    TP_UNREGISTER_REQUEST = 3
    TP_UNREGISTER_RESPONSE = 4
    TP_PROCESS_REQUEST = 5
    TP_PROCESS_RESPONSE = 6
    TP_STATE_GET_REQUEST = 7
    TP_STATE_GET_RESPONSE = 8
    TP_STATE_SET_REQUEST = 9
    TP_STATE_SET_RESPONSE = 10
    TP_STATE_DELETE_REQUEST = 11
    TP_STATE_DELETE_RESPONSE = 12
    TP_RECEIPT_ADD_DATA_REQUEST = 13
    TP_RECEIPT_ADD_DATA_RESPONSE = 14
    TP_EVENT_ADD_REQUEST = 15
    TP_EVENT_ADD_RESPONSE = 16
    PING_REQUEST = 700
    PING_RESPONSE = 701


class Status(IntEnum):
    """Statuses of registration, unregistration, receipt data and event answers."""

    UNSET = 0
    OK = 1
    ERROR = 2


class StateStatus(IntEnum):
    """Statuses of answers to state get, set and delete."""

    UNSET = 0
    OK = 1
    AUTHORIZATION_ERROR = 2


class ProcessStatus(IntEnum):
    """The verdict on one transaction."""

    UNSET = 0
    OK = 1
    INVALID_TRANSACTION = 2
    INTERNAL_ERROR = 3


class HeaderStyle(IntEnum):
    """The form in which a processor wants the transaction header."""

    UNSET = 0
    EXPANDED = 1
    RAW = 2


@dataclass(frozen=True)
class Message:
    """The envelope. ``message_type`` is an integer, because a peer may send a type that is unknown here."""

    message_type: int
    correlation_id: str
    content: bytes = b""

    def encode(self) -> bytes:
        return wire.encode(wire.present([(1, int(self.message_type)), (2, self.correlation_id), (3, self.content)]))

    @classmethod
    def decode(cls, data: bytes) -> "Message":
        fields = wire.decode(data)
        return cls(wire.get_int(fields, 1), wire.get_text(fields, 2), wire.get_bytes(fields, 3))


@dataclass(frozen=True)
class Event:
    """One event of a transaction."""

    event_type: str
    attributes: tuple[tuple[str, str], ...] = ()
    data: bytes = b""

    def encode(self) -> bytes:
        pairs = [wire.encode(wire.present([(1, key), (2, value)])) for key, value in self.attributes]
        return wire.encode(
            [*wire.present([(1, self.event_type)]), *wire.repeated(2, pairs), *wire.present([(3, self.data)])]
        )

    @classmethod
    def decode(cls, data: bytes) -> "Event":
        fields = wire.decode(data)
        pairs = [wire.decode(pair) for pair in wire.get_all_bytes(fields, 2)]
        attributes = tuple((wire.get_text(pair, 1), wire.get_text(pair, 2)) for pair in pairs)
        return cls(wire.get_text(fields, 1), attributes, wire.get_bytes(fields, 3))


def encode_entries(entries: Iterable[tuple[str, bytes]]) -> list[bytes]:
    """State entries as embedded messages."""
    return [wire.encode(wire.present([(1, address), (2, data)])) for address, data in entries]


def decode_entries(encoded: Iterable[bytes]) -> list[tuple[str, bytes]]:
    """State entries out of embedded messages."""
    return [(wire.get_text(fields, 1), wire.get_bytes(fields, 2)) for fields in map(wire.decode, encoded)]
