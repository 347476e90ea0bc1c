"""The solo engine as a function of events: each test gives events and compares the effects."""

import pytest

from dovetail.ledger.ids import BlockId
from dovetail.validator.core.consensus import engine as consensus
from dovetail.validator.core.consensus.solo import SoloEngine

ID = BlockId("ab" * 64)
FIRST = consensus.Proposal(7, (), None)

Step = tuple[consensus.Event, list[consensus.Effect]]

TRANSCRIPTS: dict[str, list[Step]] = {
    "the next proposal runs while the last one is sealed and written": [
        (consensus.WorkReady(), [consensus.Propose(7)]),
        (consensus.Executed(7, applies=True), [consensus.Propose(8), consensus.SealProposal(7)]),
        (consensus.Proposed(FIRST), [consensus.Finalize(FIRST), consensus.Commit(7)]),
        (consensus.Committed(7, ID), []),
        (consensus.Executed(8, applies=True), [consensus.Propose(9), consensus.SealProposal(8)]),
    ],
    "a proposal without a block takes no height": [
        (consensus.WorkReady(), [consensus.Propose(7)]),
        (consensus.Executed(7, applies=False), [consensus.Propose(7), consensus.SealProposal(7)]),
    ],
    "only one proposal runs at a time": [
        (consensus.WorkReady(), [consensus.Propose(7)]),
        (consensus.WorkReady(), []),
        (consensus.NothingProposed(7), []),
        (consensus.WorkReady(), [consensus.Propose(7)]),
    ],
    "after a refused write nothing is proposed before the disk is tried again": [
        (consensus.WorkReady(), [consensus.Propose(7)]),
        (consensus.Executed(7, applies=True), [consensus.Propose(8), consensus.SealProposal(7)]),
        (consensus.CommitFailed(7), [consensus.Discard()]),
        (consensus.WorkReady(), []),
        (consensus.StorageRetry(), []),
        (consensus.WorkReady(), [consensus.Propose(7)]),
    ],
}


@pytest.mark.parametrize("transcript", TRANSCRIPTS.values(), ids=TRANSCRIPTS)
def test_the_solo_engine(transcript: list[Step]) -> None:
    engine = SoloEngine(7)
    assert [engine.step(event) for event, _ in transcript] == [effects for _, effects in transcript]
