"""The contract of engines: what production does with an engine's effects.

The tests run for the solo engine and for a BFT engine.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.block import Consensus, decode_block_header, decode_consensus, is_sealed
from dovetail.ledger.ids import BlockId, StateRoot, TransactionId
from dovetail.ledger.permitted import Permission, encode_permitted_families
from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.signing import Signer
from dovetail.validator.core.consensus.engine import (
    Commit,
    CommitFailed,
    Committed,
    Discard,
    Diverged,
    Effect,
    Engine,
    Event,
    Finalize,
    Finalized,
    NothingProposed,
    Process,
    Processed,
    Proposal,
    Propose,
    Proposed,
    SealProposal,
)
from dovetail.validator.core.consensus.solo import SoloEngine
from dovetail.validator.core.mempool.queue import Reason
from dovetail.validator.store import StorageFailed
from processor_sdk import Context, Transaction
from protos import raw_pb2
from tests.contracts.engines import EngineNode, ScriptedEngine, propose_anything
from tests.dovetail.validator.support import LIMITS, SIGNER, commit, permitting
from tests.dovetail.validator.support import make_batch as genesis_batch
from tests.properties.serial import (
    OtherHandler,
    Script,
    ScriptHandler,
    address,
    make_batch,
    run_serially,
    transaction_id_of,
)

HANDLERS = [ScriptHandler(), OtherHandler()]
OTHER_SIGNER = Signer("22" * 32)
FAMILY = FamilyVersion(ScriptHandler.family_name, ScriptHandler.family_version)
OTHER = FamilyVersion(OtherHandler.family_name, OtherHandler.family_version)


def batch(
    number: int, *operations: tuple[str, int], dependencies: Sequence[TransactionId] = (), family: int = 0
) -> VerifiedBatch:
    """A batch of one transaction, which declares the addresses that it reads and writes."""
    places = tuple(sorted({address(place) for _, place in operations}))
    made = make_batch(number, [Script(list(operations), places, places, tuple(dependencies), family)])
    raw = raw_pb2.RawBatch(header_signature=made.id, transactions=[item.raw for item in made.transactions])
    return made._replace(raw=raw.SerializeToString())


VALID, FAILING = batch(1, ("set", 1)), batch(2, ("fail", 0), ("set", 2))


class Watched:
    """An engine that checks that its effects and events come in the order that the engine interface promises."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.name = engine.name
        self.alone = engine.alone
        self.finalized: set[int] = set()
        self.asked: list[Effect] = []

    def step(self, event: Event) -> list[Effect]:
        answered = {
            Proposed: SealProposal, Processed: Process, Finalized: Finalize, Committed: Commit, CommitFailed: Commit,
        }.get(type(event))  # fmt: skip
        if answered is not None:
            assert answered in map(type, self.asked), f"{event} answers nothing"
            self.asked = [effect for effect in self.asked if type(effect) is not answered]
        if isinstance(event, Finalized):
            self.finalized.add(event.height)
        effects = self._engine.step(event)
        self.asked += effects
        return effects


