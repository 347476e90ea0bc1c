"""The rules on the result of an apply: which writes and sizes are allowed. Validator, test kit and rehearsal use them.

Reads are checked when a processor asks for them (``dovetail.ledger.access``). Handlers give the verdicts.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from dovetail.ledger.access import write_refusal
from dovetail.ledger.addresses import ADDRESS_CHARACTERS, AccessList
from dovetail.ledger.ids import TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.permitted import MIGRATED_PREFIXES_MAX
from dovetail.ledger.receipt import Event, Receipt, encode_receipt
from dovetail.ledger.settings import NAMESPACE

_ENTRY_BYTES: Final = 64
"""Bytes counted for each event, attribute and data entry beside its content, so that their number is bounded."""


class Kept(NamedTuple):
    """The effects of an apply that breaks no rule. ``receipt``: serialized."""

    changes: dict[str, bytes | None]
    receipt: bytes


def keep(
    transaction_id: TransactionId,
    family_name: str,
    outputs: tuple[str, ...],
    namespaces: tuple[str, ...],
    changes: dict[str, bytes | None],
    events: tuple[Event, ...],
    data: tuple[bytes, ...],
    before: Callable[[str], bytes | None],
    limits: Limits,
    migrates: bool = False,
) -> Kept | str:
    """The changes and the receipt that the ledger keeps of an apply, or why its transaction is invalid.

    ``family_name`` and ``outputs``: the transaction's, the latter checked by ``check_declarations``; ``namespaces``:
    the processor's; ``changes``: address to new value, None removes; ``before``: returns the value at an address before
    the apply; ``migrates``: the apply is one slice of a migration.
    """
    if changes:
        writable = AccessList(outputs)
        named = writable.entries
        value_bytes_max = limits.state_value_bytes_max
        for address, value in changes.items():
            # Most writes go to an address that the outputs name in full.
            if (
                address not in named
                or len(address) != ADDRESS_CHARACTERS
                or not address.startswith(namespaces)
                or address.startswith(NAMESPACE)
            ):
                refusal = write_refusal(family_name, address, writable, namespaces)
                if refusal is not None:
                    return refusal
            if value is not None and len(value) > value_bytes_max:
                return f"it wrote {len(value)} bytes at {address}, one address holds at most {value_bytes_max}"
        if None in changes.values():
            changes = without_idle_removals(changes, before)
    receipt = encode_receipt(Receipt(transaction_id, changes, events, data))
    size = len(receipt)
    if events or data:
        size = max(size, sum(map(event_bytes, events)) + sum(map(data_bytes, data)))
    if size > limits.receipt_bytes_max:
        refusal = f"its receipt has {size} bytes, at most {limits.receipt_bytes_max} are kept"
        if migrates:
            refusal += (
                "; have migrate write smaller values, or name finer prefixes, up to"
                f" {MIGRATED_PREFIXES_MAX}, in the member migrate of the setting, so that each slice holds less"
            )
        return refusal
    return Kept(changes, receipt)


def without_idle_removals(
    changes: dict[str, bytes | None], before: Callable[[str], bytes | None]
) -> dict[str, bytes | None]:
    """``changes`` without removals of absent entries, which change nothing."""
    return {address: value for address, value in changes.items() if value is not None or before(address) is not None}


def event_bytes(event: Event) -> int:
    """The bytes counted for an event in a receipt: about the bytes that the event takes in memory."""
    attributes = sum(len(key) + len(value) + _ENTRY_BYTES for key, value in event.attributes)
    return len(event.event_type) + len(event.data) + attributes + _ENTRY_BYTES


def data_bytes(data: bytes) -> int:
    """The bytes counted for an entry of receipt data."""
    return len(data) + _ENTRY_BYTES


def total_refusal(written_bytes: int, limits: Limits) -> str | None:
    """Why a transaction may not write ``written_bytes`` in a 1.x conversation; None if it may."""
    if written_bytes <= limits.transaction_changes_bytes_max:
        return None
    return f"it wrote {written_bytes} bytes, one transaction may write {limits.transaction_changes_bytes_max}"
