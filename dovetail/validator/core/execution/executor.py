"""Executes the batches of a block: chooses tasks for processors, and merges the answers into state changes.

Does no I/O. ``run`` checks the answer for one batch. Sending tasks to processors does not belong here.
"""

from collections import defaultdict
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, NamedTuple

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.execution.model import (
    Applied,
    Rejected,
    Result,
    Task,
    TransactionOutcome,
    Unit,
    Verdict,
    Withdrawn,
)
from dovetail.validator.core.execution.run import BatchView, Run
from dovetail.validator.core.execution.schedule import Dependent, schedule
from dovetail.validator.core.state.view import Changed, View

_task_numbers: Final = count(1)


class _RunningTask(NamedTuple):
    """A task at a processor.

    ``indexes``: the batch of each unit; None for a batch that got its result in an earlier execution.
    """

    indexes: list[int | None]
    no_follower_at: dict[FamilyVersion, int]
    """By family: the execution's revision at which no batch of the family could follow this task."""


class Execution:
    """The batches of one block over ``base``, the state that it builds on.

    ``alone``: indexes of batches that get a task of their own, because a processor was lost while it held them.
    ``migrations``: indexes of batches that only migrating processors run.
    ``resumed``: the execution of the previous block, which ended early. ``batches`` begins with the batches that
    ``resumed`` still runs. Their tasks continue, and conflicting batches wait for them, so their inputs do not change.
    """

    def __init__(
        self,
        base: View,
        batches: Sequence[VerifiedBatch],
        limits: Limits,
        alone: frozenset[int] = frozenset(),
        migrations: frozenset[int] = frozenset(),
        resumed: "Execution | None" = None,
    ) -> None:
        self._limits = limits
        carried = resumed.running() if resumed else []
        self._runs: list[Run] = [resumed._runs[old] for old in carried] if resumed else []
        self._runs += [
            Run(batches[index], index in alone, index in migrations) for index in range(len(carried), len(batches))
        ]
        places = {old: new for new, old in enumerate(carried)}
        self._tasks: dict[int, _RunningTask] = {
            number: _RunningTask([None if old is None else places.get(old) for old in task.indexes], {})
            for number, task in (resumed._tasks.items() if resumed else ())
        }
        self._unsound: set[int] = set(resumed._unsound) if resumed else set()
        """Tasks that must run again: they follow a task whose effects the execution did not merge."""
        self._carried_tasks = set(self._tasks)
        """The running tasks that an earlier execution started."""
        self._revision = 0
        """Grows with every change that may allow a batch to follow a running task."""
        self._follower: dict[int, int] = dict(resumed._follower) if resumed else {}
        """By running task: the task that follows it."""
        self._results: list[Result | None] = [None] * len(batches)
        order = schedule(batches)
        self._waits_for = order.waits_for
        self._frees = order.frees
        self._dependents = order.dependents
        self._ready: defaultdict[FamilyVersion, list[int]] = defaultdict(list)
        self._batches = batches
        self.left = len(batches)
        """How many batches have no result yet."""
        self.transactions_left = sum(len(batch.transactions) for batch in batches)
        """How many transactions the batches without a result hold."""
        self.changes: dict[str, bytes | None] = {}
        """The merged changes of the applied batches: address to new value, None removes."""
        self._state = Changed(base, self.changes)
        for run in self._runs:
            run.state = self._state
        for index in range(len(batches)):
            self._make_ready(index)

    @property
    def finished(self) -> bool:
        return not self.left

    @property
    def only_carried_tasks_run(self) -> bool:
        """Whether some batches have results, and earlier executions started all running tasks."""
        return 0 < self.left < len(self._runs) and len(self._tasks) == len(self._carried_tasks)

    def results(self) -> list[Result | None]:
        """The result of each batch, in order; None for the unfinished."""
        return list(self._results)

    def running(self) -> list[int]:
        """Indexes of the batches without a result whose running task may bring one."""
        again = {index for number in self._unsound for index in self._tasks[number].indexes}
        return [index for index in self.not_finished() if self._runs[index].running and index not in again]

    def not_finished(self) -> list[int]:
        """Indexes of the batches without a result."""
        return [index for index, result in enumerate(self._results) if result is None]

    def reject(self, index: int, verdict: Rejected | Withdrawn) -> None:
        """Keep a batch out of the block, whatever its processor answers."""
        self._finish(index, verdict)

    def migrates(self, route: FamilyVersion) -> bool:
        """Whether the next work of ``route`` is its migration."""
        ready = self._ready[route]
        while ready and (self._results[ready[0]] is not None or self._runs[ready[0]].running):
            heappop(ready)
        return bool(ready) and self._runs[ready[0]].migration

    def ready_routes(self) -> list[FamilyVersion]:
        """Families with work that may run now."""
        return [route for route, waiting in self._ready.items() if waiting]

    def view(self, batch: int) -> View:
        """The state before the next transaction of a batch.

        The entries that the batch's inputs cover stay the same until its task completes, because conflicting batches
        wait, also in the execution that resumes this one. Reading raises NotExecuting if the batch has a result or the
        execution was dropped.
        """
        return BatchView(self._runs[batch])

    def drop(self) -> None:
        """End the execution without results. Running tasks can no longer read state."""
        for run in self._runs:
            run.state = None

    def next_task(
        self, route: FamilyVersion, transactions_max: int, *, alone: bool = True, behind: int | None = None
    ) -> Task | None:
        """Start the next task for a processor of ``route``, with as many units as fit; None if no batch may run.

        A batch that waits only for batches of the same task enters that task. ``alone``: whether the task may hold a
        batch that needs its own task. ``behind``: the number of a task that the same processor runs first. Batches that
        wait only for batches of both tasks may enter the new task, which then follows that task.
        """
        ready = self._ready[route]
        followed = self._tasks.get(behind) if behind is not None and behind not in self._unsound else None
        if not ready and (followed is None or followed.no_follower_at.get(route) == self._revision):
            return None
        passed: list[int] = []
        ahead = self._blocked_by(followed)
        waiting = [index for index, count in ahead.items() if self._may_follow(index, count, route)]
        heapify(waiting)
        follows: int | None = None
        own: dict[int, int] = {}
        units: list[Unit] = []
        transactions = data_bytes = 0
        while ready or waiting:
            source = waiting if waiting and (not ready or waiting[0] < ready[0]) else ready
            index = source[0]
            run = self._runs[index]
            if self._results[index] is not None or run.running:
                heappop(source)
                continue
            if run.alone and not alone:
                heappop(source)
                if source is ready:
                    passed.append(index)
                continue
            transactions += len(run.transactions)
            data_bytes += sum([len(transaction.raw) for transaction in run.transactions])
            full = transactions > transactions_max or data_bytes > self._limits.packed_bytes_max
            if units and (full or run.alone):
                break
            heappop(source)
            run.running = True
            units.append(Unit(index, run.batch_id, run.transactions))
            if self._waits_for[index] > own.get(index, 0):
                follows = behind
            if run.alone or transactions_max <= 1:
                break
            if len(run.segments) == 1:
                for follower in self._frees[index]:
                    own[follower] = own.get(follower, 0) + 1
                    if self._may_follow(follower, own[follower] + ahead.get(follower, 0), route):
                        heappush(waiting, follower)
        for index in passed:
            heappush(ready, index)
        if not units:
            if followed is not None:
                followed.no_follower_at[route] = self._revision
            return None
        first = self._runs[units[0].batch]
        task = Task(next(_task_numbers), route, tuple(units), first.alone, first.migration, follows)
        self._tasks[task.number] = _RunningTask([unit.batch for unit in units], {})
        if follows is not None:
            self._follower[follows] = task.number
        return task

    def _blocked_by(self, task: _RunningTask | None) -> dict[int, int]:
        """For each later batch: the number of earlier batches that block it and that ``task`` can finish."""
        blocked: dict[int, int] = {}
        for index in task.indexes if task else ():
            if index is not None and self._results[index] is None and len(self._runs[index].segments) == 1:
                for follower in self._frees[index]:
                    blocked[follower] = blocked.get(follower, 0) + 1
        return blocked

    def _may_follow(self, index: int, ahead: int, route: FamilyVersion) -> bool:
        """Whether a batch of ``route`` waits only for ``ahead`` batches, which the same processor runs first."""
        run = self._runs[index]
        shares = run.route == route and not (run.running or run.alone or run.migration)
        return shares and ahead == self._waits_for[index]

    def complete(
        self, task: Task, outcomes: Sequence[Sequence[TransactionOutcome]], namespaces: tuple[str, ...]
    ) -> None:
        """Merge the answers for a task: for each unit, outcomes of its transactions up to the first that is not OK.

        ``namespaces``: the namespaces that the processor registered. If the rules refuse an outcome with verdict OK,
        nothing of its batch is merged. Later units of the task, and a task that follows it, ran on the refused effects,
        so they run again.
        """
        running = self._remove(task)
        again = task.follows in self._tasks or task.number in self._unsound
        known = True
        for index, unit, unit_outcomes in zip(running.indexes, task.units, outcomes, strict=True):
            applied = bool(unit_outcomes) and unit_outcomes[-1].verdict is Verdict.OK
            # The processor may have applied a transaction for which it gave no outcome.
            known = known and bool(unit_outcomes) and (not applied or len(unit_outcomes) == len(unit.transactions))
            if index is None:
                again = again or applied
                continue
            run = self._runs[index]
            run.running = False
            if self._results[index] is not None:
                again = again or applied
            elif again:
                self._make_ready(index)
            else:
                failure = run.merge(unit, unit_outcomes, namespaces, self._limits)
                if failure is not None:
                    self._finish(index, failure)
                    again = applied
                elif run.position + 1 < len(run.segments):
                    run.position += 1
                    self._make_ready(index)
                else:
                    self.changes.update(run.changes)
                    self._finish(index, Applied(tuple(run.receipts)))
        self._ended(task.number, sound=known and not again)

    def abandon(self, task: Task, begun: bool) -> list[int]:
        """A task was lost with its processor. Returns the indexes of its batches.

        The batches run again. If the task was ``begun``, each batch gets a task of its own, because one of them may
        have ended the processor. If the begun task held only one batch for that reason, the batch is withdrawn instead.
        """
        indexes = [index for index in self._remove(task).indexes if index is not None]
        self._ended(task.number, sound=False)
        for index in indexes:
            run = self._runs[index]
            run.running = False
            if run.alone and begun:
                self._finish(index, Withdrawn("processor_lost", family=task.route))
            run.alone = run.alone or begun
            self._make_ready(index)
        return indexes

    def split(self, task: Task) -> None:
        """A task is too large for one message: its batches run again, each in a task of its own."""
        for index in self._remove(task).indexes:
            if index is not None:
                run = self._runs[index]
                run.running = False
                run.alone = True
                self._make_ready(index)

    def _remove(self, task: Task) -> _RunningTask:
        self._carried_tasks.discard(task.number)
        return self._tasks.pop(task.number)

    def _ended(self, task: int, *, sound: bool) -> None:
        """End a task. Unless it was ``sound``, a running task that follows it must run again."""
        self._unsound.discard(task)
        follower = self._follower.pop(task, None)
        if follower in self._tasks and not sound:
            self._unsound.add(follower)

    def withdraw(self, route: FamilyVersion) -> None:
        """Call when no processor of ``route`` is left. Withdraws the batches that need one and are in no task."""
        for index, run in enumerate(self._runs):
            if (
                self._results[index] is None
                and not run.running
                and any(name == route for name, _ in run.segments[run.position :])
            ):
                self._finish(index, Withdrawn("waiting_for_processor", family=route))
        self._ready[route].clear()

    def _make_ready(self, index: int) -> None:
        run = self._runs[index]
        self._revision += 1
        if not self._waits_for[index] and self._results[index] is None and not run.running:
            heappush(self._ready[run.route], index)

    def _finish(self, index: int, result: Result) -> None:
        """Set the result of a batch. If the batch has no effect, set the results of its dependents too."""
        if self._results[index] is not None:
            return
        self._settle(index, result)
        if isinstance(result, Applied):
            return
        without_effect = [(index, result)]
        while without_effect:
            failed, why = without_effect.pop()
            self._runs[failed].changes = {}
            for dependent in reversed(self._dependents[failed]):
                if self._results[dependent.batch] is None:
                    dependent_result = _result_of_dependent(why, dependent)
                    self._settle(dependent.batch, dependent_result)
                    without_effect.append((dependent.batch, dependent_result))

    def _settle(self, index: int, result: Result) -> None:
        self._results[index] = result
        self._runs[index].state = None
        self.left -= 1
        self.transactions_left -= len(self._batches[index].transactions)
        if self._frees[index] and not self._waits_for[index]:
            self._free(index)

    def _free(self, index: int) -> None:
        """Release the batches that wait for a batch with a result.

        A batch may get its result while it still waits for earlier batches. It then releases its followers only when
        the earlier batches have results, because it orders the followers behind them.
        """
        freed = [index]
        while freed:
            for follower in self._frees[freed.pop()]:
                self._waits_for[follower] -= 1
                self._revision += 1
                if self._waits_for[follower]:
                    continue
                if self._results[follower] is not None:
                    freed.append(follower)
                else:
                    self._make_ready(follower)


def _result_of_dependent(result: Rejected | Withdrawn, dependent: Dependent) -> Rejected | Withdrawn:
    if isinstance(result, Rejected):
        message = f"it depends on transaction {dependent.dependency}, which was judged invalid"
        return Rejected("dependency_invalid", message, dependent.transaction)
    return Withdrawn("waiting_for_dependency", dependency=dependent.dependency)
