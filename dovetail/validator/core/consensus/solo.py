"""The engine of a network of one node: it decides every proposal of its own at once. No clock, no sockets."""

from dovetail.validator.core.consensus.engine import (
    Commit,
    CommitFailed,
    Discard,
    Effect,
    Event,
    Executed,
    Finalize,
    NothingProposed,
    Propose,
    Proposed,
    SealProposal,
    StorageRetry,
    WorkReady,
)


class SoloEngine:
    """One proposal runs at most, and one that has run waits for its write at most.

    ``height``: of the next block, which is its number: a proposal without a block takes no height.
    """

    name = "solo"
    alone = True

    def __init__(self, height: int) -> None:
        self._height = height
        self._proposing = False
        self._halted = False

    def step(self, event: Event) -> list[Effect]:
        """The effects of one event, to be carried out in order."""
        match event:
            case WorkReady():
                return self._propose()
            case Executed(height, applies):
                self._proposing = False
                self._height = height + applies
                # Processors work on the next proposal while this one is hashed, sealed and synced.
                return [*self._propose(), SealProposal(height)]
            case Proposed(proposal):
                return [Finalize(proposal), Commit(proposal.height)]
            case NothingProposed():
                self._proposing = False
            case CommitFailed(height):
                self._height = height
                self._proposing = False
                self._halted = True
                return [Discard()]
            case StorageRetry():
                self._halted = False
        return []

    def _propose(self) -> list[Effect]:
        if self._proposing or self._halted:
            return []
        self._proposing = True
        return [Propose(self._height)]
