"""The values that pass between execution, the processors and the journal."""

from enum import IntEnum
from typing import NamedTuple

from dovetail.ledger.batch import VerifiedTransaction
from dovetail.ledger.ids import BatchId, TransactionId
from dovetail.ledger.receipt import Event
from dovetail.ledger.settings import FamilyVersion


class Verdict(IntEnum):
    """A processor's verdict on one transaction. The numbers equal those of TpProcessResponse."""

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


class NotExecuting(Exception):
    """A task reads state for a batch that has a result already, or whose block was dropped."""


class Unit(NamedTuple):
    """Consecutive transactions of one batch and one family. ``batch``: the batch's index in the block."""

    batch: int
    batch_id: BatchId
    transactions: tuple[VerifiedTransaction, ...]


class Task(NamedTuple):
    """Work for one processor: units that run in order, each over the writes of the earlier ones.

    ``alone``: the task has one unit, which is sent in the 1.x conversation, because its messages are small.
    ``migration``: the task is a migration, for a processor that migrates. ``follows``: the number of the processor's
    previous task, whose writes the units also see. ``shadow``: the answer is only compared, so the task is of no
    execution, and its number is 0.
    """

    number: int
    route: FamilyVersion
    units: tuple[Unit, ...]
    alone: bool = False
    migration: bool = False
    follows: int | None = None
    shadow: bool = False


class Applied(NamedTuple):
    """All transactions of a batch took effect. ``receipts``: serialized, in order."""

    receipts: tuple[bytes, ...]


class Rejected(NamedTuple):
    """A batch is INVALID for good. ``reason``: a code; ``message``: the explanation with its values."""

    reason: str
    message: str
    transaction_id: TransactionId | None = None
    extended_data: bytes = b""
    family: FamilyVersion | None = None


class Withdrawn(NamedTuple):
    """A batch got no verdict in this block and stays pending. ``reason``: a code for what the batch waits for."""

    reason: str
    family: FamilyVersion | None = None
    dependency: TransactionId | None = None
    message: str = ""


Result = Applied | Rejected | Withdrawn
