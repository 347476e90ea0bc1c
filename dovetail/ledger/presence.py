"""The rule on addresses that are not set, as in Sawtooth 1.x: what a handler reads there, and what a validator answers.

No transaction can tell an entry without bytes from an address that is not set (ADR 22). Clients can: such an entry
counts in the state root, and stands in receipts and in lists of the state.
"""

from collections.abc import Iterable, Iterator

from dovetail.ledger.listing import Entry
from protos.state_context_pb2 import TpStateGetResponse


def as_read(value: bytes | None) -> bytes | None:
    """The value as a handler reads it: None if the address is not set, and if its entry has no bytes."""
    return value or None


def as_listed(entries: Iterator[Entry]) -> Iterator[Entry]:
    """``entries`` as a handler lists them: without those that have no bytes."""
    return (entry for entry in entries if entry[1])


def get_response(values: Iterable[tuple[str, bytes | None]], bytes_max: int) -> TpStateGetResponse | None:
    """The answer to a TP_STATE_GET: one entry for each address asked for, without data if the address is not set.

    ``values``: address and value, None if it is not set. Returns None if addresses and data exceed ``bytes_max``.
    """
    response = TpStateGetResponse(status="OK")
    size = 0
    for address, value in values:
        data = value or b""
        size += len(address) + len(data)
        if size > bytes_max:
            return None
        response.entries.add(address=address, data=data)
    return response
