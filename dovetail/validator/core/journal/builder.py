"""Building a block: choosing batches, and making the block of what execution left of them.

Between the two, the shell drives ``Candidate.execution``. Nothing is written here.
"""

from collections.abc import Callable
from functools import cache
from itertools import filterfalse
from operator import attrgetter
from typing import Final, NamedTuple

from dovetail.ledger.batch import VerifiedBatch, VerifiedTransaction
from dovetail.ledger.block import BlockHeader, seal
from dovetail.ledger.ids import BlockId, StateRoot
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.signing import Signer
from dovetail.validator.core.execution.executor import Execution
from dovetail.validator.core.execution.model import Applied, Rejected, Withdrawn
from dovetail.validator.core.journal.model import BlockCommit, CommittedBatch, InvalidBatch
from dovetail.validator.core.journal.rules import Body
from dovetail.validator.core.mempool.queue import INJECTED, Pending, PendingQueue
from dovetail.validator.core.state import merkle
from dovetail.validator.core.state.merkle import ReadNode
from dovetail.validator.core.state.nodes import Ref
from dovetail.validator.core.state.view import View

_family_of: Final[Callable[[VerifiedTransaction], FamilyVersion]] = attrgetter("family")

CONSENSUS: Final = b"solo"
"""What a block of the solo engine names as its consensus."""


class Candidate(NamedTuple):
    """A block in the making: the batches that may enter it, and those that were refused at its door.

    ``started_ms``: when it was chosen, by the clock of whoever had it made.
    """

    entries: list[Pending]
    execution: Execution
    refused: list[tuple[Pending, Rejected]]
    started_ms: int

    def holds_any(self, entries: list[Pending]) -> bool:
        """Whether one of these entries is in it."""
        given = set(map(id, entries))
        return any(id(entry) in given for entry in (*self.entries, *(entry for entry, _ in self.refused)))


class Parent(NamedTuple):
    """What a block is sealed upon. ``next_node``: the first free node number of the store."""

    num: int
    id: BlockId
    root: Ref
    next_node: int


class Verdicts(NamedTuple):
    """What a candidate came to: the block (None if no batch applied), and the batches by their fate."""

    commit: BlockCommit | None
    invalid: list[InvalidBatch]
    settled: list[Pending]
    withdrawn: list[tuple[Pending, Withdrawn]]


def choose(
    queue: PendingQueue,
    body: Body,
    base: View,
    has_processor: Callable[[FamilyVersion], bool],
    limits: Limits,
    now_ms: int,
    before: Candidate | None,
) -> Candidate:
    """Take from the queue, in order of arrival, what may enter the next block; park what must wait.

    What the block ``before`` left at processors comes first; the rest that it left is chosen from again.
    """
    entries: list[Pending] = []
    if before is not None:
        held = before.execution.at_processors()
        entries = [before.entries[index] for index in held]
        for index in set(before.execution.not_finished()).difference(held):
            queue.put_back(before.entries[index])
    carried: list[Rejected | Withdrawn | None] = []
    for entry in entries:
        verdict = body.check(entry.batch)
        if verdict is None and entry.arrival == INJECTED and not body.is_migration(entry.batch):
            # The plan was changed meanwhile, and permits the version without it.
            verdict = Withdrawn("waiting_for_activation", entry.batch.transactions[0].family)
        carried.append(verdict)
        body.include(entry.batch)
    refused: list[tuple[Pending, Rejected]] = []
    has_processor = cache(has_processor)
    size = _Size(limits)
    while (ready := queue.pop_ready()) is not None:
        entry, batch = ready, ready.batch
        if not size.has_room_for(batch):
            queue.put_back(entry)
            break
        verdict = body.check(batch)
        if isinstance(verdict, Rejected):
            refused.append((entry, verdict))
            continue
        if verdict is not None and verdict.reason == "waiting_for_activation":
            park(queue, entry, verdict, now_ms)
            continue
        missing = next(filterfalse(has_processor, map(_family_of, batch.transactions)), None)
        if missing is not None:
            queue.park_for_processor(entry, missing)
        elif verdict is not None:
            park(queue, entry, verdict, now_ms + limits.dependency_wait_ms)
        else:
            body.include(batch)
            entries.append(entry)
            size.add(batch)
    alone = frozenset(index for index, entry in enumerate(entries) if entry.alone)
    batches = [entry.batch for entry in entries]
    injected = frozenset(index for index, entry in enumerate(entries) if entry.arrival == INJECTED)
    execution = Execution(base, batches, limits, alone, injected, before.execution if before else None)
    for index, verdict in enumerate(carried):
        if verdict is not None:
            execution.reject(index, verdict)
    return Candidate(entries, execution, refused, now_ms)


