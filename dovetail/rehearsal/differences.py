"""Where a new handler ends a transaction otherwise than history did. Values only: nothing is read or run here."""

import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple

import processor_sdk
from dovetail.ledger.ids import TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.receipt import Receipt, decode_event, encode_receipt, receipt_refusal
from dovetail.rehearsal.history import Before, Happened
from dovetail.rehearsal.values import HEX_BYTES_SHOWN_MAX, Value, codecs_of, shown
from processor_sdk.apply.dispatch import Judgement
from processor_sdk.context import Context
from protos import events_pb2, processor_pb2

Kind = Literal[
    "invalid", "internal_error", "write_missing", "write_added", "write_changed", "events", "receipt_data"
]  # fmt: skip
"""What differs: the verdict (OK in history; the new handler refuses, or ends without a verdict), a write that only
history, or only the new handler has, or that writes something else, the events, the receipt data."""

_OK: Final = processor_pb2.TpProcessResponse.OK
_INVALID: Final = processor_pb2.TpProcessResponse.INVALID_TRANSACTION
_RECEIPT_BYTES: Final = 200
_CHANGE_BYTES: Final = 100
_PIECE_BYTES: Final = 16
"""More than a receipt holds once, for each change beside its value, and for an event or a piece of data beside it."""

_EVENTS_SHOWN_MAX: Final = 8
_EVENT_CHARACTERS_SHOWN_MAX: Final = 400
_OURS: Final = (str(Path(processor_sdk.__file__).parent), str(Path(__file__).parent))


@dataclass(frozen=True, slots=True)
class Difference:
    """One of them. ``old``: what history has there, ``new``: what the new handler leaves; None: nothing."""

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
    """What a rehearsal of some blocks found. ``transactions``: rehearsed, ``differing``: of those, with a difference.

    ``kinds`` counts all differences, ``differences`` holds the first of them, ``other_versions`` counts the
    transactions of the family's other versions.
    """

    transactions: int = 0
    differing: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    other_versions: dict[str, int] = field(default_factory=dict)

    def plus(self, later: "Findings", differences_max: int) -> "Findings":
        """Both, of spans that follow each other."""
        return Findings(
            self.transactions + later.transactions,
            self.differing + later.differing,
            _sums(self.kinds, later.kinds),
            (self.differences + later.differences)[:differences_max],
            _sums(self.other_versions, later.other_versions),
        )


class Outcome(NamedTuple):
    """What a new handler did, in the form in which a receipt keeps it; ``refusal``: why it did nothing."""

    kind: Literal["invalid", "internal_error"] | None
    refusal: str
    changes: Mapping[str, bytes | None]
    events: tuple[bytes, ...]
    data: tuple[bytes, ...]


def _sums(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted((Counter(one) + Counter(other)).items()))


def outcome_of(happened: Happened, judgement: Judgement, before: Before, limits: Limits) -> Outcome:
    """What the validator would make of ``judgement``: without removals of what was not there, within its limits."""
    context = judgement.context
    if context is None:
        if judgement.status == _INVALID:
            return Outcome("invalid", judgement.message, {}, (), ())
        return Outcome("internal_error", judgement.message + place_of(judgement.error), {}, (), ())
    changes = kept_changes(context, before)
    refusal = too_large(happened.transaction.id, changes, context, limits)
    if refusal:
        return Outcome("invalid", refusal, {}, (), ())
    events = tuple([event.SerializeToString() for event in context.events])
    return Outcome(None, "", changes, events, tuple(context.receipt_data))


def kept_changes(context: Context, before: Before) -> dict[str, bytes | None]:
    """What an apply changed, without removals of what was not there."""
    changes = context.changes
    if None not in changes.values():
        return changes
    return {
        address: value for address, value in changes.items() if value is not None or before.get(address) is not None
    }


