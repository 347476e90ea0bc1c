"""Compares processors of one version: runs a small sample of transactions at a second processor too.

Only transactions whose inputs are full addresses are samples, because the values that they read can be kept. An answer
of the second processor reaches no block, and its loss changes nothing. Processors without a verdict are not compared.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog

from dovetail.ledger.addresses import ADDRESS_CHARACTERS
from dovetail.ledger.batch import VerifiedTransaction
from dovetail.ledger.ids import BatchId, TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.outcome import Kept, keep
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.execution.model import NotExecuting, Task, TransactionOutcome, Unit, Verdict
from dovetail.validator.core.state.nodes import EMPTY
from dovetail.validator.core.state.view import Changed, Stored, View
from dovetail.validator.processors.assignment import ViewFor
from dovetail.validator.processors.processor import Processor
from dovetail.validator.processors.registry import Processors, TaskAnswered

OUTCOMES: Final = ("same", "different")
_AT_ONCE_MAX: Final = 16
"""The most samples that are held at one time, of all families."""

_DIFFERENCES_MAX: Final = 100
"""The most families whose difference is held. The oldest difference gives way."""

_SHOWN_CHARACTERS_MAX: Final = 200

log = structlog.get_logger("validator.comparing")


class Side(NamedTuple):
    """One of two processors that judge differently, and its answer in words."""

    identity: bytes
    build_id: str
    answer: str

    @property
    def connection_id(self) -> str:
        return self.identity.hex()


class Difference(NamedTuple):
    """A transaction that two processors of a family judged differently."""

    family: FamilyVersion
    batch_id: BatchId
    transaction_id: TransactionId
    first: Side
    second: Side


class _Judged(NamedTuple):
    """A verdict on one transaction after the ledger's rules. ``kept``: the effects, or why it is invalid."""

    kept: Kept | str
    outcome: TransactionOutcome


class _Answer(NamedTuple):
    identity: bytes
    build_id: str
    judged: list[_Judged]


class _Sample:
    """``unit``: the first transactions of a task. ``before``: the state that they access, kept when the task began."""

    def __init__(self, task: Task, unit: Unit, live: View, before: View) -> None:
        self.task = task
        self.unit = unit
        self.live = live
        self.before = before
        self.first: _Answer | None = None
        self.shadow: Task | None = None
        """The task of the second processor, while it runs."""


