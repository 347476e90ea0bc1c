"""For the tests of engines: a scripted engine that behaves as a BFT engine does, and a node that any engine drives.

The scripted engine carries out the orders of its network and reports their results. Its network is the test itself, in
memory or over a socket.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.block import Consensus
from dovetail.ledger.ids import TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.permitted import permitted_families
from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.signing import Signer
from dovetail.validator.blocks.production import Production
from dovetail.validator.core.consensus.engine import (
    Commit,
    CommitFailed,
    Committed,
    Discard,
    Diverged,
    Effect,
    Engine,
    Event,
    Executed,
    Finalize,
    Finalized,
    NothingProposed,
    Process,
    Processed,
    Proposal,
    Propose,
    Proposed,
    Received,
    SealProposal,
    Send,
)
from dovetail.validator.core.journal.block_run import BlockRun
from dovetail.validator.core.journal.rules import Body, check_given
from dovetail.validator.core.journal.sealing import OwnSeal, Parent, seal_of
from dovetail.validator.core.mempool.queue import PendingQueue
from dovetail.validator.core.state.view import Stored
from dovetail.validator.metrics import Metrics
from dovetail.validator.processors.registry import ProcessorAvailable
from dovetail.validator.store import BlockInfo, Store
from processor_sdk import TransactionHandler
from tests.properties.serial import Network

Order = Propose | Process | Finalize | Commit | Discard
Report = Proposed | NothingProposed | Processed | Finalized | Diverged | Committed | CommitFailed


class ScriptedEngine:
    """An engine that makes no decisions: it carries out orders and sends a report of each."""

    name = "scripted"
    alone = False

    def __init__(self) -> None:
        self._finalized: int | None = None
        """The height that may be committed."""

    def step(self, event: Event) -> list[Effect]:
        """The effects of one event."""
        match event:
            case Received(message):
                assert isinstance(message, Order), "its network sends orders"
                if isinstance(message, Commit):
                    assert message.height == self._finalized, "only a finalized height is committed"
                return [message]
            case Executed(height):
                return [SealProposal(height)]
            case Finalized(height):
                self._finalized = height
            case Committed() | CommitFailed():
                self._finalized = None
        if isinstance(event, CommitFailed):
            return [Discard(), Send(event)]
        return [Send(event)] if isinstance(event, Report) else []


class EngineNode:
    """Production over a real store, with processors in memory.

    ``choose`` draws the order of the processors' answers.
    """

    def __init__(
        self,
        folder: Path,
        engine: Engine,
        signer: Signer,
        limits: Limits,
        choose: Callable[[int], int] = lambda count: 0,
    ) -> None:
        self.folder = folder
        self.engine = engine
        self.limits = limits
        self.now_ms = 0
        self.reports: list[object] = []
        self.blocks: list[BlockInfo] = []
        self.store = Store(folder, limits)
        self.queue = PendingQueue(limits)
        self.network = Network(choose)
        self.metrics = Metrics(limits, lambda: self.now_ms / 1000)
        with ExitStack() as undo:
            undo.callback(self.store.close)
            self.production = Production(
                self.store,
                self.queue,
                self.network.processors,
                engine,
                self.reports.append,
                signer,
                limits,
                lambda: self.now_ms / 1000,
                lambda: self.now_ms,
                self.metrics,
            )
            undo.pop_all()

    def connect(self, name: bytes, handlers: Sequence[TransactionHandler[Any]], *, packed: bool = True) -> None:
        """Connect a processor."""
        self.network.connect(name, handlers, packed)
        for handler in handlers:
            family = FamilyVersion(handler.family_name, handler.family_version)
            self.production.on_processor_event(ProcessorAvailable(family, packed, "", handler.migrates))

    def kill(self, name: bytes) -> None:
        """Disconnect a processor with its tasks."""
        for event in self.network.kill(name):
            self.production.on_processor_event(event)

    def accept(self, *batches: VerifiedBatch) -> None:
        """Accept batches of clients: they are on disk and queued."""
        first = self.store.add_pending([batch.raw for batch in batches])
        for arrival, batch in enumerate(batches, first):
            self.queue.add(arrival, batch)

    def order(self, order: Order, *, steps_max: int | None = None) -> list[object]:
        """Give the scripted engine an order and let the node work; returns the reports."""
        self.production.receive(order)
        return self.work(steps_max=steps_max)

    def work(self, *, steps_max: int | None = None) -> list[object]:
        """Let processors answer until nothing more happens, but at most ``steps_max`` times. Returns the reports."""
        steps = 0
        while True:
            self._advance()
            if not self.network.busy or steps == steps_max:
                break
            for event in self.network.step():
                self.production.on_processor_event(event)
            steps += 1
        reports, self.reports[:] = list(self.reports), []
        return reports

    def wait(self, ms: int) -> list[object]:
        """Let time pass."""
        self.now_ms += ms
        self.production.tick()
        return self.work()

    def fill(self, batches: Sequence[VerifiedBatch]) -> None:
        """Queue the batches that were accepted before the last stop, as a node does at its start."""
        by_raw = {batch.raw: batch for batch in batches}
        for arrival, raw in self.store.pending():
            self.queue.add(arrival, by_raw[raw])

    def close(self) -> None:
        """End the node; the store stays."""
        self.store.close()

    def _advance(self) -> None:
        more = True
        while more:
            advanced = self.production.advance()
            self.blocks += advanced.blocks
            more = advanced.more

    @property
    def head(self) -> BlockInfo:
        """The newest block. The chain must not be empty."""
        assert self.store.head is not None
        return self.store.head


def propose_anything(
    store: Store, handlers: Sequence[TransactionHandler[Any]], signer: Signer, consensus: Consensus,
    batches: Sequence[VerifiedBatch], limits: Limits, time_ms: int = 0,
) -> Proposal:  # fmt: skip
    """The proposal of a node that ignores the rules: it executes any list of batches, and seals the result."""
    head = store.head
    assert head is not None
    base = Stored(store.node, head.root)
    body = Body(
        head.num + 1,
        permitted_families(base.get),
        lambda name: store.transaction_number(name) is not None,
        lambda name: False,
    )
    unique = list({batch.id: batch for batch in batches}.values())
    given = check_given(body, unique)
    run = BlockRun(base, unique, limits, refused=given.refused, migrations=given.migrations)
    network = Network(lambda count: 0)
    network.connect(b"reference", handlers, True)
    network.run(run, limits.packed_transactions_max)
    parent = Parent(head.num, head.id, head.root, store.next_node_number, time_ms)
    concluded = run.conclude(parent, store.node, OwnSeal(signer, consensus))
    seal = seal_of(concluded.commit.block) if concluded.commit is not None else None
    return Proposal(consensus.height, tuple(batches), seal)


def store_holds(store: Store) -> Callable[[TransactionId], bool]:
    """Whether the chain of ``store`` holds a transaction."""
    return lambda name: store.transaction_number(name) is not None
