"""The seam between the node and the engine that decides blocks: events go in, effects come out.

Values only: no clock, no sockets, no queue. ``dovetail.validator.blocks.production`` feeds an engine with events and
carries out its effects, in their order.
"""

from typing import NamedTuple, Protocol

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.block import Seal
from dovetail.ledger.ids import BlockId


class Proposal(NamedTuple):
    """The content of a block: what one node proposes at ``height``, and what all nodes run once it is decided.

    ``batches``: in order, each with a verdict of its proposer, INVALID ones included. ``seal``: of the proposer; None
    where no batch applies, and so no block is made.
    """

    height: int
    batches: tuple[VerifiedBatch, ...]
    seal: Seal | None


class Received(NamedTuple):
    """A message for the engine arrived from its network. Only the engine knows its form."""

    message: object


class WorkReady(NamedTuple):
    """A batch may be proposed."""


class Executed(NamedTuple):
    """This node's own proposal has run. ``applies``: whether a batch of it applied."""

    height: int
    applies: bool


class NothingProposed(NamedTuple):
    """The queue held nothing that may enter a block."""

    height: int


class Proposed(NamedTuple):
    """This node's own proposal is sealed."""

    proposal: Proposal


class Processed(NamedTuple):
    """The proposal of ``Process`` has run here. ``refusal``: why this node would not agree to it, or None."""

    height: int
    refusal: str | None


class Finalized(NamedTuple):
    """The decided proposal has run here. ``block_id``: None where it makes no block. Nothing is written yet."""

    height: int
    block_id: BlockId | None


class Diverged(NamedTuple):
    """The decided proposal does not come out here as its seal says; ``reason`` names both values."""

    height: int
    reason: str


class Committed(NamedTuple):
    """The finalized height is on disk."""

    height: int
    block_id: BlockId | None


class CommitFailed(NamedTuple):
    """The disk refused the finalized height. Nothing of it was written."""

    height: int


class StorageRetry(NamedTuple):
    """The disk may take writes again."""


Event = (
    Received
    | WorkReady
    | Executed
    | NothingProposed
    | Proposed
    | Processed
    | Finalized
    | Diverged
    | Committed
    | CommitFailed
    | StorageRetry
)


class Propose(NamedTuple):
    """Choose batches from the queue and run them, on top of the own proposal that ran last, if one is not written yet.

    Answered by ``Executed`` or ``NothingProposed``.
    """

    height: int


class SealProposal(NamedTuple):
    """Hash and sign the own proposal that has run. Answered by ``Proposed``."""

    height: int


class Process(NamedTuple):
    """Run exactly this proposal of another node and compare. Answered by ``Processed``."""

    proposal: Proposal


class Finalize(NamedTuple):
    """Run exactly this decided proposal, unless it has run here. Answered by ``Finalized`` or ``Diverged``.

    A verdict that is missing, for want of a processor for instance, is waited for without end.
    """

    proposal: Proposal


class Commit(NamedTuple):
    """Write the finalized height. Answered by ``Committed`` or ``CommitFailed``."""

    height: int


class Discard(NamedTuple):
    """Drop all that runs and is not written. Its pending batches may be proposed again. Not answered."""


class Send(NamedTuple):
    """Send a message of the engine to its network. Not answered."""

    message: object


Effect = Propose | SealProposal | Process | Finalize | Commit | Discard | Send


class Engine(Protocol):
    """Decides which proposals become blocks. Two engines hold tests/contracts/test_engines.py.

    An order that drops a run (``Process`` of another list, ``Finalize`` of one, ``Discard``) leaves the earlier order
    unanswered. Between ``Finalize`` and ``Commit`` of a height an engine orders neither ``Process`` nor ``Discard``.
    """

    name: str
    """What the header's ``consensus`` names as the engine (``protos/consensus.proto``)."""

    alone: bool
    """Whether this node is the whole network: only then may a verdict rest on its own trouble, or on its clock."""

    def step(self, event: Event) -> list[Effect]:
        """The effects of one event, to be carried out in order."""