class _Size:
    """How much a block took in so far. What was carried over does not count: it must not shut others out."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._transactions = self._bytes = self._addresses = 0

    def has_room_for(self, batch: VerifiedBatch) -> bool:
        """Whether one more batch fits; the first always does."""
        limits = self._limits
        return not self._transactions or (
            self._transactions + len(batch.transactions) <= limits.block_transactions_max
            and self._bytes + len(batch.raw) <= limits.block_bytes_max
            and self._addresses + batch.declared <= limits.block_addresses_max
        )

    def add(self, batch: VerifiedBatch) -> None:
        self._transactions += len(batch.transactions)
        self._bytes += len(batch.raw)
        self._addresses += batch.declared


def park(queue: PendingQueue, entry: Pending, verdict: Withdrawn, dependency_due_ms: int) -> None:
    """Put a batch that got no verdict where it waits for what it lacks."""
    if verdict.family is not None and verdict.reason == "waiting_for_activation":
        queue.park_for_activation(entry, verdict.family, verdict.message)
    elif verdict.family is not None:
        queue.park_for_processor(entry, verdict.family)
    elif verdict.dependency is not None:
        queue.park_for_dependency(entry, verdict.dependency, dependency_due_ms)
    else:
        queue.put_back(entry)


def conclude(candidate: Candidate, parent: Parent, read_node: ReadNode, signer: Signer) -> Verdicts:
    """Make the block of what a candidate has finished: one pass over the trie, one seal."""
    batches: list[CommittedBatch] = []
    invalid = [invalid_batch(entry, verdict) for entry, verdict in candidate.refused]
    settled = [entry for entry, _ in candidate.refused]
    withdrawn: list[tuple[Pending, Withdrawn]] = []
    for entry, result in zip(candidate.entries, candidate.execution.results(), strict=True):
        if isinstance(result, Applied):
            ids = (transaction.id for transaction in entry.batch.transactions)
            receipts = tuple(zip(ids, result.receipts, strict=True))
            batches.append(CommittedBatch(entry.batch.id, entry.batch.raw, receipts))
            settled.append(entry)
        elif isinstance(result, Rejected):
            invalid.append(invalid_batch(entry, result))
            settled.append(entry)
        elif result is not None:
            withdrawn.append((entry, result))
    commit = None
    if batches:
        state = merkle.update(read_node, parent.root, candidate.execution.changes, parent.next_node)
        header = BlockHeader(
            block_num=parent.num + 1,
            previous_block_id=parent.id,
            signer_pubkey=signer.public_key,
            batch_ids=tuple(batch.id for batch in batches),
            consensus=CONSENSUS,
            state_root_hash=StateRoot(state.root.hash.hex()),
        )
        commit = BlockCommit(
            block=seal(signer, header, [batch.raw for batch in batches]),
            batches=batches,
            root=state.root,
            nodes=state.nodes,
            superseded=state.superseded,
            invalid=invalid,
            settled=arrivals(settled),
        )
    return Verdicts(commit, invalid, settled, withdrawn)


def arrivals(settled: list[Pending]) -> list[int]:
    """The arrival numbers of batches that were handed in: what was injected stands in no table of pending ones."""
    return [entry.arrival for entry in settled if entry.arrival != INJECTED]


def invalid_batch(entry: Pending, verdict: Rejected) -> InvalidBatch:
    """What is remembered of a batch that was judged INVALID."""
    return InvalidBatch(
        batch_id=entry.batch.id,
        reason=verdict.reason,
        message=verdict.message,
        transaction_id=verdict.transaction_id,
        extended_data=verdict.extended_data,
        family_name=verdict.family.name if verdict.family else "",
        family_version=verdict.family.version if verdict.family else "",
        transaction_ids=tuple(transaction.id for transaction in entry.batch.transactions),
    )
