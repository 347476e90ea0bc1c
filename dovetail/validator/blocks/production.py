"""Block production: carries out the engine's decisions, with the queue, block runs, processors and the store.

Only this module starts and ends blocks. It handles the events of processors, and reports which batches were settled.
Clients and sockets do not belong here.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import structlog

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.block import Consensus, decode_block_header, decode_consensus
from dovetail.ledger.errors import NotDecodable
from dovetail.ledger.ids import NULL_BLOCK_ID, BatchId, TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.permitted import PERMITTED_AT, Permitted, permitted_families
from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.signing import Signer
from dovetail.validator.blocks.driver import Driver
from dovetail.validator.blocks.given import GivenRun
from dovetail.validator.blocks.migrating import Migrating
from dovetail.validator.blocks.remembered import Remembered
from dovetail.validator.blocks.retries import Retries
from dovetail.validator.blocks.settling import Settling
from dovetail.validator.core.consensus import engine as consensus
from dovetail.validator.core.execution.model import Applied, Rejected, Withdrawn
from dovetail.validator.core.journal import genesis, proposing
from dovetail.validator.core.journal.block_run import BlockRun, Concluded
from dovetail.validator.core.journal.model import invalid_batch
from dovetail.validator.core.journal.proposing import Candidate
from dovetail.validator.core.journal.rules import Body, begins_or_ends, check_given
from dovetail.validator.core.journal.sealing import GivenSeal, OwnSeal, Parent, WrongSeal, seal_of
from dovetail.validator.core.mempool.queue import Pending, PendingQueue, Reason
from dovetail.validator.core.state.nodes import EMPTY
from dovetail.validator.core.state.view import Changed, Stored, View
from dovetail.validator.crash_points import CrashPoint, reach
from dovetail.validator.metrics import DropCause, Metrics
from dovetail.validator.processors.comparing import Comparisons
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
"""An unfinished proposal stays open at least this many times as long as it took to choose its batches, if choosing took
longer than _CHEAP_MS."""

_CHEAP_MS: Final = 10

log = structlog.get_logger("validator.production")


class Work(NamedTuple):
    """Progress of block production.

    ``settled``: how many batches were settled so far. ``executes``: whether a block is being run. ``lacks``: the
    families whose processors a decided block waits for.
    """

    settled: int
    executes: bool
    lacks: tuple[FamilyVersion, ...] = ()


class Advanced(NamedTuple):
    """The settled batches and the blocks that reached the disk since the last call.

    ``more``: a sealed block is not written yet, because the processors' answers for the next block are read first.
    """

    settled: list[BatchId]
    blocks: list[BlockInfo]
    more: bool


class _Ready(NamedTuple):
    """A proposal that has run here and was checked or sealed, with everything that its commit needs."""

    proposal: consensus.Proposal
    run: BlockRun
    concluded: Concluded
    started_ms: int
    entries: Sequence[Pending] = ()
    """For a proposal of this node: its pending batches, one for each batch in ``run``."""


class Production:
    """``send`` sends the engine's messages to its network. ``clock_s``: seconds of a steady clock. ``time_ms``:
    milliseconds since 1970-01-01 UTC.

    While there is no chain, the queue holds the genesis batches and no others: block 0 is made of all of them, or
    nothing is written.
    """

    def __init__(
        self,
        store: Store,
        queue: PendingQueue,
        processors: Processors,
        engine: consensus.Engine,
        send: Callable[[object], None],
        signer: Signer,
        limits: Limits,
        clock_s: Callable[[], float],
        time_ms: Callable[[], int],
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._queue = queue
        self._processors = processors
        self._engine = engine
        self._signer = signer
        self._limits = limits
        self._clock_s = clock_s
        self._time_ms = time_ms
        self._metrics = metrics
        self._send = send
        self._driver = Driver(processors, limits.packed_transactions_max)
        self._open_ms_min = 0
        """The least time for which ``_proposing`` stays open, unless it finishes earlier."""
        self._proposing: Candidate | None = None
        """The proposal of this node that is being run."""
        self._proposing_height = 0
        self._built: Candidate | None = None
        """The proposal of this node that has run and is not written yet. The next one builds on it."""
        self._built_ids: set[TransactionId] = set()
        """The transactions of ``_built`` that applied."""
        self._given: GivenRun | None = None
        """The proposal of another node, or the decided proposal, that is being run."""
        self._ready: _Ready | None = None
        self._sealed: consensus.Proposal | None = None
        """The proposal of this node for which the engine gets the event ``Proposed`` next."""
        self._permitted: Permitted = None
        self._permitted_is_read = False
        """Whether ``_permitted`` is the setting in the head's state."""
        self._genesis_due_ms = 0
        """Block 0 is not tried again before this time."""
        self.genesis_refusal: str | None = None
        """Why no block 0 can be made of the genesis batches."""
        self._head_time_ms = _time_of(store.head)
        self._retries = Retries(queue, processors, limits, gives_up=engine.alone)
        self._remembered = Remembered(store, queue, limits, processors.has, clock_s)
        self.migrating = Migrating(store, queue, processors)
        self.comparisons = Comparisons(processors, limits, lambda: clock_s() * 1000)
        self._settling = Settling(store, queue, self.migrating, metrics, clock_s)

    def lacking(self) -> list[FamilyVersion]:
        """The families of pending batches that have no processor, in the order of their names."""
        families = {transaction.family for entry in self._queue for transaction in entry.batch.transactions}
        return sorted(family for family in families if not self._processors.has(family))

    def on_processor_event(self, event: ProcessorEvent) -> None:
        """Handle what a processor did. Answers for a dropped run change nothing."""
        if isinstance(event, ProcessorAvailable):
            self._queue.wake(event.family)
            self._remembered.serve(event.family)
            if event.migrates:
                self.migrating.try_again(event.family)
        elif isinstance(event, ProcessorUnavailable):
            for family in event.migrated:
                self.migrating.try_again(family)
        elif isinstance(event, TaskAnswered):
            self.comparisons.answered(event)
            self._metrics.task_ended(event.task, answered=True)
            for family in event.families:
                self._queue.wake(family)
            self._driver.complete(event)
        elif isinstance(event, TaskLost):
            self.comparisons.lost(event.task)
            self._metrics.task_ended(event.task, answered=False)
            lost = self._driver.abandon(event)
            if lost is not None and self._proposing is not None and lost[0] is self._proposing.run:
                for index in lost[1]:
                    entry = self._proposing.entries[index]
                    entry.losses += event.task.alone and event.begun
                    entry.alone = entry.alone or event.begun

    def receive(self, message: object) -> None:
        """Hand the engine a message from its network, and carry out the resulting effects."""
        self._step(consensus.Received(message))

    def work(self) -> Work:
        """The progress so far."""
        lacks = self._given.lacks(self._processors) if self._given is not None else ()
        return Work(self._settling.count, self._proposing is not None or self._given is not None, lacks)

    def advance(self) -> Advanced:
        """Go as far as possible now.

        Writing a large block takes long, and processors would run out of tasks. So they get new ones before the write.
        """
        more = False
        while not more:
            if self._proposing is not None:
                self._dispatch(self._proposing.run)
            if self._sealed is not None:
                proposal, self._sealed = self._sealed, None
                self._step(consensus.Proposed(proposal))
            elif self._given is not None:
                if not self._advance_given(self._given):
                    break
            elif self._proposing is not None:
                # A proposal that builds on ``_built`` ends only after ``_built`` is written.
                if self._built is not None or not self._ends_now(self._proposing):
                    break
                self._end_proposing(self._proposing)
                more = self._sealed is not None and self._proposing is not None and self._proposing.run.left > 0
            elif self._queue.has_ready:
                self._step(consensus.WorkReady())
                if self._proposing is None:
                    break
            else:
                break
        return Advanced(*self._settling.collect(), more)

    def tick(self) -> None:
        """End overdue waits for dependencies, and try again after back-offs and refused writes. To be called at
        intervals."""
        self._step(consensus.StorageRetry())
        self.comparisons.tick()
        if self._proposing is None and self._built is None and self._given is None and self._store.head is not None:
            # A migration that is due needs no batch of a client to start.
            base = self._base()
            self.migrating.inject(self._body(base), base)
        missing = self._retries.overdue(self._now_ms())
        if missing and self._engine.alone:
            self._settling.reject(
                [invalid_batch(entry.batch, verdict) for entry, verdict in missing],
                [entry.batch for entry, _ in missing],
            )
        overdue = self._remembered.tick() if self._store.head is not None else []
        if overdue:
            # No verdict: this depends on the processors and the clock of one node.
            self.drop(overdue, DropCause.WAITED, f"it was pending for {self._limits.pending_wait_s_max} s")

    def would_wait(self, batches: Iterable[VerifiedBatch]) -> list[VerifiedBatch]:
        """The new batches that no block could run now: a processor, an activation or a transaction is missing.

        A transaction is not missing if a pending batch that waits for nothing holds it. Raises StorageFailed.
        """
        body = self._body(self._base())
        waiting: list[VerifiedBatch] = []
        for batch in batches:
            verdict = body.check(batch)
            if isinstance(verdict, Rejected):
                continue
            held = self._queue.holder(verdict.dependency) if verdict is not None and verdict.dependency else None
            can_run = verdict is None or (held is not None and held.reason in (Reason.QUEUED, Reason.EXECUTING))
            if can_run and all(self._processors.has(transaction.family) for transaction in batch.transactions):
                if verdict is None:
                    body.include(batch)
            else:
                waiting.append(batch)
        return waiting

    def drop(self, entries: list[Pending], cause: DropCause, why: str) -> bool:
        """Remove batches of ``PendingQueue.droppable`` from queue and store without a verdict.

        ``why``: the reason in words, for the log. False if the write failed, and then nothing has changed.
        """
        return self._settling.drop(entries, cause, why)

    def _now_ms(self) -> int:
        return int(self._clock_s() * 1000)

    def _step(self, event: consensus.Event) -> None:
        for effect in self._engine.step(event):
            self._carry_out(effect)

    def _carry_out(self, effect: consensus.Effect) -> None:
        match effect:
            case consensus.Propose(height):
                self._propose(height)
            case consensus.SealProposal(height):
                self._seal(height)
            case consensus.Process(proposal):
                self._process(proposal)
            case consensus.Finalize(proposal):
                self._finalize(proposal)
            case consensus.Commit(height):
                self._commit(height)
            case consensus.Discard():
                self._discard()
            case consensus.Send(message):
                self._send(message)

    # Proposing

    def _propose(self, height: int) -> None:
        """Start this node's next proposal. It builds on ``_built`` if there is one, else on the head."""
        makes_genesis = self._store.head is None
        if makes_genesis and not self._may_make_genesis():
            self._step(consensus.NothingProposed(height))
            return
        base = self._base()
        body = self._body(base)
        self.migrating.inject(body, base)
        if not self._queue.has_ready and (self._built is None or self._built.run.finished):
            self._step(consensus.NothingProposed(height))
            return
        candidate = proposing.choose(
            self._queue, body, base, self._has_processor, self._limits, self._now_ms(), self._built
        )
        cost_ms = self._now_ms() - candidate.started_ms
        self._open_ms_min = min(_WORTH * cost_ms, self._limits.block_execution_ms_max) if cost_ms > _CHEAP_MS else 0
        if makes_genesis:
            self.genesis_refusal = genesis.refusal(self._queue, candidate, self._limits)
            if self.genesis_refusal is not None:
                for entry in self._queue:
                    self._queue.put_back(entry)
                self._step(consensus.NothingProposed(height))
                return
        if candidate.entries:
            self._proposing, self._proposing_height = candidate, height
            if self._built is not None:
                self._driver.adopt(self._built.run, candidate.run)
            self._dispatch(candidate.run)
        else:
            self._step(consensus.NothingProposed(height))

    def _may_make_genesis(self) -> bool:
        nothing_against = self._built is None and self.genesis_refusal is None and not self.lacking()
        return nothing_against and self._now_ms() >= self._genesis_due_ms

    def _has_processor(self, family: FamilyVersion) -> bool:
        """Whether ``family`` has a processor, and a free one if the previous proposal still has running tasks."""
        if self._built is not None and not self._built.run.finished and not self._processors.free(family):
            return False
        return self._processors.has(family)

    def _ends_now(self, candidate: Candidate) -> bool:
        """Whether a proposal ends now: all its batches are done, or the slow ones must not hold up other batches."""
        run = candidate.run
        if run.finished or self._store.head is None:
            return run.finished
        passed_ms = self._now_ms() - candidate.started_ms
        if passed_ms < self._open_ms_min:
            return False
        if run.only_carried_tasks_run:
            return True
        late = passed_ms > self._limits.block_execution_ms_max
        return late and (run.left < len(run.batches) - len(run.refused) or self._queue.has_ready)

    def _end_proposing(self, candidate: Candidate) -> None:
        self._built, self._proposing = candidate, None
        run = candidate.run
        self._built_ids = {
            transaction.id
            for batch, result in zip(run.batches, run.results(), strict=True)
            if isinstance(result, Applied)
            for transaction in batch.transactions
        }
        reach(CrashPoint.EXECUTED)
        self._step(consensus.Executed(self._proposing_height, applies=bool(self._built_ids)))

    def _seal(self, height: int) -> None:
        """Hash and sign ``_built``."""
        built = self._built
        assert built is not None, "the engine seals what has run"
        if self._proposing is None:
            # No later proposal continues the tasks that processors still hold, and this proposal is sealed without
            # their answers.
            self._driver.drop(built.run)
            for index in reversed(built.run.not_finished()):
                built.run.reject(index, Withdrawn("not_finished"))
        sealing = OwnSeal(self._signer, Consensus(self._engine.name, height, self._time_ms()))
        concluded = built.run.conclude(self._parent(), self._store.node, sealing)
        seal = seal_of(concluded.commit.block) if concluded.commit is not None else None
        self._sealed = consensus.Proposal(height, tuple(concluded.judged), seal)
        self._ready = _Ready(self._sealed, built.run, concluded, built.started_ms, built.entries)
        if seal is not None:
            reach(CrashPoint.SEALED)

    # Proposals of others, and decided ones

    def _process(self, proposal: consensus.Proposal) -> None:
        if self._ready is not None and self._ready.proposal == proposal:
            self._step(consensus.Processed(proposal.height, None))
        elif self._given is None or self._given.proposal != proposal:
            self._start_given(proposal, decided=False)

    def _finalize(self, proposal: consensus.Proposal) -> None:
        if self._ready is not None and self._ready.proposal == proposal:
            commit = self._ready.concluded.commit
            self._step(consensus.Finalized(proposal.height, commit.block.id if commit is not None else None))
        elif self._given is not None and self._given.proposal == proposal:
            self._given.decided = True
        else:
            self._start_given(proposal, decided=True)

    def _start_given(self, proposal: consensus.Proposal, *, decided: bool) -> None:
        """Run exactly the proposal's batches on the head. Drops this node's own proposals that are not written."""
        self._discard()
        base = self._base()
        # No batch of the proposal may wait, and none is refused because of a verdict that only this node remembers.
        batches = list({batch.id: batch for batch in proposal.batches}.values())
        refused, migrations = check_given(self._body(base, remembers=False), batches)
        run = BlockRun(base, batches, self._limits, refused=refused, migrations=migrations)
        self._given = GivenRun(proposal, run, self._now_ms(), decided=decided)

    def _advance_given(self, given: GivenRun) -> bool:
        """Continue a given proposal. Returns whether it ended and the engine was told."""
        if given.waits(self._processors, self._now_ms()):
            return False
        self._dispatch(given.run)
        if not given.run.finished:
            return False
        height = given.proposal.height
        trouble = given.trouble()
        if trouble is not None and given.decided:
            given.try_again(self._now_ms(), self._limits)
            return False
        self._given = None
        if trouble is not None:
            self._step(consensus.Processed(height, trouble))
            return True
        try:
            sealing = GivenSeal(given.proposal.seal, self._engine.name, height)
            concluded = given.run.conclude(self._parent(), self._store.node, sealing)
        except WrongSeal as wrong:
            log.error("proposal does not come out here as it is sealed", height=height, reason=str(wrong))
            self._step(
                consensus.Diverged(height, str(wrong)) if given.decided else consensus.Processed(height, str(wrong))
            )
            return True
        self._ready = _Ready(given.proposal, given.run, concluded, given.started_ms)
        if given.decided:
            self._finalize(given.proposal)
        else:
            self._step(consensus.Processed(height, None))
        return True

    # The state that the next block builds on

    @property
    def _next_num(self) -> int:
        head = self._store.head
        return head.num + 1 if head else 0

    def _body(self, base: View, *, remembers: bool = True) -> Body:
        """The body of the next block on ``base``.

        ``remembers``: whether to refuse batches that depend on a transaction which this node judged invalid before.
        """
        built = self._built_ids if self._built is not None else frozenset()

        def committed(transaction_id: TransactionId) -> bool:
            return transaction_id in built or self._store.transaction_number(transaction_id) is not None

        def invalid(transaction_id: TransactionId) -> bool:
            return remembers and not self._queue.holds(transaction_id) and self._store.judged_invalid(transaction_id)

        # ``_built`` becomes a block, and takes a number, only if one of its batches applied.
        return Body(self._next_num + bool(built), self._permitted_in(base), committed, invalid)

    def _base(self) -> View:
        """The state that the next block builds on; a commit meanwhile does not change it."""
        head = self._store.head
        stored = Stored(self._store.node, head.root if head else EMPTY)
        return stored if self._built is None else Changed(stored, self._built.run.changes)

    def _parent(self) -> Parent:
        head = self._store.head
        next_node = self._store.next_node_number
        if head is None:
            return Parent(-1, NULL_BLOCK_ID, EMPTY, next_node, 0)
        return Parent(head.num, head.id, head.root, next_node, self._head_time_ms)

    def _permitted_in(self, base: View) -> Permitted:
        """The families that may enter a block on ``base``. The setting is read again only after a block changed it."""
        if self._built is not None and PERMITTED_AT in self._built.run.changes:
            return permitted_families(base.get)
        if not self._permitted_is_read:
            self._permitted, self._permitted_is_read = permitted_families(base.get), True
        return self._permitted

    def _dispatch(self, run: BlockRun) -> None:
        for task in self._driver.dispatch(run):
            self._metrics.task_given(task)
            self.comparisons.given(task, run.view)
            reach(CrashPoint.TASKS_GIVEN)

    # Ending

    def _commit(self, height: int) -> None:
        """Write the finalized block. If no batch applied there is no block: write only the verdicts."""
        ready = self._ready
        assert ready is not None, "the engine commits what was finalized"
        invalid = ready.concluded.invalid
        results = ready.concluded.results
        settled = ready.concluded.judged
        withdrawn = [
            (entry, result)
            for entry, result in zip(ready.entries, results, strict=False)
            if isinstance(result, Withdrawn) and entry.reason is Reason.EXECUTING
        ]
        exhausted = self._retries.exhausted(withdrawn)
        invalid = invalid + [invalid_batch(entry.batch, verdict) for entry, verdict in exhausted]
        settled = settled + [entry.batch for entry, _ in exhausted]
        if not ready.entries:
            # A batch that is committed already stays COMMITTED.
            committed = {one.batch_id for one in invalid if self._store.batch_number(one.batch_id) is not None}
            invalid = [one for one in invalid if one.batch_id not in committed]
            settled = [batch for batch in settled if batch.id not in committed]
        if self._store.head is None and ready.entries and (invalid or withdrawn):
            if exhausted:
                self.genesis_refusal = genesis.description(invalid_batch(exhausted[0][0].batch, exhausted[0][1]))
            elif not withdrawn:
                self.genesis_refusal = genesis.description(invalid[0])
            # In all other cases a processor was lost or failed, and later batches may be invalid only because of that.
            self._genesis_due_ms = self._now_ms() + max(
                (self._retries.back_off_ms(*pair) for pair in withdrawn), default=0
            )
            self._step(consensus.CommitFailed(height))
            return
        refused = {ready.run.batches[index].id for index in ready.run.refused}
        commit = ready.concluded.commit
        if commit is None:
            if not self._settling.reject(invalid, settled, refused):
                self._step(consensus.CommitFailed(height))
                return
            self._end_built(ready)
            self._retries.put_off(withdrawn, self._now_ms())
            self._step(consensus.Committed(height, None))
            return
        info = self._settling.commit(commit._replace(invalid=invalid), settled, refused, ready.started_ms)
        if info is None:
            self._step(consensus.CommitFailed(height))
            return
        self._end_built(ready)
        self._head_time_ms = decode_consensus(commit.block.header.consensus).time_ms
        self._retries.put_off(withdrawn, self._now_ms())
        if PERMITTED_AT in ready.run.changes:
            self._permitted_is_read = False
            self.migrating.try_all_again()
            self._queue.wake_all()
        elif begins_or_ends(info.num + 1, self._permitted_in(self._base())) or any(
            isinstance(results[index], Applied) for index in ready.run.migrations
        ):
            self._queue.wake_all()
        self._step(consensus.Committed(height, info.id))

    def _end_built(self, ready: _Ready) -> None:
        """Drop this node's proposals that do not build on the one just written, because they can enter no block."""
        if self._built is None or self._built.run is not ready.run:
            self._discard()
        self._built = self._ready = None

    def _discard(self) -> None:
        """Drop all proposals that run or wait for their write."""
        if self._proposing is not None:
            # This run also holds the tasks of ``_built`` that are still at processors.
            self._driver.drop(self._proposing.run)
            self._put_back(self._proposing.entries)
        if self._built is not None:
            self._driver.drop(self._built.run)
            self._put_back(self._built.entries)
        if self._given is not None:
            self._driver.drop(self._given.run)
        self._proposing = self._built = self._given = self._ready = self._sealed = None

    def _put_back(self, entries: Iterable[Pending]) -> None:
        for entry in entries:
            self._queue.put_back(entry)


def _time_of(head: BlockInfo | None) -> int:
    if head is None:
        return 0
    try:
        return decode_consensus(decode_block_header(head.header_bytes).consensus).time_ms
    except NotDecodable as error:
        raise StorageFailed(f"block {head.num} of the store: {error}") from None
