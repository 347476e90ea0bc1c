"""The differences between a new handler's outcome and history. Pure values: reads no store, runs no handler."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple

from dovetail.ledger.ids import TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.outcome import Kept, keep
from dovetail.ledger.receipt import decode_event
from dovetail.node.handlers import place_of
from dovetail.rehearsal.history import Before, PastTransaction, changes_of
from dovetail.rehearsal.values import HEX_BYTES_SHOWN_MAX, Value, codecs_of, shown
from processor_sdk.apply.dispatch import ApplyResult
from processor_sdk.context import Context
from protos import events_pb2, processor_pb2
from protos.transaction_receipt_pb2 import TransactionReceipt

Kind = Literal[
    "invalid", "internal_error", "write_missing", "write_added", "write_changed", "events", "receipt_data"
]  # fmt: skip
"""What differs: the verdict (the new handler refuses, or ends without a verdict), a write that only history or only the
new handler has, a written value, the events, the receipt data."""

_INVALID: Final = processor_pb2.TpProcessResponse.INVALID_TRANSACTION
_EVENTS_SHOWN_MAX: Final = 8
_EVENT_CHARACTERS_SHOWN_MAX: Final = 400


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference. ``old``: the value in history; ``new``: the new handler's value; None: no value."""

    block_num: int
    batch_id: str
    transaction_id: str
    kind: Kind
    message: str = ""
    address: str = ""
    old: Value | None = None
    new: Value | None = None
    old_events: tuple[str, ...] = ()
    new_events: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of a rehearsal. ``transactions``: rehearsed ones; ``differing``: those with a difference.

    ``kinds`` counts all differences, ``differences`` holds the first of them. ``other_versions`` counts transactions of
    the family's other versions.
    """

    transactions: int = 0
    differing: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    other_versions: dict[str, int] = field(default_factory=dict)

    def plus(self, later: "Findings", differences_max: int) -> "Findings":
        """The sum of these findings and those of the following span."""
        return Findings(
            self.transactions + later.transactions,
            self.differing + later.differing,
            _sums(self.kinds, later.kinds),
            (self.differences + later.differences)[:differences_max],
            _sums(self.other_versions, later.other_versions),
        )


class Outcome(NamedTuple):
    """The outcome of a new handler's apply on a validator: a serialized receipt, or the reason why there is none."""

    kind: Literal["invalid", "internal_error"] | None
    refusal: str
    receipt: bytes


def _sums(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted((Counter(one) + Counter(other)).items()))


def outcome_of(
    past: PastTransaction, result: ApplyResult, before: Before, namespaces: tuple[str, ...], limits: Limits
) -> Outcome:
    """The outcome of ``result``. ``namespaces``: the new handler's; ``limits``: those of its future validator."""
    context = result.context
    if context is None:
        return Outcome(*failure_of(result), b"")
    transaction_id, header, _, _ = past.transaction
    kept = kept_of(transaction_id, header.family_name, header.outputs, context, before, namespaces, limits)
    return Outcome("invalid", kept, b"") if isinstance(kept, str) else Outcome(None, "", kept.receipt)


def failure_of(result: ApplyResult) -> tuple[Literal["invalid", "internal_error"], str]:
    """Kind and message of an apply that was refused or failed."""
    if result.status == _INVALID:
        return "invalid", result.message
    return "internal_error", result.message + place_of(result.error, str(Path(__file__).parent))


def kept_of(
    transaction_id: TransactionId,
    family_name: str,
    outputs: tuple[str, ...],
    context: Context,
    before: Before,
    namespaces: tuple[str, ...],
    limits: Limits,
    migrates: bool = False,
) -> Kept | str:
    """The effects that a validator keeps of an apply, or its refusal (``dovetail.ledger.outcome``)."""
    events = tuple(map(decode_event, context.events)) if context.events else ()
    data = tuple(context.receipt_data)
    return keep(
        transaction_id, family_name, outputs, namespaces, context.changes, events, data, before.get, limits, migrates
    )


def differences(past: PastTransaction, outcome: Outcome, context: Context | None) -> Iterator[Difference]:
    """All differences. ``context``: from an apply that recorded its codecs, which decode the values."""
    difference = partial(Difference, past.block_num, past.batch_id, past.transaction.id)
    if outcome.kind is not None:
        yield difference(outcome.kind, outcome.refusal)
        return
    codecs = codecs_of(context)
    old_receipt = TransactionReceipt.FromString(past.receipt)
    new_receipt = TransactionReceipt.FromString(outcome.receipt)
    old, new = changes_of(old_receipt), changes_of(new_receipt)
    for address in sorted(old.keys() | new.keys()):
        if address not in new:
            kind: Kind = "write_missing"
        elif address not in old:
            kind = "write_added"
        elif old[address] != new[address]:
            kind = "write_changed"
        else:
            continue
        yield difference(
            kind,
            _written(old, address) + "; " + _written(new, address, "the new handler"),
            address,
            shown(old.get(address), address, codecs),
            shown(new.get(address), address, codecs),
        )
    old_events, new_events = list(old_receipt.events), list(new_receipt.events)
    if old_events != new_events:
        yield difference(
            "events",
            f"history has {len(old_events)} events, the new handler {len(new_events)}",
            old_events=tuple(map(_shown_event, old_events[:_EVENTS_SHOWN_MAX])),
            new_events=tuple(map(_shown_event, new_events[:_EVENTS_SHOWN_MAX])),
        )
    old_data, new_data = list(old_receipt.data), list(new_receipt.data)
    if old_data != new_data:
        yield difference(
            "receipt_data",
            f"history has {len(old_data)} pieces of receipt data, the new handler {len(new_data)}",
            old=_first_difference(old_data, new_data),
            new=_first_difference(new_data, old_data),
        )


def _written(changes: Mapping[str, bytes | None], address: str, who: str = "history") -> str:
    if address not in changes:
        return f"{who} does not write there"
    return f"{who} removes it" if changes[address] is None else f"{who} sets it"


def _shown_event(message: events_pb2.Event) -> str:
    event = decode_event(message)
    attributes = ", ".join(f"{key}={value}" for key, value in event.attributes)
    data = f" data {event.data[:HEX_BYTES_SHOWN_MAX].hex()} ({len(event.data)} bytes)" if event.data else ""
    return f"{event.event_type} [{attributes}]{data}"[:_EVENT_CHARACTERS_SHOWN_MAX]


def _first_difference(data: list[bytes], other: list[bytes]) -> Value | None:
    """The first piece of ``data`` that differs from ``other`` at its position."""
    for place, piece in enumerate(data):
        if place >= len(other) or other[place] != piece:
            return shown(piece, "", {})
    return None