class Bench:
    """A node whose blocks are made by one of the engines."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind = kind
        self.watched = Watched(SoloEngine(1) if kind == "solo" else ScriptedEngine())
        self.node = EngineNode(folder, self.watched, SIGNER, LIMITS)
        commit(self.node.store, [genesis_batch("genesis")])

    def make_block(self) -> None:
        """Make a block of the pending batches, if there are any."""
        if self.kind == "solo":
            self.node.work()
            return
        height = self.node.head.num + 1
        [proposed] = self.node.order(Propose(height))
        if isinstance(proposed, Proposed):
            self.node.order(Finalize(proposed.proposal))
            self.node.order(Commit(height))


@pytest.fixture(params=["solo", "scripted"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, request.param)
    yield made
    made.node.close()


# Both engines


def test_each_block_extends_the_last_and_names_engine_and_height(bench: Bench) -> None:
    bench.node.connect(b"p", HANDLERS)
    for number in (1, 2, 3):
        before = bench.node.head
        bench.node.accept(batch(number, ("get", 1), ("set", 1)))
        bench.make_block()
        header = decode_block_header(bench.node.head.header_bytes)
        assert (header.block_num, header.previous_block_id) == (number, before.id)
        consensus = decode_consensus(header.consensus)
        assert (consensus.engine, consensus.height) == (bench.watched.name, number)
        assert is_sealed(bench.node.head.id, bench.node.head.header_bytes)
    assert bench.watched.finalized == {1, 2, 3}


def test_a_list_without_an_applied_batch_makes_no_block_and_settles_its_batches(bench: Bench) -> None:
    bench.node.connect(b"p", HANDLERS)
    bench.node.accept(FAILING)
    bench.make_block()
    assert bench.node.head.num == 0
    assert len(bench.node.queue) == 0
    invalid = bench.node.store.invalid(FAILING.id)
    assert invalid is not None
    assert invalid.reason == "invalid_transaction"
    bench.node.accept(VALID)
    bench.make_block()
    assert bench.node.head.num == 1


def test_a_refused_write_loses_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.node.connect(b"p", HANDLERS)
    batches = [VALID, FAILING, batch(3, ("get", 1), ("set", 3))]

    def refuse(*_: object) -> None:
        raise StorageFailed("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(bench.node.store, "commit_block", refuse)
        bench.node.accept(*batches)
        bench.make_block()
        assert bench.node.head.num == 0
        assert {entry.reason for entry in bench.node.queue} == {Reason.QUEUED}
    bench.node.wait(500)
    bench.make_block()
    assert bench.node.head.num == 1
    assert len(bench.node.queue) == 0
    assert bench.node.head.batch_count == 2


@pytest.mark.parametrize("packed", [True, False])
def test_blocks_hold_what_running_one_after_the_other_gives(bench: Bench, packed: bool) -> None:
    bench.node.connect(b"p", HANDLERS, packed=packed)
    batches = [
        batch(number, ("get", number % 3), ("set", number % 4), ("fail_if_even", 0), family=number % 2)
        for number in range(1, 20)
    ]
    bench.node.accept(*batches)
    bench.make_block()
    expected = run_serially({}, batches)
    applied = [made for made, verdict in zip(batches, expected.batches, strict=True) if isinstance(verdict, tuple)]
    stored = [bench.node.store.batch_number(made.id) is not None for made in batches]
    assert stored == [made in applied for made in batches]
    found = {address(place): bench.node.production._base().get(address(place)) for place in range(16)}
    assert {name: data for name, data in found.items() if data is not None} == expected.state


def test_nothing_happens_without_work(bench: Bench) -> None:
    bench.node.connect(b"p", HANDLERS)
    bench.make_block()
    assert bench.node.head.num == 0
    assert bench.node.work() == []


# A BFT engine


class FourNodes:
    """Nodes of one network, each with a store of its own. Node 0 proposes unless a test says otherwise."""

    def __init__(self, folder: Path, count: int = 3, permitted: Sequence[Permission] | None = None) -> None:
        state = None if permitted is None else permitting(encode_permitted_families(permitted))
        self.nodes = []
        for number in range(count):
            signer = SIGNER if number == 0 else Signer(f"{number:02x}" * 32)
            node = EngineNode(folder / str(number), Watched(ScriptedEngine()), signer, LIMITS)
            commit(node.store, [genesis_batch("genesis")], state)
            self.nodes.append(node)

    def connect(self) -> None:
        for node in self.nodes:
            node.connect(b"p", HANDLERS)

    def propose(self, *batches: VerifiedBatch) -> Proposal:
        """Node 0's own proposal of these batches."""
        node = self.nodes[0]
        node.accept(*batches)
        [proposed] = node.order(Propose(node.head.num + 1))
        assert isinstance(proposed, Proposed)
        return proposed.proposal

    def force(self, *batches: VerifiedBatch) -> Proposal:
        """A proposal of any list."""
        node = self.nodes[0]
        height = node.head.num + 1
        return propose_anything(node.store, HANDLERS, OTHER_SIGNER, Consensus("scripted", height, 5), batches, LIMITS)

    def decide(self, proposal: Proposal, *nodes: EngineNode) -> None:
        """Let nodes (by default all) finalize and commit a proposal."""
        for node in nodes or self.nodes:
            [finalized] = node.order(Finalize(proposal))
            assert isinstance(finalized, Finalized), finalized
            [committed] = node.order(Commit(proposal.height))
            assert committed == Committed(proposal.height, finalized.block_id)

    def close(self) -> None:
        for node in self.nodes:
            node.close()


