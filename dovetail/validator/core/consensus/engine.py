"""The interface between the node and the engine that decides blocks: the engine takes events and returns effects.

Values only: no clock, no sockets, no queue. ``dovetail.validator.blocks.production`` feeds an engine with events and
carries out its effects, in their order.
"""

from typing import NamedTuple, Protocol

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.block import Seal
from dovetail.ledger.ids import BlockId


class Proposal(NamedTuple):
    """The content of a block that one node proposes at ``height``, and that all nodes run after it is decided.

    ``batches``: in order, all that got a verdict from the proposer, INVALID ones included. ``seal``: the proposer's;
    None if no batch applies, because then no block is made.
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
    """This node's own proposal has run. ``applies``: whether any of its batches applied."""

    height: int
    applies: bool


class NothingProposed(NamedTuple):
    """The queue held nothing that may enter a block."""

    height: int


class Proposed(NamedTuple):
    """This node's own proposal is sealed."""

    proposal: Proposal


class Processed(NamedTuple):
    """The proposal of ``Process`` has run here. ``refusal``: why this node does not agree to the proposal, or None."""

    height: int
    refusal: str | None


class Finalized(NamedTuple):
    """The decided proposal has run here. ``block_id``: None if the proposal makes no block. Nothing is written yet."""

    height: int
    block_id: BlockId | None


class Diverged(NamedTuple):
    """The result of the decided proposal on this node differs from the seal; ``reason`` names both values."""

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
    """Choose batches from the queue and run them. They build on this node's last proposal, if it is not written yet.

    Answered by ``Executed`` or ``NothingProposed``.
    """

    height: int


class SealProposal(NamedTuple):
    """Hash and sign this node's proposal that has run. Answered by ``Proposed``."""

    height: int


class Process(NamedTuple):
    """Run exactly this proposal of another node, and compare the result with its seal. Answered by ``Processed``."""

    proposal: Proposal


class Finalize(NamedTuple):
    """Run exactly this decided proposal, unless it has run here. Answered by ``Finalized`` or ``Diverged``.

    If a verdict is missing, for example because a processor is missing, the node waits without a time limit.
    """

    proposal: Proposal


class Commit(NamedTuple):
    """Write the finalized height. Answered by ``Committed`` or ``CommitFailed``."""

    height: int


class Discard(NamedTuple):
    """Drop all proposals that run or wait for their write. Their pending batches may be proposed again. Not
    answered."""


class Send(NamedTuple):
    """Send a message of the engine to its network. Not answered."""

    message: object


Effect = Propose | SealProposal | Process | Finalize | Commit | Discard | Send


class Engine(Protocol):
    """Decides which proposals become blocks. Every engine keeps the contract in tests/contracts/test_engines.py.

    ``Discard``, and ``Process`` or ``Finalize`` of another proposal, drop a run. The effect that started the dropped
    run gets no answer. Between ``Finalize`` and ``Commit`` of a height an engine returns neither ``Process`` nor
    ``Discard``.
    """

    name: str
    """The engine's name in the ``consensus`` of block headers (``protos/consensus.proto``)."""

    alone: bool
    """Whether this node is the whole network. Only then may a verdict depend on trouble of this node, or on its
    clock."""

    def step(self, event: Event) -> list[Effect]:
        """The effects of one event, to be carried out in order."""