class Comparisons:
    """``clock_ms``: milliseconds of a monotonic clock. At most one sample of each family is held at a time."""

    def __init__(self, processors: Processors, limits: Limits, clock_ms: Callable[[], float]) -> None:
        self._processors = processors
        self._limits = limits
        self._clock_ms = clock_ms
        self._due_ms: dict[FamilyVersion, float] = {}
        """No sample of a family is taken before this time."""
        self._samples: dict[FamilyVersion, _Sample] = {}
        self._waiting: dict[FamilyVersion, _Sample] = {}
        """The samples that have their first answer, and wait for a second processor with capacity."""
        self._turn = 0
        self._differences: dict[FamilyVersion, Difference] = {}
        self.counts: Counter[str] = Counter()
        """How many samples were compared, by ``OUTCOMES``."""

    def differences(self) -> list[Difference]:
        """For each family, the newest difference between two processors that both still serve it."""
        return [found for found in self._differences.values() if self._lasts(found)]

    def given(self, task: Task, view_for: ViewFor) -> None:
        """Take a sample of a task that a processor was just given, if one is due.

        A task of a batch that ended a processor is no sample, because it would end another one.
        """
        route = task.route
        if task.alone or task.migration or task.follows is not None or not self._limits.comparisons_a_minute_max:
            return
        now_ms = self._clock_ms()
        if route in self._samples or now_ms < self._due_ms.get(route, now_ms):
            return
        self._due_ms[route] = now_ms + 60_000 / self._limits.comparisons_a_minute_max
        if len(self._samples) < _AT_ONCE_MAX and self._processors.count(route) > 1:
            sample = _sample_of(task, view_for, self._limits)
            if sample is not None:
                self._samples[route] = sample

    def answered(self, event: TaskAnswered) -> None:
        """Take the first or the second answer to a sample. To be called before its run gets the answer."""
        task = event.task
        sample = self._samples.get(task.route)
        if sample is not None and task is sample.shadow:
            self._end(sample)
            self._compare(sample, self._judge(sample, event))
        elif sample is not None and task is sample.task:
            self._take_first(sample, event)
        if self._waiting:
            self._start_waiting()

    def lost(self, task: Task) -> None:
        """A task was lost. If the sample is of this task, or the task compares the sample, the sample ends."""
        sample = self._samples.get(task.route)
        if sample is not None and (task is sample.shadow or task is sample.task):
            self._end(sample)

    def tick(self) -> None:
        """Start what waits, and forget what is over. To be called at intervals."""
        now_ms = self._clock_ms()
        self._due_ms = {route: due_ms for route, due_ms in self._due_ms.items() if due_ms > now_ms}
        self._differences = {route: found for route, found in self._differences.items() if self._lasts(found)}
        self._start_waiting()

    def _take_first(self, sample: _Sample, event: TaskAnswered) -> None:
        try:
            # A processor whose batch left its block was refused state, so its answer means nothing.
            sample.live.get("0" * ADDRESS_CHARACTERS)
        except NotExecuting:
            self._end(sample)
            return
        sample.first = self._judge(sample, event)
        held = sum(len(one.kept if isinstance(one.kept, str) else one.kept.receipt) for one in sample.first.judged)
        if not sample.first.judged or held > self._limits.comparison_bytes_max:
            self._end(sample)
        else:
            self._waiting[event.task.route] = sample

    def _judge(self, sample: _Sample, event: TaskAnswered) -> _Answer:
        outcomes = event.outcomes[0] if event.outcomes else ()
        judged = _judged(sample.unit.transactions, outcomes, event.namespaces, sample.before, self._limits)
        build_id = self._processors.build_id(event.identity, event.task.route)
        return _Answer(event.identity, build_id, judged)

    def _start_waiting(self) -> None:
        for route, sample in list(self._waiting.items()):
            assert sample.first is not None, "a sample waits with its first answer"
            others = [one for one in self._processors.free(route) if one.identity != sample.first.identity]
            if others:
                # Each has its turn, so that a processor that differs meets every other one.
                self._turn += 1
                self._start(sample, others[self._turn % len(others)])
            elif self._processors.count(route) < 2:
                self._end(sample)

    def _start(self, sample: _Sample, second: Processor) -> None:
        del self._waiting[sample.task.route]
        sample.shadow = Task(0, sample.task.route, (sample.unit,), shadow=True)
        if not self._processors.start(second, sample.shadow, lambda _: sample.before):
            self._end(sample)

    def _end(self, sample: _Sample) -> None:
        self._samples.pop(sample.task.route, None)
        self._waiting.pop(sample.task.route, None)

    def _compare(self, sample: _Sample, second: _Answer) -> None:
        first = sample.first
        assert first is not None, "the first answer comes before the second task"
        if not second.judged:
            return
        for transaction, one, other in zip(sample.unit.transactions, first.judged, second.judged, strict=False):
            if _differ(one, other):
                self.counts["different"] += 1
                sides = (
                    Side(first.identity, first.build_id, _in_words(one, other)),
                    Side(second.identity, second.build_id, _in_words(other, one)),
                )
                self._hold(Difference(sample.task.route, sample.unit.batch_id, transaction.id, *sides))
                return
        self.counts["same"] += 1

    def _hold(self, found: Difference) -> None:
        before = self._differences.pop(found.family, None)
        pair = {found.first.identity, found.second.identity}
        if before is None or {before.first.identity, before.second.identity} != pair:
            sides = {
                f"{name}_{key}": value
                for name, side in (("first", found.first), ("second", found.second))
                for key, value in (
                    ("connection", side.connection_id),
                    ("build", side.build_id),
                    ("answer", side.answer),
                )
            }
            log.error(
                "processors judge differently", family=str(found.family), batch_id=found.batch_id,
                transaction_id=found.transaction_id, **sides,
            )  # fmt: skip
        self._differences[found.family] = found
        while len(self._differences) > _DIFFERENCES_MAX:
            del self._differences[next(iter(self._differences))]

    def _lasts(self, found: Difference) -> bool:
        return all(self._processors.serves(side.identity, found.family) for side in (found.first, found.second))


