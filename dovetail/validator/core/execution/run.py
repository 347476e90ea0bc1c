"""One batch during an execution: the state that it reads, and the effects of its finished transactions.

``Run.merge`` checks the answers of processors by ``dovetail.ledger.outcome``. The scheduling of batches is in
``dovetail.validator.core.execution.executor``.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from dovetail.ledger.batch import VerifiedBatch, VerifiedTransaction
from dovetail.ledger.limits import Limits
from dovetail.ledger.listing import Entry
from dovetail.ledger.outcome import keep
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.execution.model import NotExecuting, Rejected, TransactionOutcome, Unit, Verdict, Withdrawn
from dovetail.validator.core.state.view import Changed, View

_family_of: Final[Callable[[VerifiedTransaction], FamilyVersion]] = attrgetter("family")


class Run:
    """A batch's segments (consecutive transactions of one family) and the effects of the finished ones."""

    __slots__ = ("alone", "batch_id", "changes", "migration", "position", "receipts", "running", "segments", "state")

    def __init__(self, batch: VerifiedBatch, alone: bool, migration: bool) -> None:
        transactions = batch.transactions
        if len(transactions) == 1:
            self.segments: tuple[tuple[FamilyVersion, tuple[VerifiedTransaction, ...]], ...] = (
                (transactions[0].family, transactions),
            )
        else:
            self.segments = tuple((family, tuple(run)) for family, run in groupby(transactions, _family_of))
        self.batch_id = batch.id
        self.alone = alone
        self.migration = migration
        self.position = 0
        self.changes: dict[str, bytes | None] = {}
        self.receipts: list[bytes] = []
        self.running = False
        self.state: View | None = None
        """The state of the execution that runs the batch; None if the batch has a result or no execution."""

    @property
    def route(self) -> FamilyVersion:
        return self.segments[self.position][0]

    @property
    def transactions(self) -> tuple[VerifiedTransaction, ...]:
        return self.segments[self.position][1]

    @property
    def view(self) -> View:
        """The state before the batch's next transaction. Raises NotExecuting if no execution runs the batch."""
        if self.state is None:
            raise NotExecuting(f"batch {self.batch_id} is not being executed")
        return Changed(self.state, self.changes) if self.changes else self.state

    def merge(
        self, unit: Unit, outcomes: Sequence[TransactionOutcome], namespaces: tuple[str, ...], limits: Limits
    ) -> Rejected | Withdrawn | None:
        """Add the effects of a unit. If they break a rule, add none and return the result of the batch."""
        changes = dict(self.changes)
        before = Changed(self.view, changes).get
        receipts = []
        for transaction, outcome in zip(unit.transactions, outcomes, strict=False):
            if outcome.verdict is not Verdict.OK:
                if outcome.verdict is Verdict.INVALID:
                    return Rejected("invalid_transaction", outcome.message, transaction.id, outcome.extended_data)
                return Withdrawn("internal_error", transaction.family, message=outcome.message)
            kept = keep(
                transaction.id,
                transaction.family.name,
                transaction.outputs,
                namespaces,
                outcome.changes,
                outcome.events,
                outcome.data,
                before,
                limits,
                self.migration,
            )
            if isinstance(kept, str):
                return Rejected("invalid_transaction", kept, transaction.id)
            receipts.append(kept.receipt)
            changes.update(kept.changes)
        if len(outcomes) != len(unit.transactions):
            message = f"its processor answered {len(outcomes)} of {len(unit.transactions)} transactions"
            return Withdrawn("internal_error", unit.transactions[0].family, message=message)
        self.changes = changes
        self.receipts += receipts
        return None


class BatchView:
    """The state before a batch's next transaction, always read through the execution that runs the batch now.

    The state of an earlier execution may be pruned. Reads raise NotExecuting if no execution runs the batch.
    """

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        self._run = run

    def get(self, address: str) -> bytes | None:
        return self._run.view.get(address)

    def under(self, prefix: str, after: str) -> Iterator[Entry]:
        return self._run.view.under(prefix, after)
