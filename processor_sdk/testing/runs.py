"""Runs transactions through the SDK's dispatch: once as a packed message, then one by one in other interpreters.

All results have one form, so that runs can be compared. ``processor_sdk.testing.ledger`` uses the first run's result.
"""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence

from dovetail.ledger.addresses import ADDRESS_CHARACTERS
from dovetail.ledger.ids import BatchId
from dovetail.ledger.limits import Limits
from dovetail.ledger.receipt import decode_event
from processor_sdk.apply.dispatch import Dispatcher
from processor_sdk.testing import capture, interpreters
from processor_sdk.testing.child import Died
from processor_sdk.testing.interpreters import Recipe
from processor_sdk.testing.link import CONTEXT_ID, StateLink
from processor_sdk.testing.model import ApplyFailed, NonDeterministic, Outcome
from processor_sdk.testing.state import View
from processor_sdk.testing.transactions import UnsignedTransaction
from protos import packed_pb2, processor_pb2, transaction_pb2
from protos.transaction_receipt_pb2 import StateChange

OK, INVALID = processor_pb2.TpProcessResponse.OK, processor_pb2.TpProcessResponse.INVALID_TRANSACTION
_SHOWN_CHARACTERS_MAX = 2_000


class Runs:
    """Applies the transactions of one family. ``recipe``: None if no second run is wanted."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        recipe: Recipe | None,
        namespaces: tuple[str, ...],
        limits: Limits,
        *,
        migrates: bool = False,
    ) -> None:
        """``migrates``: the transactions are slices of a migration."""
        self._migrates = migrates
        self._method = "migrate" if migrates else "apply"
        self._dispatcher = dispatcher
        self._recipe = recipe
        self._namespaces = namespaces
        self._limits = limits

    def packed(self, batch_id: BatchId, transactions: Sequence[UnsignedTransaction], before: View) -> list[Outcome]:
        """Apply all in one message. Returns the outcomes up to the first that is not OK. Raises ApplyFailed."""
        request = packed_pb2.PackedProcessRequest(context_id=CONTEXT_ID)
        request.units.add(transactions=[transaction.raw for transaction in transactions], batch_id=batch_id)
        named = dict.fromkeys(entry for transaction in transactions for entry in transaction.inputs)
        for address in named:
            value = before.get(address) if len(address) == ADDRESS_CHARACTERS else None
            if value is not None:
                request.entries.add(address=address, data=value)
        link = StateLink(transactions, before, self._namespaces, self._limits)
        with capture.failures() as failures:
            content = self._dispatcher.packed(request.SerializeToString(), link)
        [unit] = packed_pb2.PackedProcessResponse.FromString(content).units
        outcomes = [_packed_outcome(result) for result in unit.results]
        if outcomes[-1].verdict not in (OK, INVALID):
            raise self._failed(transactions[len(outcomes) - 1], outcomes[-1], failures)
        return outcomes

    def singly(self, batch_id: BatchId, transactions: Sequence[UnsignedTransaction], before: View) -> Iterator[Outcome]:
        """Apply each in its own message, during the iteration. Raises ApplyFailed."""
        for transaction in transactions:
            link = StateLink((transaction,), before, self._namespaces, self._limits)
            with capture.failures() as failures:
                content = self._dispatcher.single(_single_request(batch_id, transaction, self._migrates), link)
            outcome = _single_outcome(processor_pb2.TpProcessResponse.FromString(content), link)
            if outcome.verdict not in (OK, INVALID):
                raise self._failed(transaction, outcome, failures)
            yield outcome

    def check(self, batch_id: BatchId, transaction: UnsignedTransaction, before: View, outcome: Outcome) -> None:
        """Apply ``transaction`` in other interpreters. Raises NonDeterministic unless the result is ``outcome``."""
        if self._recipe is None:
            return
        links = [
            StateLink((transaction,), before, self._namespaces, self._limits) for _ in range(interpreters.INTERPRETERS)
        ]
        ended = interpreters.apply_again(self._recipe, _single_request(batch_id, transaction, self._migrates), links)
        for link, again in zip(links, ended, strict=True):
            if isinstance(again, Died) and os.WIFSIGNALED(again.status) and os.WTERMSIG(again.status) == signal.SIGALRM:
                raise NonDeterministic(
                    f"{self._named(transaction)} did not end when it ran again, within {interpreters.APPLY_S_MAX:g} s"
                )
            if isinstance(again, Died):
                raise NonDeterministic(
                    f"{self._named(transaction)} ended its interpreter ({_how(again.status)}) when it ran again"
                )
            if again.forbidden:
                raise NonDeterministic(
                    f"{self._named(transaction)} does what no {self._method} may do: {'; '.join(again.forbidden)}."
                    " Every node runs it, at another time and another place: all that it needs must be in the"
                    " transaction or in the state"
                )
            response = processor_pb2.TpProcessResponse.FromString(again.response)
            second = _single_outcome(response, link)
            differences = _differences(outcome, second)
            if differences:
                raise NonDeterministic(
                    f"{self._named(transaction)} ended differently when it ran again, with a handler freshly"
                    f" made, another clock, hash seed, time zone and chance:\n{differences}"
                    + (f"\nthe second run ended with:\n{again.trace}" if again.trace else "")
                )

    def _failed(
        self, transaction: UnsignedTransaction, outcome: Outcome, failures: Sequence[BaseException]
    ) -> ApplyFailed:
        failed = ApplyFailed(f"{self._named(transaction)} gave no verdict: {outcome.message}")
        failed.__cause__ = failures[0] if failures else None
        return failed

    def _named(self, transaction: UnsignedTransaction) -> str:
        return f"the {self._method} of transaction {transaction.id[:16]}… of {transaction.family}"


def _single_request(batch_id: BatchId, transaction: UnsignedTransaction, migrates: bool) -> bytes:
    message = transaction_pb2.Transaction.FromString(transaction.raw)
    request = processor_pb2.TpProcessRequest(
        header_bytes=message.header,
        payload=message.payload,
        signature=transaction.id,
        context_id=f"{CONTEXT_ID}:0",
        batch_id=batch_id,
        migration=migrates,
    )
    return request.SerializeToString()


def _packed_outcome(result: packed_pb2.PackedProcessResponse.TransactionResult) -> Outcome:
    if result.status != OK:
        return Outcome(result.status, result.message, result.extended_data)
    return Outcome(
        OK,
        "",
        b"",
        {change.address: change.value if change.type == StateChange.SET else None for change in result.state_changes},
        tuple(map(decode_event, result.events)),
        tuple(result.data),
    )


def _single_outcome(response: processor_pb2.TpProcessResponse, link: StateLink) -> Outcome:
    if response.status != OK:
        return Outcome(response.status, response.message, response.extended_data)
    return Outcome(OK, "", b"", link.changes, tuple(link.events), tuple(link.data))


def _differences(first: Outcome, second: Outcome) -> str:
    """The differences, one a line; empty if there is none."""
    lines = []
    for field in ("verdict", "message", "extended_data", "events", "data"):
        lines += _line(field, getattr(first, field), getattr(second, field))
    for address in sorted({*first.changes, *second.changes}):
        lines += _line(f"write at {address}", _write(first.changes, address), _write(second.changes, address))
    return "\n".join(lines)


def _line(what: str, first: object, second: object) -> list[str]:
    return [] if first == second else [f"  {what}:\n    first run:  {_shown(first)}\n    second run: {_shown(second)}"]


def _write(changes: Mapping[str, bytes | None], address: str) -> object:
    return (changes[address] if changes[address] is not None else "removed") if address in changes else "none"


def _shown(value: object) -> str:
    text = processor_pb2.TpProcessResponse.Status.Name(value) if type(value) is int else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}… ({len(text)} characters)"


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