@pytest.fixture
def four(tmp_path: Path) -> Iterator[FourNodes]:
    made = FourNodes(tmp_path)
    yield made
    made.close()


def test_a_block_of_another_node_gets_its_id_and_root(four: FourNodes) -> None:
    four.connect()
    proposal = four.propose(VALID, FAILING)
    assert [made.id for made in proposal.batches] == [VALID.id, FAILING.id]
    for node in four.nodes[1:]:
        assert node.order(Process(proposal)) == [Processed(1, None)]
    four.decide(proposal)
    assert len({(node.head.id, node.head.root.hash) for node in four.nodes}) == 1
    assert all(node.store.invalid(FAILING.id) is not None for node in four.nodes)


def test_a_processed_proposal_is_not_run_again_to_be_finalized(four: FourNodes) -> None:
    four.connect()
    proposal = four.propose(VALID)
    node = four.nodes[1]
    node.order(Process(proposal))
    messages = node.network.messages
    four.decide(proposal, node)
    assert node.network.messages == messages


def test_after_a_failed_round_another_proposal_is_decided(four: FourNodes) -> None:
    four.connect()
    first = four.propose(VALID)
    four.nodes[1].order(Process(first))
    second = four.force(batch(3, ("set", 1)))
    for node in four.nodes:
        node.order(Discard())
    four.decide(second)
    assert len({node.head.id for node in four.nodes}) == 1
    # The batch of the failed round is still pending at the node that accepted it, and enters the next proposal.
    [entry] = four.nodes[0].queue
    assert entry.batch.id == VALID.id
    third = four.nodes[0].order(Propose(2))
    assert isinstance(third[0], Proposed)
    four.decide(third[0].proposal)
    assert four.nodes[0].head.num == 2


def test_a_block_decided_elsewhere_interrupts_an_own_proposal(four: FourNodes) -> None:
    four.connect()
    node = four.nodes[0]
    node.accept(VALID, batch(4, ("set", 4)))
    assert node.order(Propose(1), steps_max=0) == []
    decided = four.force(VALID, batch(3, ("set", 3)))
    four.decide(decided)
    # The batches of the decided block are settled. The other batch is still pending.
    assert [entry.batch.id for entry in node.queue] == [batch(4, ("set", 4)).id]
    [proposed] = node.order(Propose(2))
    assert isinstance(proposed, Proposed)
    assert [made.id for made in proposed.proposal.batches] == [batch(4, ("set", 4)).id]


def test_a_decided_block_waits_visibly_for_a_processor(four: FourNodes) -> None:
    four.nodes[0].connect(b"p", HANDLERS)
    proposal = four.propose(VALID, batch(3, ("get", 1), ("set", 3), family=1))
    late = four.nodes[1]
    late.connect(b"p", HANDLERS[:1])
    assert late.order(Finalize(proposal)) == []
    assert late.wait(60_000) == []
    assert late.production.work().lacks == (OTHER,)
    late.connect(b"q", HANDLERS[1:], packed=False)
    assert [type(report) for report in late.work()] == [Finalized]
    assert late.production.work().lacks == ()
    late.order(Commit(1))
    four.decide(proposal, four.nodes[0])
    assert late.head.id == four.nodes[0].head.id


def test_a_proposal_whose_family_has_no_processor_is_not_agreed_to(four: FourNodes) -> None:
    four.nodes[0].connect(b"p", HANDLERS)
    [report] = four.nodes[1].order(Process(four.propose(VALID)))
    assert isinstance(report, Processed)
    assert report.refusal is not None
    assert f"batch {VALID.id} has no verdict here: waiting_for_processor of {FAMILY}" in report.refusal


