"""Applies one handler to the family's transactions in some blocks of a store, and compares the outcomes.

Runs in one process. ``dovetail.rehearsal.run`` divides the blocks among processes.
"""

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.rehearsal.differences import Difference, Findings, Outcome, differences, outcome_of
from dovetail.rehearsal.history import Before, BlockHistory, PastTransaction, Span
from dovetail.rehearsal.values import RecordingContext, RecordingMigrationContext
from dovetail.validator.store import StoreReader
from processor_sdk.apply.dispatch import ApplyResult, Dispatcher
from processor_sdk.handler import TransactionHandler
from protos import processor_pb2


class Overtime(BaseException):
    """An apply exceeded its time limit.

    Not an ``Exception``, so that a handler with ``except Exception`` cannot go on.
    """


class Rehearser:
    """Applies ``handler``, whatever its version, to transactions of ``family``.

    ``apply_timeout_ms``: the time limit of one apply. ``limits``: of the validator that will run the handler.
    """

    def __init__(
        self,
        store: StoreReader,
        handler: TransactionHandler[Any],
        family: FamilyVersion,
        apply_timeout_ms: int,
        limits: Limits,
    ) -> None:
        self.store = store
        self.limits = limits
        self.family_name = family.name
        self.namespaces = handler.namespaces
        self._family = family
        self._run_as = (handler.family_name, handler.family_version)
        self._dispatcher = Dispatcher((handler,))
        # Only transactions that differ, which are few, run a second time with recorded codecs.
        self._recording = Dispatcher((handler,), contexts=(RecordingContext, RecordingMigrationContext))
        self._clock = Clock(apply_timeout_ms)
        self._begun: BlockHistory | None = None

    def span(self, span: Span, differences_max: int) -> Findings:
        """The findings of ``span``, with at most ``differences_max`` differences. Raises StorageFailed."""
        self.store.refresh()
        transactions = differing = 0
        kinds: Counter[str] = Counter()
        others: Counter[str] = Counter()
        found: list[Difference] = []
        with self._clock.running():
            for num in range(span.first_block, span.last_block + 1):
                block = self._block(num, span.first)
                for past in block.of(self._family, span.first, span.end, others):
                    outcome = self._outcome(past, block.before)
                    transactions += 1
                    if outcome.receipt == past.receipt:
                        continue
                    differing += 1
                    for difference in self._differences(past, outcome, block.before):
                        kinds[difference.kind] += 1
                        if len(found) < differences_max:
                            found.append(difference)
                self._begun = block
        return Findings(transactions, differing, dict(kinds), tuple(found), dict(others))

    def _block(self, num: int, first: int) -> BlockHistory:
        """Block ``num``: continued, if the previous span ended in it, or else from its beginning."""
        begun, self._begun = self._begun, None
        if begun is not None and begun.num == num and begun.next <= first:
            return begun
        return BlockHistory(self.store, num)

    def _outcome(self, past: PastTransaction, before: Before) -> Outcome:
        result = self._timed(before, lambda: self._dispatcher.run_apply(self._run_as, past.transaction, before))
        return outcome_of(past, result, before, self.namespaces, self.limits)

    def _differences(self, past: PastTransaction, outcome: Outcome, before: Before) -> Iterator[Difference]:
        context = None
        if outcome.kind is None:
            context = self._timed(
                before, lambda: self._recording.run_apply(self._run_as, past.transaction, before)
            ).context
        return differences(past, outcome, context)

    def slice(self, prefixes: tuple[str, ...], before: Before) -> ApplyResult:
        """Migrate the slice under ``prefixes``, with recorded codecs. Raises StorageFailed."""
        with self._clock.running():
            return self._timed(before, lambda: self._recording.run_slice(self._run_as, prefixes, before))

    def _timed(self, before: Before, run: Callable[[], ApplyResult]) -> ApplyResult:
        try:
            self._clock.begin()
            result = run()
            self._clock.end()
        except Overtime as error:
            # The alarm was raised just outside the dispatcher, which otherwise catches it.
            self._clock.end()
            result = ApplyResult(processor_pb2.TpProcessResponse.INTERNAL_ERROR, f"Overtime: {error}", error=error)
        if before.failed is not None:
            raise before.failed
        return result


class Clock:
    """Raises Overtime in an apply that exceeds its time limit, in the main thread of a process.

    One periodic alarm every ``limit_ms`` serves all applies, because an alarm for each would cost more than most
    applies. An apply therefore ends after one to two times its limit.
    """

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        self._begun = 0
        self._running: int | None = None
        self._seen: int | None = None

    def begin(self) -> None:
        self._begun += 1
        self._running = self._begun

    def end(self) -> None:
        self._running = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Limit the applies within the block."""
        before = signal.signal(signal.SIGALRM, self._alarm)
        signal.setitimer(signal.ITIMER_REAL, self._limit_ms / 1000, self._limit_ms / 1000)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            self._running = self._seen = None

    def _alarm(self, number: int, frame: FrameType | None) -> None:
        running, seen = self._running, self._seen
        self._seen = running
        if running is not None and running == seen:
            self._seen = None
            raise Overtime(f"it took longer than {self._limit_ms} ms")
