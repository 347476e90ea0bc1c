"""Where a new handler ends a transaction otherwise than history did. Values only: nothing is read or run here."""

import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple

import processor_sdk
from dovetail.rehearsal.history import Before, Happened
from dovetail.rehearsal.values import HEX_BYTES_SHOWN_MAX, Value, codecs_of, shown
from ledger.ids import TransactionId
from ledger.limits import Limits
from ledger.receipt import Receipt, decode_event, encode_receipt
from processor_sdk.context import Context
from processor_sdk.dispatch import Judgement
from protos import events_pb2, processor_pb2

Kind = Literal[
    "invalid", "internal_error", "write_missing", "write_added", "write_changed", "events", "receipt_data"
]  # fmt: skip
"""What differs: the verdict (OK in history; the new handler refuses, or ends without a verdict), a write that only
history, or only the new handler has, or that writes something else, the events, the receipt data."""

_OK: Final = processor_pb2.TpProcessResponse.OK
_INVALID: Final = processor_pb2.TpProcessResponse.INVALID_TRANSACTION
_LIMITS: Final = Limits()
_EVENTS_SHOWN_MAX: Final = 8
_EVENT_CHARACTERS_SHOWN_MAX: Final = 400
_SDK: Final = str(Path(processor_sdk.__file__).parent)


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

    ``kinds`` counts all differences, ``differences`` holds the first of them.
    """

    transactions: int = 0
    differing: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()

    def plus(self, later: "Findings", differences_max: int) -> "Findings":
        """Both, of blocks that follow each other."""
        return Findings(
            self.transactions + later.transactions,
            self.differing + later.differing,
            dict(sorted((Counter(self.kinds) + Counter(later.kinds)).items())),
            (self.differences + later.differences)[:differences_max],
        )


class Outcome(NamedTuple):
    """What a new handler did, in the form in which a receipt keeps it; ``refusal``: why it did nothing."""

    kind: Literal["invalid", "internal_error"] | None
    refusal: str
    changes: Mapping[str, bytes | None]
    events: tuple[bytes, ...]
    data: tuple[bytes, ...]


def outcome_of(happened: Happened, judgement: Judgement, before: Before) -> Outcome:
    """What the validator would make of ``judgement``: without removals of what was not there, within its limits."""
    context = judgement.context
    if context is None:
        if judgement.status == _INVALID:
            return Outcome("invalid", judgement.message, {}, (), ())
        return Outcome("internal_error", judgement.message + place_of(judgement.error), {}, (), ())
    refusal = too_large(happened.transaction.id, context)
    if refusal:
        return Outcome("invalid", refusal, {}, (), ())
    changes = context.changes
    if None in changes.values():
        changes = {
            address: value for address, value in changes.items() if value is not None or before.get(address) is not None
        }
    events = tuple([event.SerializeToString() for event in context.events])
    return Outcome(None, "", changes, events, tuple(context.receipt_data))


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


def too_large(transaction_id: TransactionId, context: Context) -> str:
    """What the validator refuses of an apply that the SDK lets pass, in its words; empty where there is nothing."""
    size = 0
    for address, value in context.changes.items():
        if value is not None:
            size += len(value)
            if len(value) > _LIMITS.state_value_bytes_max:
                return (
                    f"it wrote {len(value)} bytes at {address}, one address holds at most"
                    f" {_LIMITS.state_value_bytes_max}"
                )
    size += sum(map(len, context.receipt_data)) + sum([event.ByteSize() for event in context.events])
    if size > _LIMITS.receipt_bytes_max // 2:
        events = tuple(map(decode_event, context.events))
        receipt = Receipt(transaction_id, context.changes, events, tuple(context.receipt_data))
        size = len(encode_receipt(receipt))
        if size > _LIMITS.receipt_bytes_max:
            return f"its receipt has {size} bytes, at most {_LIMITS.receipt_bytes_max} are kept"
    return ""


def place_of(error: BaseException | None) -> str:
    """Where in the author's code ``error`` came up."""
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    theirs = [frame for frame in frames if not frame.filename.startswith(_SDK)]
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
