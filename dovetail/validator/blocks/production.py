"""Block production: carries out what the engine decides, over queue, executor, processors and store.

The one place that starts and ends blocks. It is told of processors' answers, and tells which batches were settled; it
knows no clients and no sockets.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from dovetail.ledger.ids import NULL_BLOCK_ID, BatchId, TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.permitted import PERMITTED_AT, Permitted, permitted_families
from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.signing import Signer
from dovetail.validator.blocks.migrating import Migrating
from dovetail.validator.blocks.retries import Retries
from dovetail.validator.core.consensus.solo import Do, Happened, SoloEngine
from dovetail.validator.core.execution.model import Applied
from dovetail.validator.core.journal import builder, genesis
from dovetail.validator.core.journal.builder import Candidate, Parent, Verdicts
from dovetail.validator.core.journal.model import BlockCommit, InvalidBatch
from dovetail.validator.core.journal.rules import Body, begins_or_ends
from dovetail.validator.core.mempool.queue import Pending, PendingQueue
from dovetail.validator.core.state.nodes import EMPTY
from dovetail.validator.core.state.view import Changed, Stored, View
from dovetail.validator.crash_points import CrashPoint, reach
from dovetail.validator.metrics import Metrics
from dovetail.validator.processors.dispatch import dispatch
from dovetail.validator.processors.registry import (
    ProcessorAvailable,
    ProcessorEvent,
    Processors,
    ProcessorUnavailable,
    TaskAnswered,
    TaskLost,
)
from dovetail.validator.store import BlockInfo, StorageFailed, Store

_WORTH: Final = 4
"""A block that does not finish lasts so many times as long as it took to begin it, where that was not cheap."""

_CHEAP_MS: Final = 10

log = structlog.get_logger("validator.production")


class Work(NamedTuple):
    """How production gets on. ``settled``: batches so far; ``executes``: whether a block is in the making."""

    settled: int
    executes: bool


class Advanced(NamedTuple):
    """What is on disk since the last time: the batches that were settled, and the blocks.

    ``more``: a block waits to be written until the processors' answers were looked at, which execute the next.
    """

    settled: list[BatchId]
    blocks: list[BlockInfo]
    more: bool


class Production:
    """``clock_s``: seconds of a steady clock.

    While there is no chain the queue holds the genesis batches and no others: block 0 is made of all of them, or
    nothing is written.
    """

    def __init__(
        self,
        store: Store,
        queue: PendingQueue,
        processors: Processors,
        signer: Signer,
        limits: Limits,
        clock_s: Callable[[], float],
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._queue = queue
        self._processors = processors
        self._signer = signer
        self._limits = limits
        self._clock_s = clock_s
        self._metrics = metrics
        self._engine = SoloEngine()
        self._worth_ms = 0
        """How long the block in the making lasts at least, unless it finishes."""
        self._executing: Candidate | None = None
        self._built: Candidate | None = None
        self._sealed: Verdicts | None = None
        """Of the built block, until it is written."""
        self._running: dict[int, Candidate] = {}
        self._settled: list[BatchId] = []
        self._committed: list[BlockInfo] = []
        self._permitted: Permitted = None
        self._permitted_is_read = False
        """Whether that is what the head's state says."""
        self._settled_count = 0
        self._genesis_due_ms = 0
        """Block 0 is not tried again before."""
        self.genesis_refusal: str | None = None
        """Why no block 0 can be made of the genesis batches."""
        self._retries = Retries(queue, processors, limits)
        self.migrating = Migrating(store, queue, processors)

    def lacking(self) -> list[FamilyVersion]:
        """The families of pending batches that no processor is there for, in the order of their names."""
        families = {transaction.family for entry in self._queue for transaction in entry.batch.transactions}
        return sorted(family for family in families if not self._processors.has(family))

    def take(self, event: ProcessorEvent) -> None:
        """What a processor did. Answers for a block that was dropped change nothing."""
        if isinstance(event, ProcessorAvailable):
            self._queue.wake(event.family)
            if event.migrates:
                self.migrating.try_again(event.family)
        elif isinstance(event, ProcessorUnavailable):
            for family in event.migrated:
                self.migrating.try_again(family)
        elif isinstance(event, TaskAnswered):
            self._metrics.task_ended(event.task, answered=True)
            for family in event.families:
                self._queue.wake(family)
            candidate = self._running.pop(event.task.number, None)
            if candidate is not None:
                candidate.execution.complete(event.task, event.outcomes, event.namespaces)
        elif isinstance(event, TaskLost):
            self._metrics.task_ended(event.task, answered=False)
            candidate = self._running.pop(event.task.number, None)
            if candidate is not None:
                for index in candidate.execution.abandon(event.task, event.begun):
                    entry = candidate.entries[index]
                    entry.losses += event.task.alone and event.begun
                    entry.alone = entry.alone or event.begun

    def work(self) -> Work:
        """How it gets on."""
        return Work(self._settled_count, self.is_executing)

    @property
    def is_executing(self) -> bool:
        """Whether a block is in the making, and its batches at processors."""
        return self._executing is not None

    def begin(self) -> None:
        """Hand to processors what may be tried, where no block is in the making. Nothing ends here."""
        if self._executing is None and self._queue.has_ready:
            self._do(Happened.WORK_READY)

    def take_back(self, unwritten: list[Pending]) -> None:
        """The disk refused these batches: they were never accepted, and no block may hold them."""
        if self._executing is not None and self._executing.holds_any(unwritten):
            self._do(Happened.ACCEPT_FAILED)
        for entry in unwritten:
            self._queue.remove(entry)
        for entry in unwritten:
            for transaction in entry.batch.transactions:
                self._queue.wake(transaction.id)

    def advance(self, *, writes_at_once: bool = False) -> "Advanced":
        """Go as far as possible now.

        Between the seal and the write of a large block processors would run out of tasks: they get new ones there,
        unless what is sealed is to be written at once (``writes_at_once``).
        """
        more = False
        while not more:
            if self._executing is not None:
                self._dispatch(self._executing)
            if self._sealed is not None:
                self._do(Happened.SEALED)
            elif self._executing is not None:
                if not self._ends_now(self._executing):
                    break
                self._built, self._executing = self._executing, None
                reach(CrashPoint.EXECUTED)
                self._do(Happened.BUILT)
                more = (
                    not writes_at_once
                    and self._sealed is not None
                    and self._executing is not None
                    and self._executing.execution.left > 0
                )
            elif self._queue.has_ready:
                self._do(Happened.WORK_READY)
                if self._executing is None:
                    break
            else:
                break
        advanced = Advanced(self._settled, self._committed, more)
        self._settled, self._committed = [], []
        return advanced

    def _ends_now(self, candidate: Candidate) -> bool:
        """Whether the block ends here: all is done, or what is not is slow and must not hold up the others."""
        execution = candidate.execution
        if execution.finished or self._store.head is None:
            return execution.finished
        passed_ms = self._now_ms() - candidate.started_ms
        if passed_ms < self._worth_ms:
            return False
        if execution.held_up:
            return True
        late = passed_ms > self._limits.block_execution_ms_max
        return late and (execution.left < len(candidate.entries) or self._queue.has_ready)

    def tick(self) -> None:
        """Time has passed: end waits for dependencies, let back-offs and a refused disk be tried again."""
        self._do(Happened.STORAGE_TRIED_AGAIN)
        if self._executing is None and self._built is None and self._store.head is not None:
            # Nobody needs to hand anything in for a migration that is due.
            base = self._base()
            self.migrating.inject(self._body(base), base)
        if missing := self._retries.overdue(self._now_ms()):
            self._reject([builder.invalid_batch(*pair) for pair in missing], [entry for entry, _ in missing])

    def _now_ms(self) -> int:
        return int(self._clock_s() * 1000)

    def _do(self, happened: Happened) -> None:
        for effect in self._engine.step(happened):
            if effect is Do.BUILD:
                self._build()
            elif effect is Do.SEAL:
                self._seal()
            elif effect is Do.COMMIT:
                self._commit()
            else:
                self._discard()

    # Building

    def _build(self) -> None:
        """Start the next block, on top of the head and of a block that is built and not yet committed."""
        makes_genesis = self._store.head is None
        if makes_genesis and not self._may_make_genesis():
            self._do(Happened.NOTHING_BUILT)
            return
        base = self._base()
        body = self._body(base)
        self.migrating.inject(body, base)
        if not self._queue.has_ready and (self._built is None or self._built.execution.finished):
            self._do(Happened.NOTHING_BUILT)
            return
        candidate = builder.choose(
            self._queue,
            body,
            base,
            self._takes_work,
            self._limits,
            self._now_ms(),
            self._built,
        )
        cost_ms = self._now_ms() - candidate.started_ms
        self._worth_ms = min(_WORTH * cost_ms, self._limits.block_execution_ms_max) if cost_ms > _CHEAP_MS else 0
        if makes_genesis:
            self.genesis_refusal = genesis.refusal(self._queue, candidate, self._limits)
            if self.genesis_refusal is not None:
                for entry in self._queue:
                    self._queue.put_back(entry)
                self._do(Happened.NOTHING_BUILT)
                return
        if candidate.entries or candidate.refused:
            self._executing = candidate
            for number, owner in self._running.items():
                if owner is self._built:
                    self._running[number] = candidate
            self._dispatch(candidate)
        else:
            self._do(Happened.NOTHING_BUILT)

    def _may_make_genesis(self) -> bool:
        nothing_against = self._built is None and self.genesis_refusal is None and not self.lacking()
        return nothing_against and self._now_ms() >= self._genesis_due_ms

    def _takes_work(self, family: FamilyVersion) -> bool:
        """Whether a processor of ``family`` is there, and not all of them are held up since the block before."""
        if self._built is not None and not self._built.execution.finished and not self._processors.free(family):
            return False
        return self._processors.has(family)

    def _body(self, base: View) -> Body:
        """The body of the next block, which builds on the head or on the block that is built."""
        built = set(self._built_transactions())

        def committed(transaction_id: TransactionId) -> bool:
            return transaction_id in built or self._store.transaction_number(transaction_id) is not None

        def invalid(transaction_id: TransactionId) -> bool:
            return not self._queue.holds(transaction_id) and self._store.judged_invalid(transaction_id)

        head = self._store.head
        # What is built becomes a block where a batch of it applied, and only then takes a number.
        return Body((head.num + 1 if head else 0) + bool(built), self._permitted_in(base), committed, invalid)

    def _base(self) -> View:
        """The state that the next block builds on; a commit meanwhile does not change it."""
        head = self._store.head
        stored = Stored(self._store.node, head.root if head else EMPTY)
        return stored if self._built is None else Changed(stored, self._built.execution.changes)

    def _permitted_in(self, base: View) -> Permitted:
        """Which families may enter a block on ``base``; read once for as long as no block changes it."""
        if self._built is not None and PERMITTED_AT in self._built.execution.changes:
            return permitted_families(base.get)
        if not self._permitted_is_read:
            self._permitted, self._permitted_is_read = permitted_families(base.get), True
        return self._permitted

    def _built_transactions(self) -> list[TransactionId]:
        if self._built is None:
            return []
        return [
            transaction.id
            for entry, result in zip(self._built.entries, self._built.execution.results(), strict=True)
            if isinstance(result, Applied)
            for transaction in entry.batch.transactions
        ]

    def _dispatch(self, candidate: Candidate) -> None:
        for task in dispatch(candidate.execution, self._processors, self._limits.packed_transactions_max):
            self._running[task.number] = candidate
            self._metrics.task_given(task)
            reach(CrashPoint.TASKS_GIVEN)

    # Ending

    def _seal(self) -> None:
        """Hash and sign the built block, where a batch of it applied."""
        assert self._built is not None, "the engine seals what was built"
        head = self._store.head
        next_node = self._store.next_node_number
        parent = (
            Parent(head.num, head.id, head.root, next_node) if head else Parent(-1, NULL_BLOCK_ID, EMPTY, next_node)
        )
        self._sealed = builder.conclude(self._built, parent, self._store.node, self._signer)
        if self._sealed.commit is not None:
            reach(CrashPoint.SEALED)

    def _commit(self) -> None:
        """Write the sealed block, or, where no batch applied, the verdicts alone."""
        candidate, verdicts = self._built, self._sealed
        assert candidate is not None, "the engine commits what was built"
        assert verdicts is not None, "and sealed"
        self._sealed = None
        exhausted = self._retries.exhausted(verdicts.withdrawn)
        invalid = verdicts.invalid + [builder.invalid_batch(entry, verdict) for entry, verdict in exhausted]
        settled = verdicts.settled + [entry for entry, _ in exhausted]
        if self._store.head is None and (invalid or verdicts.withdrawn):
            if exhausted:
                self.genesis_refusal = genesis.judged(builder.invalid_batch(*exhausted[0]))
            elif not verdicts.withdrawn:
                self.genesis_refusal = genesis.judged(invalid[0])
            # Otherwise a processor was lost or failed, and what came behind may be invalid for want of what it left.
            self._genesis_due_ms = self._now_ms() + max(
                (self._retries.back_off_ms(*pair) for pair in verdicts.withdrawn), default=0
            )
            self._fail(candidate)
            return
        if verdicts.commit is None:
            self._built = None
            if self._reject(invalid, settled, candidate):
                self._retries.put_off(verdicts.withdrawn, self._now_ms())
            else:
                self._fail(candidate)
            return
        commit = verdicts.commit._replace(invalid=invalid, settled=builder.arrivals(settled))
        writing_s = self._clock_s()
        try:
            info = self._store.commit_block(commit)
        except StorageFailed as failure:
            log.error(
                "block not written, its batches stay pending",
                block_num=commit.block.header.block_num,
                reason=str(failure),
            )
            self._fail(candidate)
            return
        self._built = None
        self._committed.append(info)
        self._count(commit, settled, candidate.started_ms, self._clock_s() - writing_s)
        self._forget(settled, invalid, candidate)
        self._retries.put_off(verdicts.withdrawn, self._now_ms())
        if PERMITTED_AT in candidate.execution.changes:
            self._permitted_is_read = False
            self.migrating.try_all_again()
            self._queue.wake_all()
        elif begins_or_ends(info.num + 1, self._permitted_in(self._base())):
            self._queue.wake_all()
        self._do(Happened.COMMITTED)

    def _count(self, commit: BlockCommit, settled: list[Pending], started_ms: int, commit_s: float) -> None:
        invalid = {verdict.batch_id for verdict in commit.invalid}
        applied = (entry.batch for entry in settled if entry.batch.id not in invalid)
        self._metrics.block_committed(applied, (self._now_ms() - started_ms) / 1000, commit_s)
        self._metrics.judged_invalid(entry.batch for entry in settled if entry.batch.id in invalid)

    def _reject(self, invalid: list[InvalidBatch], settled: list[Pending], candidate: Candidate | None = None) -> bool:
        """Write verdicts without a block, of what ``candidate`` came to, if any; False when the disk refused."""
        if not settled:
            return True
        try:
            self._store.reject(invalid, builder.arrivals(settled))
        except StorageFailed as failure:
            log.error("verdicts not written, their batches stay pending", reason=str(failure))
            return False
        self._metrics.judged_invalid(entry.batch for entry in settled)
        self._forget(settled, invalid, candidate)
        return True

    def _forget(self, settled: list[Pending], invalid: list[InvalidBatch], candidate: Candidate | None) -> None:
        """These batches are settled on disk: whoever waits for their transactions may go on."""
        refused = {verdict.batch_id for verdict in invalid}
        at_the_door = {entry.batch.id for entry, _ in candidate.refused} if candidate else frozenset()
        for entry in settled:
            self._queue.remove(entry)
        self.migrating.settled(invalid)
        for entry in settled:
            batch_id = entry.batch.id
            for transaction in entry.batch.transactions:
                if batch_id in refused:
                    self._queue.wake_refused(transaction.id, at_the_door=batch_id in at_the_door)
                else:
                    self._queue.wake(transaction.id)
            self._settled.append(entry.batch.id)
        self._settled_count += len(settled)

    def _fail(self, built: Candidate) -> None:
        """The disk refused, or not all of the genesis applied: everything on its way goes back to the queue."""
        self._built = None
        self._put_back(built)
        self._do(Happened.COMMIT_FAILED)

    def _discard(self) -> None:
        if self._executing is not None:
            # It carries whatever the built block left at processors.
            self._executing.execution.drop()
            self._put_back(self._executing)
            self._executing = None
        self._running.clear()

    def _put_back(self, candidate: Candidate) -> None:
        for entry in candidate.entries:
            self._queue.put_back(entry)
        for entry, _ in candidate.refused:
            self._queue.put_back(entry)