def test_a_lost_processor_is_no_verdict(four: FourNodes) -> None:
    four.nodes[0].connect(b"p", HANDLERS)
    proposal = four.propose(VALID, batch(3, ("get", 1), ("set", 3)))
    node = four.nodes[1]
    for number in range(4):
        name = b"p%d" % number
        node.connect(name, HANDLERS, packed=number % 2 == 0)
        if number == 0:
            node.production.receive(Finalize(proposal))
        node.production.advance()
        node.kill(name)
        assert node.wait(10_000) == []
    node.connect(b"last", HANDLERS)
    assert [type(report) for report in node.wait(10_000)] == [Finalized]


class _Troubled(ScriptHandler):
    """Fails without a verdict in its first ``times`` applies."""

    def __init__(self, times: int) -> None:
        self.times = times

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        if self.times:
            self.times -= 1
            raise RuntimeError("no verdict")
        super().apply(transaction, context)


def test_an_internal_error_is_no_verdict_of_a_decided_block(four: FourNodes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "processor_sdk.apply.dispatch")
    four.nodes[0].connect(b"p", HANDLERS)
    proposal = four.propose(VALID)
    node = four.nodes[1]
    node.connect(b"p", [_Troubled(LIMITS.internal_error_tries_max + 3), OtherHandler()])
    reports = node.order(Finalize(proposal))
    tries = 0
    while not reports:
        reports = node.wait(LIMITS.processor_lost_back_off_ms_max)
        tries += 1
        assert tries < 20
    assert [type(report) for report in reports] == [Finalized]
    assert tries > LIMITS.internal_error_tries_max


def wrong_root(proposal: Proposal) -> Proposal:
    assert proposal.seal is not None
    return proposal._replace(seal=proposal.seal._replace(state_root_hash=StateRoot("ab" * 32)))


def wrong_signature(proposal: Proposal) -> Proposal:
    assert proposal.seal is not None
    return proposal._replace(seal=proposal.seal._replace(signature=BlockId("cd" * 64)))


def no_seal(proposal: Proposal) -> Proposal:
    return proposal._replace(seal=None)


def fewer_batches(proposal: Proposal) -> Proposal:
    return proposal._replace(batches=proposal.batches[1:])


@pytest.mark.parametrize("wrong", [wrong_root, wrong_signature, no_seal, fewer_batches])
def test_a_block_that_does_not_come_out_as_it_is_sealed_is_refused(
    four: FourNodes, wrong: Callable[[Proposal], Proposal]
) -> None:
    four.connect()
    proposal = wrong(four.propose(VALID, batch(3, ("set", 3))))
    node = four.nodes[1]
    [processed] = node.order(Process(proposal))
    assert isinstance(processed, Processed)
    assert processed.refusal
    [diverged] = node.order(Finalize(proposal))
    assert diverged == Diverged(1, processed.refusal)
    assert node.head.num == 0


def test_a_wrong_root_is_refused_with_both_roots(four: FourNodes) -> None:
    four.connect()
    right = four.propose(VALID)
    [diverged] = four.nodes[1].order(Finalize(wrong_root(right)))
    assert isinstance(diverged, Diverged)
    assert right.seal is not None
    assert right.seal.state_root_hash in diverged.reason
    assert "ab" * 32 in diverged.reason


@pytest.mark.parametrize(
    ("consensus", "words"),
    [
        (Consensus("scripted", 2, 5), "sealed for height 2 of 'scripted', not for height 1 of 'scripted'"),
        (Consensus("other", 1, 5), "sealed for height 1 of 'other'"),
    ],
)
def test_a_seal_for_another_height_or_engine_is_refused(four: FourNodes, consensus: Consensus, words: str) -> None:
    four.connect()
    node = four.nodes[0]
    proposal = propose_anything(node.store, HANDLERS, OTHER_SIGNER, consensus, [VALID], LIMITS)
    [processed] = four.nodes[1].order(Process(proposal._replace(height=1)))
    assert isinstance(processed, Processed)
    assert words in (processed.refusal or "")


def test_time_never_goes_back(four: FourNodes) -> None:
    four.connect()
    four.nodes[0].now_ms = 9_000
    four.decide(four.propose(VALID))
    # The proposer's clock may be set back. Then the block gets the time of its parent.
    four.nodes[0].now_ms = 100
    later = four.propose(batch(3, ("set", 3)))
    assert later.seal is not None
    assert decode_consensus(later.seal.consensus).time_ms == 9_000
    for node in four.nodes:
        node.order(Discard())
    early = four.force(batch(4, ("set", 4)))
    [diverged] = four.nodes[1].order(Finalize(early))
    assert diverged == Diverged(2, "block 2: its time 5 ms is before its parent's 9000 ms")


