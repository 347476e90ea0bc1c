"""What the test kit says: results, and the errors of a handler that no verdict can express. Runs nothing."""

from enum import StrEnum
from typing import NamedTuple

from dovetail.ledger.ids import TransactionId
from dovetail.ledger.receipt import Event, Receipt


class Verdict(StrEnum):
    """What became of a batch. PENDING: no verdict yet, as on a real ledger; the test kit forgets the batch."""

    OK = "OK"
    INVALID = "INVALID"
    PENDING = "PENDING"


class Result(NamedTuple):
    """What became of one transaction or batch; true exactly when it took effect.

    ``reason`` is the validator's word for a refusal or a wait (invalid_transaction, family_not_permitted,
    duplicate_transaction, dependency_invalid, waiting_for_processor, waiting_for_dependency, waiting_for_activation),
    ``message`` its sentence, ``transaction_id`` and ``extended_data`` the transaction that it is about and what the
    handler gave with it.
    """

    verdict: Verdict
    reason: str = ""
    message: str = ""
    transaction_id: TransactionId | None = None
    extended_data: bytes = b""
    receipts: tuple[Receipt, ...] = ()
    """One for each transaction, in order; none unless all of them took effect."""

    def __bool__(self) -> bool:
        return self.verdict is Verdict.OK

    @property
    def changes(self) -> dict[str, bytes | None]:
        """What it changed: address to new value, None where an entry was removed."""
        return {address: value for receipt in self.receipts for address, value in receipt.changes.items()}

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of its transactions, in order."""
        return tuple(event for receipt in self.receipts for event in receipt.events)

    @property
    def data(self) -> tuple[bytes, ...]:
        """The receipt data of its transactions, in order."""
        return tuple(data for receipt in self.receipts for data in receipt.data)


class Outcome(NamedTuple):
    """How one apply ended, in comparable form. ``verdict`` is TpProcessResponse.Status.

    ``changes``: address to new value, None where what was there is removed. ``trace``: the traceback of an exception
    that is no verdict.
    """

    verdict: int
    message: str = ""
    extended_data: bytes = b""
    changes: dict[str, bytes | None] = {}  # noqa: RUF012 (never written: outcomes are values)
    events: tuple[Event, ...] = ()
    data: tuple[bytes, ...] = ()
    trace: str = ""


class ApplyFailed(AssertionError):
    """An apply ended without a verdict: it raised something else than InvalidTransaction. The cause is chained."""


class NonDeterministic(AssertionError):
    """Two runs of one apply differ, or an apply did what no apply may do. On a network, nodes would disagree."""


class CannotRunTwice(TypeError):
    """A handler that a second interpreter cannot make again, so that its applies cannot be run twice."""
