"""The engine of a network of one node: it decides each of its own proposals at once. No clock, no sockets."""

from dovetail.validator.core.consensus import engine as consensus


class SoloEngine:
    """At most one proposal runs, and at most one other proposal has run and waits for its write.

    ``height``: the next block's. It equals the block's number, because a proposal without a block takes no height.
    """

    name = "solo"
    alone = True

    def __init__(self, height: int) -> None:
        self._height = height
        self._proposing = False
        self._halted = False

    def step(self, event: consensus.Event) -> list[consensus.Effect]:
        """The effects of one event, to be carried out in order."""
        match event:
            case consensus.WorkReady():
                return self._propose()
            case consensus.Executed(height, applies):
                self._proposing = False
                self._height = height + applies
                # Processors work on the next proposal while this one is hashed, sealed and synced.
                return [*self._propose(), consensus.SealProposal(height)]
            case consensus.Proposed(proposal):
                return [consensus.Finalize(proposal), consensus.Commit(proposal.height)]
            case consensus.NothingProposed():
                self._proposing = False
            case consensus.CommitFailed(height):
                self._height = height
                self._proposing = False
                self._halted = True
                return [consensus.Discard()]
            case consensus.StorageRetry():
                self._halted = False
        return []

    def _propose(self) -> list[consensus.Effect]:
        if self._proposing or self._halted:
            return []
        self._proposing = True
        return [consensus.Propose(self._height)]
