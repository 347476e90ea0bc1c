"""The values that pass between execution, the processors and the journal."""

from enum import IntEnum
from typing import NamedTuple

from dovetail.ledger.batch import VerifiedTransaction
from dovetail.ledger.ids import BatchId, TransactionId
from dovetail.ledger.receipt import Event
from dovetail.ledger.settings import FamilyVersion


class Verdict(IntEnum):
    """What a processor said of one transaction; the numbers are TpProcessResponse's."""

    OK = 1
    INVALID = 2
    ERROR = 3


class TransactionOutcome(NamedTuple):
    """A processor's answer for one transaction. ``changes``: address to new value, None removes."""

    verdict: Verdict
    message: str = ""
    extended_data: bytes = b""
    changes: dict[str, bytes | None] = {}  # noqa: RUF012 (never written: outcomes are values)
    events: tuple[Event, ...] = ()
    data: tuple[bytes, ...] = ()


class Settled(Exception):
    """What a task reads means nothing any more: its batch has a result, or its block was dropped."""


class Unit(NamedTuple):
    """The consecutive transactions of one batch that one family processes; ``batch`` is its index in the block."""

    batch: int
    batch_id: BatchId
    transactions: tuple[VerifiedTransaction, ...]


class Task(NamedTuple):
    """Work for one processor: units that run in this order, each over what the earlier ones left.

    ``alone``: its one unit must not share a message, and goes by the 1.x conversation, whose messages stay small.
    ``migration``: it is one, and goes to a processor that migrates. ``follows``: the number of the task that its
    processor has before it, and whose writes its units run over as well.
    """

    number: int
    route: FamilyVersion
    units: tuple[Unit, ...]
    alone: bool = False
    migration: bool = False
    follows: int | None = None


class Applied(NamedTuple):
    """All transactions of a batch took effect; their receipts, serialized, in order."""

    receipts: tuple[bytes, ...]


class Rejected(NamedTuple):
    """A batch is INVALID: one word, and what was wrong with the values. Final."""

    reason: str
    message: str
    transaction_id: TransactionId | None = None
    extended_data: bytes = b""
    family: FamilyVersion | None = None


class Withdrawn(NamedTuple):
    """A batch got no verdict in this block and stays pending; what it waits for, by the reason."""

    reason: str
    family: FamilyVersion | None = None
    dependency: TransactionId | None = None
    message: str = ""


Result = Applied | Rejected | Withdrawn
