"""The validator's counters and histograms: totals, also by family, and the times of blocks and tasks.

Other parts report here once for each block, task or message, never for each transaction.
``dovetail.validator.client_api.node_status`` answers requests for metrics.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.process_collector import ProcessCollector

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.execution.model import Task
from protos.validator_pb2 import Message as Envelope

NAMESPACE: Final = "dovetail_validator"

OTHER: Final = FamilyVersion("other", "")
"""The label of all families without one of their own. No processor can register it, because its version is empty."""

_BLOCK_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
_BLOCK_TRANSACTIONS: Final = (1, 5, 10, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000)
_COMMIT_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
_APPLY_SECONDS: Final = (0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.01, 0.1, 1, 10)


_TYPE_NAMES: Final = {number: name for name, number in Envelope.MessageType.items()}


def type_name(message_type: int) -> str:
    """The name of a message type. All unknown numbers share one name, because peers may send any number."""
    return _TYPE_NAMES.get(message_type, "unknown")


class DropCause(StrEnum):
    """Why a pending batch was removed without a verdict, as the metrics name it."""

    WAITED = "waited"
    OPERATOR = "operator"


@dataclass(slots=True)
class Totals:
    """Counts since the validator started. All transactions of an invalid batch count as invalid."""

    blocks_committed: int = 0
    batches_committed: int = 0
    batches_invalid: int = 0
    transactions_committed: int = 0
    transactions_invalid: int = 0


class Metrics:
    """``clock_s``: seconds of the monotonic clock by which blocks are timed too.

    ``families`` is bounded, because submitters can use any name: only registered families get a label of their own, at
    most ``limits.family_labels_max``, and the others share ``OTHER``. A family without settled batches loses its label
    with its last processor.
    """

    def __init__(self, limits: Limits, clock_s: Callable[[], float]) -> None:
        self._labels_max = limits.family_labels_max
        self._clock_s = clock_s
        self._given_s: dict[int, float] = {}
        self.totals = Totals()
        self.families: dict[FamilyVersion, Totals] = {OTHER: Totals()}
        self.dropped: Counter[DropCause] = Counter()
        """The number of batches that were removed without a verdict, by cause."""
        self.requests: Counter[str] = Counter()
        """How many messages came from peers, by the name of the message type."""

        self.registry = CollectorRegistry()
        ProcessCollector(namespace=NAMESPACE, registry=self.registry)

        def histogram(name: str, text: str, buckets: Sequence[float], labels: Sequence[str] = ()) -> Histogram:
            return Histogram(f"{NAMESPACE}_{name}", text, labels, registry=self.registry, buckets=buckets)

        text = "From choosing a block's first batch to its commit."
        self._block_seconds = histogram("block_seconds", text, _BLOCK_SECONDS)
        self._block_transactions = histogram("block_transactions", "Transactions in a block.", _BLOCK_TRANSACTIONS)
        text = "One block's write to the store, synced."
        self._commit_seconds = histogram("commit_seconds", text, _COMMIT_SECONDS)
        text = "From handing a task to a processor to its answer, divided by the task's transactions."
        self._apply_seconds = histogram("apply_seconds", text, _APPLY_SECONDS, ("family", "version"))

    def family_registered(self, family: FamilyVersion) -> None:
        """Count a registered family under its own label from now on, if one is free."""
        if len(self.families) <= self._labels_max:
            self.families.setdefault(family, Totals())

    def family_left(self, family: FamilyVersion) -> None:
        """Note that the last processor of a family is gone."""
        if family != OTHER and self.families.get(family) == Totals():
            del self.families[family]
            # Some releases of the library raise KeyError if the family was never timed.
            with suppress(KeyError):
                self._apply_seconds.remove(*family)

    def message_arrived(self, message_type: int) -> None:
        self.requests[type_name(message_type)] += 1

    def label(self, family: FamilyVersion) -> FamilyVersion:
        """The key of ``families`` under which ``family`` is counted."""
        return family if family in self.families else OTHER

    def task_given(self, task: Task) -> None:
        """Note that a processor was given ``task``."""
        self._given_s[task.number] = self._clock_s()

    def task_ended(self, task: Task, *, answered: bool) -> None:
        """Note the end of a task. The task is timed only if it was answered, not if its processor was lost."""
        given_s = self._given_s.pop(task.number, None)
        if given_s is not None and answered:
            transactions = sum(len(unit.transactions) for unit in task.units)
            child = self._apply_seconds.labels(*self.label(task.route))
            child.observe((self._clock_s() - given_s) / transactions)

    def block_committed(self, batches: Sequence[VerifiedBatch], block_s: float, commit_s: float) -> None:
        """Count a committed block, ``block_s`` after its batches were chosen. Its write took ``commit_s``."""
        before = self.totals.transactions_committed
        for totals, batch_count, transaction_count in self._counts(batches):
            totals.blocks_committed += 1
            totals.batches_committed += batch_count
            totals.transactions_committed += transaction_count
        self._block_transactions.observe(self.totals.transactions_committed - before)
        self._block_seconds.observe(block_s)
        self._commit_seconds.observe(commit_s)

    def judged_invalid(self, batches: Sequence[VerifiedBatch]) -> None:
        """Count batches whose INVALID status is on disk."""
        for totals, batch_count, transaction_count in self._counts(batches):
            totals.batches_invalid += batch_count
            totals.transactions_invalid += transaction_count

    def _counts(self, batches: Sequence[VerifiedBatch]) -> Iterator[tuple[Totals, int, int]]:
        """Each of the totals in which ``batches`` count, with the numbers of batches and transactions to add."""
        families = [[self.label(transaction.family) for transaction in batch.transactions] for batch in batches]
        of_batches = Counter(family for labels in families for family in set(labels))
        of_transactions = Counter(family for labels in families for family in labels)
        yield self.totals, len(families), of_transactions.total()
        for family, batch_count in of_batches.items():
            yield self.families[family], batch_count, of_transactions[family]