def _no_node(number: int) -> bytes:
    raise AssertionError("an empty state has no nodes")


_NOTHING: Final = Stored(_no_node, EMPTY)


def _sample_of(task: Task, view_for: ViewFor, limits: Limits) -> _Sample | None:
    """The first transactions of a task that name their inputs in full, with the values that they access."""
    unit = task.units[0]
    live = view_for(unit.batch)
    values: dict[str, bytes | None] = {}
    taken: list[VerifiedTransaction] = []
    held_bytes = 0
    for transaction in unit.transactions[: limits.comparison_transactions_max]:
        if any(len(address) != ADDRESS_CHARACTERS for address in transaction.inputs):
            break
        held_bytes += len(transaction.raw)
        # The values at outputs tell whether a removal changes anything.
        for address in (*transaction.inputs, *transaction.outputs):
            if held_bytes > limits.comparison_bytes_max:
                break
            if len(address) == ADDRESS_CHARACTERS and address not in values:
                values[address] = value = live.get(address)
                held_bytes += len(address) + len(value or b"")
        if held_bytes > limits.comparison_bytes_max:
            break
        taken.append(transaction)
    if not taken:
        return None
    return _Sample(task, Unit(unit.batch, unit.batch_id, tuple(taken)), live, Changed(_NOTHING, values))


def _judged(
    transactions: Sequence[VerifiedTransaction],
    outcomes: Sequence[TransactionOutcome],
    namespaces: tuple[str, ...],
    before: View,
    limits: Limits,
) -> list[_Judged]:
    """The verdicts by the rules of the ledger, up to the first that is not OK. An internal error is no verdict."""
    changes: dict[str, bytes | None] = {}
    value_before = Changed(before, changes).get
    judged: list[_Judged] = []
    for transaction, outcome in zip(transactions, outcomes, strict=False):
        if outcome.verdict is Verdict.ERROR:
            break
        kept: Kept | str = outcome.message
        if outcome.verdict is Verdict.OK:
            kept = keep(
                transaction.id, transaction.family.name, transaction.outputs, namespaces, outcome.changes,
                outcome.events, outcome.data, value_before, limits,
            )  # fmt: skip
        judged.append(_Judged(kept, outcome))
        if isinstance(kept, str):
            break
        changes.update(kept.changes)
    return judged


def _differ(one: _Judged, other: _Judged) -> bool:
    """Whether two verdicts differ. The message of an invalid transaction is no part of its verdict."""
    if isinstance(one.kept, str) or isinstance(other.kept, str):
        return isinstance(one.kept, str) != isinstance(other.kept, str)
    return one.kept.receipt != other.kept.receipt


def _in_words(one: _Judged, other: _Judged) -> str:
    """The verdict ``one``, where it differs from ``other``."""
    if isinstance(one.kept, str):
        return f"INVALID: {one.kept}"[:_SHOWN_CHARACTERS_MAX]
    if isinstance(other.kept, str):
        return f"OK, with {len(one.kept.changes)} changes"
    mine, its = one.kept.changes, other.kept.changes
    for address in sorted(mine.keys() | its.keys()):
        if address not in mine:
            return f"OK, without a change at {address}"
        if mine[address] != its.get(address) or address not in its:
            value = mine[address]
            written = "removed" if value is None else f"{value.hex()[:_SHOWN_CHARACTERS_MAX]}, {len(value)} bytes"
            return f"OK, with {written} at {address}"
    what = ("events", one.outcome.events) if one.outcome.events != other.outcome.events else ("data", one.outcome.data)
    return f"OK, with {what[0]} {what[1]!r}"[:_SHOWN_CHARACTERS_MAX]
