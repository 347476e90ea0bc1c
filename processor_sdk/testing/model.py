"""The results and exceptions of the test kit."""

from enum import StrEnum
from typing import NamedTuple

from dovetail.ledger.ids import TransactionId
from dovetail.ledger.receipt import Event, Receipt


class Verdict(StrEnum):
    """The outcome of a batch. PENDING: no verdict yet, as on a real ledger. The test kit drops the batch."""

    OK = "OK"
    INVALID = "INVALID"
    PENDING = "PENDING"


class Result(NamedTuple):
    """The outcome of one transaction or batch. Its truth value is True if the batch took effect.

    ``reason``: the validator's code for a refusal or a wait (invalid_transaction, family_not_permitted,
    duplicate_transaction, dependency_invalid, waiting_for_processor, waiting_for_dependency, waiting_for_activation).
    ``message``: the explanation. ``transaction_id``: the refused or waiting transaction. ``extended_data``: from the
    handler's exception.
    """

    verdict: Verdict
    reason: str = ""
    message: str = ""
    transaction_id: TransactionId | None = None
    extended_data: bytes = b""
    receipts: tuple[Receipt, ...] = ()
    """One for each transaction, in order. Empty unless all of them took effect."""

    def __bool__(self) -> bool:
        return self.verdict is Verdict.OK

    @property
    def changes(self) -> dict[str, bytes | None]:
        """The changes: address to new value, None if the entry was removed."""
        return {address: value for receipt in self.receipts for address, value in receipt.changes.items()}

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of the transactions, in order."""
        return tuple(event for receipt in self.receipts for event in receipt.events)

    @property
    def data(self) -> tuple[bytes, ...]:
        """The receipt data of the transactions, in order."""
        return tuple(data for receipt in self.receipts for data in receipt.data)


class Outcome(NamedTuple):
    """How one apply ended, in comparable form. ``verdict``: TpProcessResponse.Status.

    ``changes``: address to new value, None if the entry is removed. ``trace``: the traceback of an exception that is no
    verdict.
    """

    verdict: int
    message: str = ""
    extended_data: bytes = b""
    changes: dict[str, bytes | None] = {}  # noqa: RUF012 (never written: outcomes are values)
    events: tuple[Event, ...] = ()
    data: tuple[bytes, ...] = ()
    trace: str = ""


class ApplyFailed(AssertionError):
    """An apply ended without a verdict: its exception is no InvalidTransaction. The cause is chained."""


class NonDeterministic(AssertionError):
    """Two runs of one apply differ, or an apply used a forbidden resource. Nodes of a network would disagree."""


class CannotRunTwice(TypeError):
    """A second interpreter cannot create the handler, so its applies cannot run twice."""
