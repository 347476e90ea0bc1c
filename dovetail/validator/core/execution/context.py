"""A transaction's view of state in the 1.x conversation: access checks, and its writes so far.

In packed execution the processor keeps the writes, and the validator checks them in the answer.
"""

from collections.abc import Iterable, Iterator, Mapping

from dovetail.ledger.access import list_refusal, read_refusal, write_refusal
from dovetail.ledger.addresses import AccessList
from dovetail.ledger.batch import VerifiedTransaction
from dovetail.ledger.limits import Limits
from dovetail.ledger.listing import Entry
from dovetail.ledger.outcome import data_bytes, event_bytes, total_refusal
from dovetail.ledger.receipt import Event
from dovetail.validator.core.execution.model import TransactionOutcome, Verdict
from dovetail.validator.core.state.view import Changed, View


class Unauthorized(Exception):
    """An address lies outside the declared inputs or outputs, or outside the processor's namespaces."""


class TransactionContext:
    """``before``: the state before this transaction, including earlier transactions of its batch."""

    def __init__(
        self, transaction: VerifiedTransaction, before: View, namespaces: tuple[str, ...], limits: Limits
    ) -> None:
        self._limits = limits
        self.transaction = transaction
        self._namespaces = namespaces
        self._inputs = AccessList(transaction.inputs)
        self._outputs = AccessList(transaction.outputs)
        self._refused: str | None = None
        self._changes: dict[str, bytes | None] = {}
        self._view = Changed(before, self._changes)
        self._changes_bytes = 0
        self._events: list[Event] = []
        self._data: list[bytes] = []
        self._receipt_bytes = 0

    def get(self, addresses: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """Each address once, with its value or None, read during the iteration. Raises Unauthorized at the call."""
        wanted = dict.fromkeys(addresses)
        for address in wanted:
            self._refuse_if(read_refusal(address, self._inputs))
        return ((address, self._view.get(address)) for address in wanted)

    def under(self, prefix: str, after: str) -> Iterator[Entry]:
        """The entries under ``prefix`` after ``after``, in address order, including the transaction's writes so far.

        Raises Unauthorized if no single input covers the prefix.
        """
        self._refuse_if(list_refusal(prefix, self._inputs))
        return self._view.under(prefix, after)

    def set(self, entries: Iterable[tuple[str, bytes]]) -> list[str]:
        """Write all entries and return their addresses. Raises Unauthorized, and then writes none."""
        wanted = list(entries)
        self._check_writes(address for address, _ in wanted)
        self._change(dict(wanted))
        self._refuse_if(total_refusal(self._changes_bytes, self._limits))
        return [address for address, _ in wanted]

    def delete(self, addresses: Iterable[str]) -> list[str]:
        """Remove entries and return all ``addresses``, even those that are not set, as 1.x validators do.

        Raises Unauthorized, and then removes none.
        """
        wanted = list(addresses)
        self._check_writes(wanted)
        self._change({address: None for address in wanted if self._view.get(address) is not None})
        return wanted

    def _change(self, changes: Mapping[str, bytes | None]) -> None:
        """Apply changes and count their bytes. An overwritten value does not count: packed execution never sees it."""
        for address, data in changes.items():
            self._changes_bytes += len(data or b"") - len(self._changes.get(address) or b"")
            self._changes_bytes += 0 if address in self._changes else len(address)
        self._changes.update(changes)

    def add_event(self, event: Event) -> None:
        """Add an event to the receipt. Raises Unauthorized where the receipt would be too large."""
        self._count(event_bytes(event))
        self._events.append(event)

    def add_receipt_data(self, data: bytes) -> None:
        """Add data to the receipt. Raises Unauthorized where the receipt would be too large."""
        self._count(data_bytes(data))
        self._data.append(data)

    def _count(self, added: int) -> None:
        self._receipt_bytes += added
        if self._receipt_bytes > self._limits.receipt_bytes_max:
            most = self._limits.receipt_bytes_max
            self._refuse_if(f"its receipt has {self._receipt_bytes} bytes, at most {most} are kept")

    def outcome(self, verdict: Verdict, message: str, extended_data: bytes) -> TransactionOutcome:
        """The processor's answer with the effects. A refused access makes the transaction invalid."""
        if self._refused is not None and verdict is not Verdict.INVALID:
            return TransactionOutcome(Verdict.INVALID, self._refused)
        if verdict is not Verdict.OK:
            return TransactionOutcome(verdict, message, extended_data)
        return TransactionOutcome(verdict, "", b"", self._changes, tuple(self._events), tuple(self._data))

    def _check_writes(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            self._refuse_if(write_refusal(self.transaction.family.name, address, self._outputs, self._namespaces))

    def _refuse_if(self, message: str | None) -> None:
        if message is not None:
            self._refused = self._refused or message
            raise Unauthorized(message)
