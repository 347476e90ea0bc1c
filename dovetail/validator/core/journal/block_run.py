"""Runs a given ordered list of batches to its end, and makes its block. Uses no queue, clock or processors.

The same list on the same state gives the same results on every node, whoever proposed it.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.execution.executor import Execution
from dovetail.validator.core.execution.model import Applied, Rejected, Result, Task, TransactionOutcome, Withdrawn
from dovetail.validator.core.journal.model import BlockCommit, CommittedBatch, InvalidBatch, invalid_batch
from dovetail.validator.core.journal.sealing import GivenSeal, OwnSeal, Parent
from dovetail.validator.core.state import merkle
from dovetail.validator.core.state.merkle import ReadNode
from dovetail.validator.core.state.view import View

_NO_REFUSALS: Final[Mapping[int, Rejected]] = {}


class Concluded(NamedTuple):
    """The outcome of a list of batches. ``commit``: what the store writes; None if no batch applied.

    ``results``: one for each batch; None if it is not finished, and later answers for it change nothing here.
    ``judged``: the batches that applied or are INVALID, in order.
    """

    commit: BlockCommit | None
    invalid: list[InvalidBatch]
    results: list[Result | None]
    judged: list[VerifiedBatch]


class BlockRun:
    """The batches of one block on their way through processors. All indexes are positions in ``batches``.

    ``base``: the state that the block builds on. ``refused``: batches that the rules on blocks refuse; they do not run.
    ``migrations``: batches that only migrating processors run. Each runs in its own task, as each of ``alone`` does.
    ``continues``: the previous proposal, which ended early; ``batches`` begins with its batches that still run.
    """

    def __init__(
        self,
        base: View,
        batches: Sequence[VerifiedBatch],
        limits: Limits,
        *,
        refused: Mapping[int, Rejected] = _NO_REFUSALS,
        migrations: frozenset[int] = frozenset(),
        alone: frozenset[int] = frozenset(),
        continues: "BlockRun | None" = None,
    ) -> None:
        self.batches = batches
        self.refused = refused
        self._base = base
        self._limits = limits
        self._indexes = [index for index in range(len(batches)) if index not in refused]
        """The index of each batch that runs."""
        self.migrations = migrations
        self._alone = migrations | alone
        self._execution = self._start(continues)
        self._owners: dict[int, Execution] = (
            dict.fromkeys(continues._owners, self._execution) if continues is not None else {}
        )
        """The execution of each running task, by the task's number."""

    def _start(self, continues: "BlockRun | None" = None) -> Execution:
        indexes = self._indexes
        return Execution(
            self._base,
            [self.batches[index] for index in indexes],
            self._limits,
            frozenset(place for place, index in enumerate(indexes) if index in self._alone),
            frozenset(place for place, index in enumerate(indexes) if index in self.migrations),
            continues._execution if continues is not None else None,
        )

    def restart(self) -> None:
        """Run everything again on the same state. Answers for tasks that still run change nothing."""
        self._execution.drop()
        self._execution = self._start()

    # Tasks

    def ready_routes(self) -> list[FamilyVersion]:
        """Families with work that may run now."""
        return self._execution.ready_routes()

    def migrates(self, route: FamilyVersion) -> bool:
        """Whether the next work of ``route`` is its migration."""
        return self._execution.migrates(route)

    @property
    def transactions_left(self) -> int:
        """How many transactions the batches without a result hold."""
        return self._execution.transactions_left

    def next_task(
        self, route: FamilyVersion, transactions_max: int, *, alone: bool = True, behind: int | None = None
    ) -> Task | None:
        """The next work for a processor of ``route`` (see ``Execution.next_task``)."""
        task = self._execution.next_task(route, transactions_max, alone=alone, behind=behind)
        if task is not None:
            self._owners[task.number] = self._execution
        return task

    def view(self, batch: int) -> View:
        """The state before a batch's next transaction (see ``Execution.view``)."""
        return self._execution.view(batch)

    def complete(
        self, task: Task, outcomes: Sequence[Sequence[TransactionOutcome]], namespaces: tuple[str, ...]
    ) -> None:
        """Take a processor's answers (see ``Execution.complete``)."""
        self._owners.pop(task.number).complete(task, outcomes, namespaces)

    def abandon(self, task: Task, begun: bool) -> list[int]:
        """A task was lost with its processor (see ``Execution.abandon``). Returns the indexes of its batches."""
        owner = self._owners.pop(task.number)
        places = owner.abandon(task, begun)
        if owner is not self._execution:
            return []
        indexes = [self._indexes[place] for place in places]
        if begun:
            self._alone |= frozenset(indexes)
        return indexes

    def split(self, task: Task) -> None:
        """A task is too large for one message: its batches run again, each in a task of its own."""
        self._owners.pop(task.number).split(task)

    def withdraw(self, route: FamilyVersion) -> None:
        """Call when ``route`` has no processor. The batches that need one end without a verdict."""
        self._execution.withdraw(route)

    def reject(self, index: int, verdict: Rejected | Withdrawn) -> None:
        """Keep a batch out of the block, whatever its processor answers."""
        self._execution.reject(self._indexes.index(index), verdict)

    def drop(self) -> None:
        """End the run without results. Running tasks can no longer read state."""
        self._execution.drop()

    # Results

    @property
    def finished(self) -> bool:
        """Whether every batch has a result."""
        return self._execution.finished

    @property
    def left(self) -> int:
        """How many batches have no result yet."""
        return self._execution.left

    @property
    def only_carried_tasks_run(self) -> bool:
        """Whether some batches have results, and earlier runs started all running tasks."""
        return self._execution.only_carried_tasks_run

    @property
    def changes(self) -> Mapping[str, bytes | None]:
        """The merged changes of the applied batches: address to new value, None removes."""
        return self._execution.changes

    def running(self) -> list[int]:
        """Indexes of the batches without a result whose running task may bring one."""
        return [self._indexes[place] for place in self._execution.running()]

    def not_finished(self) -> list[int]:
        """Indexes of the batches without a result."""
        return [self._indexes[place] for place in self._execution.not_finished()]

    def results(self) -> list[Result | None]:
        """One result for each batch, in the order of ``batches``; None if it is not finished."""
        results = self._execution.results()
        if not self.refused:
            return results
        ran = iter(results)
        return [self.refused[index] if index in self.refused else next(ran) for index in range(len(self.batches))]

    def withdrawn(self) -> dict[int, Withdrawn]:
        """The batches that ended without a verdict, by index."""
        return {index: result for index, result in enumerate(self.results()) if isinstance(result, Withdrawn)}

    def conclude(self, parent: Parent, read_node: ReadNode, sealing: OwnSeal | GivenSeal) -> Concluded:
        """Make the block of all batches that applied: one pass over the trie, one header. Raises WrongSeal."""
        applied: list[CommittedBatch] = []
        invalid: list[InvalidBatch] = []
        judged: list[VerifiedBatch] = []
        results = self.results()
        for batch, result in zip(self.batches, results, strict=True):
            if isinstance(result, Applied):
                ids = (transaction.id for transaction in batch.transactions)
                applied.append(CommittedBatch(batch.id, batch.raw, tuple(zip(ids, result.receipts, strict=True))))
                judged.append(batch)
            elif isinstance(result, Rejected):
                invalid.append(invalid_batch(batch, result))
                judged.append(batch)
        commit = make_commit(parent, applied, self.changes, read_node, sealing)
        return Concluded(commit and commit._replace(invalid=invalid), invalid, results, judged)


def make_commit(
    parent: Parent,
    applied: list[CommittedBatch],
    changes: Mapping[str, bytes | None],
    read_node: ReadNode,
    sealing: OwnSeal | GivenSeal,
) -> BlockCommit | None:
    """The block of these batches, which made ``changes`` together; None if there are no batches. Raises WrongSeal."""
    state = merkle.update(read_node, parent.root, changes, parent.next_node)
    block = sealing.block(parent, applied, state.root)
    if block is None:
        return None
    return BlockCommit(block, applied, state.root, state.nodes, state.superseded, invalid=[], settled=[])
