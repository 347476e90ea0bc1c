"""How production treats orders in an unusual sequence, and proposals that no honest node makes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.ledger.block import BlockHeader, Consensus, Seal, encode_block_header, encode_consensus, seal
from dovetail.ledger.ids import BlockId, StateRoot
from dovetail.ledger.permitted import Permission
from dovetail.validator.core.consensus.engine import (
    Commit,
    Committed,
    Discard,
    Diverged,
    Finalize,
    Finalized,
    NothingProposed,
    Process,
    Processed,
    Proposal,
    Propose,
    Proposed,
)
from dovetail.validator.core.journal.block_run import BlockRun
from dovetail.validator.core.mempool.queue import Reason
from dovetail.validator.store import StorageFailed, Store
from processor_sdk import MigrationContext
from tests.contracts.engines import EngineNode, ScriptedEngine
from tests.contracts.test_engines import FAMILY, HANDLERS, OTHER, OTHER_SIGNER, VALID, FourNodes, _Troubled, batch
from tests.dovetail.validator.support import LIMITS, make_commit, view_of
from tests.dovetail.validator.support import make_batch as genesis_batch
from tests.properties.serial import OtherHandler, ScriptHandler


@pytest.fixture
def four(tmp_path: Path) -> Iterator[FourNodes]:
    made = FourNodes(tmp_path)
    yield made
    made.close()


def proposed_by(node: EngineNode, height: int) -> Proposal:
    [proposed] = node.order(Propose(height))
    assert isinstance(proposed, Proposed)
    return proposed.proposal


def test_a_sealed_block_without_batches_is_refused(four: FourNodes) -> None:
    four.connect()
    head = four.nodes[1].head
    root = StateRoot(head.root.hash.hex())
    consensus = encode_consensus(Consensus("scripted", 1, 5))
    header = BlockHeader(1, head.id, OTHER_SIGNER.public_key, (), consensus, root)
    signature = BlockId(OTHER_SIGNER.sign(encode_block_header(header)))
    empty = Proposal(1, (), Seal(OTHER_SIGNER.public_key, signature, consensus, root))
    [diverged] = four.nodes[1].order(Finalize(empty))
    assert isinstance(diverged, Diverged)


def test_a_batch_that_is_committed_already_is_counted_once(four: FourNodes) -> None:
    four.connect()
    four.decide(four.propose(VALID))
    four.decide(four.force(VALID, batch(3, ("set", 3))))
    totals = four.nodes[1].metrics.totals
    assert (totals.batches_committed, totals.batches_invalid) == (2, 0)
    four.decide(four.force(VALID))
    assert (totals.batches_committed, totals.batches_invalid) == (2, 0)


def test_an_own_proposal_ends_when_another_one_that_has_run_is_decided(four: FourNodes) -> None:
    four.nodes[0].connect(b"p", HANDLERS)
    other = four.propose(batch(9, ("set", 1)))
    node = four.nodes[1]
    node.connect(b"p", HANDLERS)
    node.order(Process(other))
    mine = batch(4, ("get", 1), ("set", 4))
    node.accept(mine)
    # This node proposes in the next round, but then the network decides the round before.
    assert node.order(Propose(1), steps_max=0) == []
    [finalized] = node.order(Finalize(other), steps_max=0)
    assert isinstance(finalized, Finalized)
    reports = node.order(Commit(1))
    assert reports == [Committed(1, finalized.block_id)]
    four.decide(other, four.nodes[0])
    four.decide(proposed_by(node, 2), four.nodes[0], node)
    assert len(node.queue) == 0


def test_a_proposal_on_top_of_another_one_waits_until_that_is_written(four: FourNodes) -> None:
    four.connect()
    node = four.nodes[0]
    first = four.propose(VALID)
    node.accept(batch(3, ("get", 1), ("set", 3)))
    assert node.order(Propose(2)) == []
    [finalized] = node.order(Finalize(first))
    assert isinstance(finalized, Finalized)
    reports = node.order(Commit(1))
    assert reports[0] == Committed(1, finalized.block_id)
    assert isinstance(reports[1], Proposed)
    four.decide(first, *four.nodes[1:])
    four.decide(reports[1].proposal)
    assert len(node.queue) == 0
    assert len({one.head.id for one in four.nodes}) == 1


@pytest.mark.parametrize("early", [False, True])
def test_what_a_sealed_proposal_left_unfinished_comes_with_the_next(four: FourNodes, early: bool) -> None:
    node = four.nodes[0]
    node.connect(b"p", HANDLERS[:1], packed=False)
    node.connect(b"q", HANDLERS[1:], packed=False)
    slow, quick = batch(3, ("set", 3), family=1), VALID
    node.accept(quick, slow)
    node.production.receive(Propose(1))
    node.production.advance()
    frames = node.network._frames[b"q"]
    held = frames.popleft()
    assert node.work() == []
    [proposed] = node.wait(2 * LIMITS.block_execution_ms_max)
    assert isinstance(proposed, Proposed)
    assert [made.id for made in proposed.proposal.batches] == [quick.id]
    # The answer to the slow batch comes after the block is sealed.
    frames.append(held)
    assert node.work() == []
    if early:
        assert node.order(Propose(2)) == [NothingProposed(2)]
    four.decide(proposed.proposal, node)
    later = proposed_by(node, 2)
    assert [made.id for made in later.batches] == [slow.id]
    four.nodes[1].connect(b"p", HANDLERS)
    four.decide(proposed.proposal, four.nodes[1])
    four.decide(later, *four.nodes[:2])
    assert len(node.queue) == 0
    assert four.nodes[1].head.id == node.head.id


class _Migrating(OtherHandler):
    def migrate(self, context: MigrationContext) -> None:
        pass


def test_what_waits_for_a_migration_goes_on_when_a_decided_block_holds_that(tmp_path: Path) -> None:
    four = FourNodes(tmp_path, 2, [Permission(FAMILY), Permission(OTHER, 1, migrate=("aaaaaa",))])
    first, second = four.nodes
    first.connect(b"p", [ScriptHandler(), _Migrating()])
    second.connect(b"p", [ScriptHandler(), OtherHandler()])
    waiting = batch(3, ("set", 3), family=1)
    second.accept(waiting)
    second.order(Propose(1))
    assert [entry.reason for entry in second.queue] == [Reason.WAITING_FOR_ACTIVATION]
    first.accept(VALID)
    proposal = proposed_by(first, 1)
    assert len(proposal.batches) == 2
    second.connect(b"q", [_Migrating()])
    assert second.order(Process(proposal)) == [Processed(1, None)]
    second.kill(b"q")
    # This node proposes in the next round, although it cannot migrate now. Then the network decides the round before.
    assert second.order(Propose(1)) == [NothingProposed(1)]
    assert [entry.reason for entry in second.queue] == [Reason.WAITING_FOR_ACTIVATION]
    four.decide(proposal, second)
    assert second.head.num == 1
    assert [made.id for made in proposed_by(second, 2).batches] == [waiting.id]
    four.close()


def test_the_tries_of_a_batch_are_counted_in_a_network(four: FourNodes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "processor_sdk.apply.dispatch")
    node = four.nodes[0]
    tries = LIMITS.internal_error_tries_max + 20
    node.connect(b"p", [_Troubled(tries), OtherHandler()])
    node.accept(VALID)
    for height in range(1, 1 + tries):
        four.decide(proposed_by(node, height), node)
        [entry] = node.queue
        assert entry.failure.startswith(f"its processor failed {height} ")
        assert entry.due_ms is not None
        assert entry.due_ms - node.now_ms <= LIMITS.processor_lost_back_off_ms_max
        node.wait(entry.due_ms - node.now_ms)
    four.decide(proposed_by(node, 1 + tries), node)
    assert node.head.num == 1


def test_a_discard_in_every_state_loses_nothing(four: FourNodes) -> None:
    four.connect()
    node = four.nodes[0]
    batches = [batch(number, ("get", 1), ("set", number % 4)) for number in range(1, 7)]
    node.accept(*batches)
    other = four.force(batch(9, ("set", 1)))
    for answers in range(8):
        for order in (Propose(1), Process(other), Finalize(other)):
            node.order(order, steps_max=answers)
            node.order(Discard(), steps_max=0)
            assert {entry.reason for entry in node.queue} == {Reason.QUEUED}
    four.decide(proposed_by(node, 1))
    assert len(node.queue) == 0


def test_a_migration_shares_no_task(tmp_path: Path) -> None:
    batches = [batch(number, family=1) for number in (1, 2, 3)]
    run = BlockRun(view_of({}), batches, LIMITS, migrations=frozenset({1}))
    sizes = []
    while (task := run.next_task(OTHER, 10)) is not None:
        sizes.append((len(task.units), task.alone, task.migration))
    assert sorted(sizes) == [(1, False, False), (1, False, False), (1, True, True)]


def test_a_head_whose_consensus_cannot_be_read_is_refused_in_words(tmp_path: Path) -> None:
    store = Store(tmp_path, LIMITS)
    made = make_commit(store, [genesis_batch("genesis")])
    header = made.block.header._replace(consensus=b"solo")
    store.commit_block(made._replace(block=seal(OTHER_SIGNER, header, made.block.batches)))
    store.close()
    with pytest.raises(StorageFailed, match="block 0 of the store: the consensus field is no BlockConsensus"):
        EngineNode(tmp_path, ScriptedEngine(), OTHER_SIGNER, LIMITS)
