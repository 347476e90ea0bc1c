"""One batch on its way through an execution: what it finds, and what may stand of what its processors wrote.

Authorization of what comes back and merging it into the batch happen here and nowhere else. When it runs, and what
follows for others, is ``dovetail.validator.core.execution.executor``'s.
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
from dovetail.validator.core.execution.model import Rejected, Settled, TransactionOutcome, Unit, Verdict, Withdrawn
from dovetail.validator.core.state.view import Changed, View

_family_of: Final[Callable[[VerifiedTransaction], FamilyVersion]] = attrgetter("family")


class Run:
    """Its consecutive transactions of one family each, and what the finished ones left."""

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
        """Of the execution that carries it; None when it has its result, or is carried by none."""

    @property
    def route(self) -> FamilyVersion:
        return self.segments[self.position][0]

    @property
    def transactions(self) -> tuple[VerifiedTransaction, ...]:
        return self.segments[self.position][1]

    @property
    def view(self) -> View:
        """The state that its next transaction finds. Raises Settled where it is carried by no execution."""
        if self.state is None:
            raise Settled(f"batch {self.batch_id} is not being executed")
        return Changed(self.state, self.changes) if self.changes else self.state

    def merge(
        self, unit: Unit, outcomes: Sequence[TransactionOutcome], namespaces: tuple[str, ...], limits: Limits
    ) -> Rejected | Withdrawn | None:
        """Add what a unit of it wrote, and its receipts; the reason where they may not stand."""
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


class Found:
    """The state that a run finds, of whichever execution carries it: that of one before is pruned some time.

    Reading raises Settled where none does.
    """

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        self._run = run

    def get(self, address: str) -> bytes | None:
        return self._run.view.get(address)

    def under(self, prefix: str, after: str) -> Iterator[Entry]:
        return self._run.view.under(prefix, after)