def same(happened: Happened, outcome: Outcome) -> bool:
    """Whether nothing differs."""
    if outcome.kind is not None or outcome.changes != happened.changes:
        return False
    receipt = happened.receipt
    if (receipt.events or outcome.events) and _events(happened) != outcome.events:
        return False
    return tuple(receipt.data) == outcome.data


def differences(happened: Happened, outcome: Outcome, context: Context | None) -> Iterator[Difference]:
    """What differs. ``context``: of an apply that recorded its codecs, so that values can be read."""
    difference = partial(Difference, happened.block_num, happened.batch_id, happened.transaction.id)
    if outcome.kind is not None:
        yield difference(outcome.kind, outcome.refusal)
        return
    codecs = codecs_of(context)
    old, new = happened.changes, outcome.changes
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
    old_events = _events(happened)
    if old_events != outcome.events:
        yield difference(
            "events",
            f"history has {len(old_events)} events, the new handler {len(outcome.events)}",
            old_events=_shown_events(old_events),
            new_events=_shown_events(outcome.events),
        )
    data = tuple(happened.receipt.data)
    if data != outcome.data:
        yield difference(
            "receipt_data",
            f"history has {len(data)} pieces of receipt data, the new handler {len(outcome.data)}",
            old=_first_difference(data, outcome.data),
            new=_first_difference(outcome.data, data),
        )


def _written(changes: Mapping[str, bytes | None], address: str, who: str = "history") -> str:
    if address not in changes:
        return f"{who} does not write there"
    return f"{who} removes it" if changes[address] is None else f"{who} sets it"


def too_large(
    transaction_id: TransactionId,
    changes: dict[str, bytes | None],
    context: Context,
    limits: Limits,
    migrates: bool = False,
) -> str | None:
    """What a validator refuses of an apply that the SDK lets pass, in its words; None where there is nothing.

    ``changes``: those that are kept; ``migrates``: it was a slice of a migration.
    """
    most = _RECEIPT_BYTES + _CHANGE_BYTES * len(changes)
    for address, value in changes.items():
        if value is not None:
            most += len(value)
            if len(value) > limits.state_value_bytes_max:
                return (
                    f"it wrote {len(value)} bytes at {address}, one address holds at most"
                    f" {limits.state_value_bytes_max}"
                )
    for data in context.receipt_data:
        most += _PIECE_BYTES + len(data)
    for event in context.events:
        most += _PIECE_BYTES + event.ByteSize()
    # Encoding each to measure it would cost more than most applies.
    if most <= limits.receipt_bytes_max:
        return None
    events = tuple(map(decode_event, context.events))
    receipt = encode_receipt(Receipt(transaction_id, changes, events, tuple(context.receipt_data)))
    return receipt_refusal(len(receipt), limits.receipt_bytes_max, migrates)


def place_of(error: BaseException | None) -> str:
    """Where in the author's code ``error`` came up."""
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    theirs = [frame for frame in frames if not frame.filename.startswith(_OURS)]
    return f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""


def _events(happened: Happened) -> tuple[bytes, ...]:
    return tuple([event.SerializeToString() for event in happened.receipt.events])


def _shown_events(events: tuple[bytes, ...]) -> tuple[str, ...]:
    return tuple(_shown_event(events_pb2.Event.FromString(event)) for event in events[:_EVENTS_SHOWN_MAX])


def _shown_event(message: events_pb2.Event) -> str:
    event = decode_event(message)
    attributes = ", ".join(f"{key}={value}" for key, value in event.attributes)
    data = f" data {event.data[:HEX_BYTES_SHOWN_MAX].hex()} ({len(event.data)} bytes)" if event.data else ""
    return f"{event.event_type} [{attributes}]{data}"[:_EVENT_CHARACTERS_SHOWN_MAX]


def _first_difference(data: tuple[bytes, ...], other: tuple[bytes, ...]) -> Value | None:
    """The first piece of ``data`` that is not in its place in ``other``."""
    for place, piece in enumerate(data):
        if place >= len(other) or other[place] != piece:
            return shown(piece, "", {})
    return None