def test_a_restart_between_finalize_and_commit_gets_there_too(four: FourNodes, tmp_path: Path) -> None:
    four.connect()
    batches = [VALID, FAILING, batch(3, ("get", 1), ("set", 3))]
    proposal = four.propose(*batches)
    node = four.nodes[0]
    [finalized] = node.order(Finalize(proposal))
    node.close()
    again = EngineNode(node.folder, Watched(ScriptedEngine()), SIGNER, LIMITS)
    four.nodes[0] = again
    again.fill(batches)
    again.connect(b"one", HANDLERS, packed=False)
    assert again.order(Finalize(proposal)) == [finalized]
    again.order(Commit(1))
    four.decide(proposal, *four.nodes[1:])
    assert len({node.head.id for node in four.nodes}) == 1
    assert len(again.queue) == 0


def test_every_batch_of_a_given_list_gets_the_same_verdict_on_every_node(four: FourNodes) -> None:
    four.connect()
    four.decide(four.propose(VALID))
    twice = batch(5, ("set", 5))
    copy = twice._replace(id=batch(6).id, raw=b"another batch with the same transaction")
    unmet = batch(7, ("set", 7), dependencies=[transaction_id_of(99, 0)])
    behind = batch(8, ("set", 8), dependencies=[transaction_id_of(2, 0)])
    decided = four.force(VALID, twice, twice, copy, unmet, FAILING, behind)
    for node in four.nodes[:2]:
        # A batch is pending on some nodes only. This must not change the verdicts.
        node.accept(unmet)
    four.nodes[1].order(Process(decided))
    four.decide(decided)
    for node in four.nodes:
        found = {made.id: node.store.invalid(made.id) for made in (copy, unmet, FAILING, behind)}
        assert [item.reason for item in found.values() if item is not None] == [
            "duplicate_transaction", "dependency_missing", "invalid_transaction", "dependency_invalid",
        ]  # fmt: skip
        assert node.store.invalid(VALID.id) is None
        assert node.head.batch_count == 1
        assert len(node.queue) == 0


def test_families_that_may_not_enter_are_invalid_in_a_decided_block(tmp_path: Path) -> None:
    four = FourNodes(tmp_path, 2, [Permission(FAMILY, 5), Permission(OTHER)])
    four.connect()
    early = batch(1, ("set", 1))
    decided = four.force(early, batch(3, ("set", 3), family=1))
    four.decide(decided)
    for node in four.nodes:
        invalid = node.store.invalid(early.id)
        assert invalid is not None
        assert (invalid.reason, invalid.message) == (
            "family_not_permitted", f"{FAMILY} is permitted from block 5 on",
        )  # fmt: skip
    four.close()


def test_a_height_without_a_block_leaves_the_head(four: FourNodes) -> None:
    four.connect()
    proposal = four.propose(FAILING)
    assert proposal.seal is None
    four.decide(proposal)
    assert {node.head.num for node in four.nodes} == {0}
    assert all(node.store.invalid(FAILING.id) is not None for node in four.nodes)
    [nothing] = four.nodes[0].order(Propose(2))
    assert nothing == NothingProposed(2)


def test_receipts_do_not_depend_on_how_processors_work(four: FourNodes) -> None:
    four.nodes[0].connect(b"p", HANDLERS)
    four.nodes[1].connect(b"p", HANDLERS, packed=False)
    for name in (b"x", b"y", b"z"):
        four.nodes[2].connect(name, HANDLERS, packed=name == b"y")
    batches = [batch(number, ("get", 1), ("set", number % 4), ("list8", 1)) for number in range(10)]
    four.decide(four.propose(*batches))
    digests = set()
    for node in four.nodes:
        receipts = [
            node.store.transaction(number).receipt
            for number in range(node.head.first_transaction, node.head.transaction_end)
        ]
        digests.add(hashlib.sha256(b"".join(receipts)).hexdigest())
    assert len(digests) == 1
