"""The only place where transactions run: block building and block checking both drive an ``Execution``.

It is a value machine: ``next_task`` says what may run now, ``complete`` takes what a processor answered, ``changes``
and ``results`` are what the block makes of it. What may stand of an answer is
``dovetail.validator.core.execution.run``'s; who
carries tasks to processors, and when, is the shell's business.
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


class _Out(NamedTuple):
    """A task at a processor.

    ``indexes``: where the batches of its units stand; None for one that got its result in an execution before.
    """

    indexes: list[int | None]
    fruitless: dict[FamilyVersion, int]
    """By family: how far the execution had moved when nothing of it could follow this task."""


class Execution:
    """The batches of one block over ``base``, the state that it builds on.

    ``alone``: indexes of batches that get a task of their own, because a processor was lost while it held them.
    ``migrations``: indexes of batches that only processors run that migrate.
    ``resumed``: the execution of the block before, ended early: ``batches`` begins with those that processors still
    hold, and their tasks go on. What these read stays as it was, because whatever meets them waits for them here.
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
        carried = resumed.at_processors() if resumed else []
        self._runs: list[Run] = [resumed._runs[old] for old in carried] if resumed else []
        self._runs += [
            Run(batches[index], index in alone, index in migrations) for index in range(len(carried), len(batches))
        ]
        places = {old: new for new, old in enumerate(carried)}
        self._tasks: dict[int, _Out] = {
            number: _Out([None if old is None else places.get(old) for old in out.indexes], {})
            for number, out in (resumed._tasks.items() if resumed else ())
        }
        self._unsound: set[int] = set(resumed._unsound) if resumed else set()
        """Tasks that follow one whose processor believes of some batch what did not come true."""
        self._resumed_out = set(self._tasks)
        """The tasks that were out before, and still are."""
        self._moved = 0
        """Changes with whatever may let something follow a task."""
        self._follower: dict[int, int] = dict(resumed._follower) if resumed else {}
        """The task that follows each one which is out, where one does."""
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
        """How many transactions these hold."""
        self.changes: dict[str, bytes | None] = {}
        """What the applied batches changed, merged: address to new value, None removes."""
        self._state = Changed(base, self.changes)
        for run in self._runs:
            run.state = self._state
        for index in range(len(batches)):
            self._make_ready(index)

    @property
    def finished(self) -> bool:
        return not self.left

    @property
    def held_up(self) -> bool:
        """Whether some batches have results, and all work that is still out was out before this execution."""
        return 0 < self.left < len(self._runs) and len(self._tasks) == len(self._resumed_out)

    def results(self) -> list[Result | None]:
        """What became of each batch, in their order; None for the unfinished."""
        return list(self._results)

    def at_processors(self) -> list[int]:
        """Indexes of the batches without a result that are in a task which may bring one."""
        again = {index for number in self._unsound for index in self._tasks[number].indexes}
        return [index for index in self.not_finished() if self._runs[index].running and index not in again]

    def not_finished(self) -> list[int]:
        """Indexes of the batches without a result."""
        return [index for index, result in enumerate(self._results) if result is None]

    def reject(self, index: int, verdict: Rejected | Withdrawn) -> None:
        """A batch may no longer enter the block, whatever its processor will say."""
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
        """The state that the next transaction of a batch finds.

        What its inputs cover, single addresses and all that lies under a prefix, stays as it is until its task is
        completed, though others are merged meanwhile and the next execution takes over: whatever may write there waits.
        Where the batch got its result meanwhile, or the execution was dropped, reading raises Settled.
        """
        return BatchView(self._runs[batch])

    def drop(self) -> None:
        """Nothing comes of this execution: tasks that are out read nothing any more."""
        for run in self._runs:
            run.state = None

    def next_task(
        self, route: FamilyVersion, transactions_max: int, *, alone: bool = True, behind: int | None = None
    ) -> Task | None:
        """The next work for a processor of ``route``: one unit at least, more while they fit; None if nothing may run.

        A batch that waits only for batches of the same task travels with them. ``alone``: whether it may be one that
        must be alone. ``behind``: the number of a task that the same processor works off before it: what waits only for
        batches of the two may travel, and where something does, the task follows that one.
        """
        ready = self._ready[route]
        followed = self._tasks.get(behind) if behind is not None and behind not in self._unsound else None
        if not ready and (followed is None or followed.fruitless.get(route) == self._moved):
            return None
        passed: list[int] = []
        ahead = self._held_up_by(followed)
        waiting = [index for index, count in ahead.items() if self._next_behind(index, count, route)]
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
                    if self._next_behind(follower, own[follower] + ahead.get(follower, 0), route):
                        heappush(waiting, follower)
        for index in passed:
            heappush(ready, index)
        if not units:
            if followed is not None:
                followed.fruitless[route] = self._moved
            return None
        first = self._runs[units[0].batch]
        task = Task(next(_task_numbers), route, tuple(units), first.alone, first.migration, follows)
        self._tasks[task.number] = _Out([unit.batch for unit in units], {})
        if follows is not None:
            self._follower[follows] = task.number
        return task

    def _held_up_by(self, out: _Out | None) -> dict[int, int]:
        """How many batches of a task that is out hold up each later one: those that it can settle for good."""
        held_up: dict[int, int] = {}
        for index in out.indexes if out else ():
            if index is not None and self._results[index] is None and len(self._runs[index].segments) == 1:
                for follower in self._frees[index]:
                    held_up[follower] = held_up.get(follower, 0) + 1
        return held_up

    def _next_behind(self, index: int, ahead: int, route: FamilyVersion) -> bool:
        """Whether a batch waits for nothing but the ``ahead`` ones that go before it to a processor of ``route``."""
        run = self._runs[index]
        shares = run.route == route and not (run.running or run.alone or run.migration)
        return shares and ahead == self._waits_for[index]

    def complete(
        self, task: Task, outcomes: Sequence[Sequence[TransactionOutcome]], namespaces: tuple[str, ...]
    ) -> None:
        """Take the answers for a task: for each unit, outcomes of its transactions up to the first that is not OK.

        ``namespaces``: what the processor registered. What the processor believes applied and the rules refuse leaves
        nothing, and later units of the task, which saw it, run again; so does a task that follows it.
        """
        out = self._take_out(task)
        again = task.follows in self._tasks or task.number in self._unsound
        told = True
        for index, unit, unit_outcomes in zip(out.indexes, task.units, outcomes, strict=True):
            applied = bool(unit_outcomes) and unit_outcomes[-1].verdict is Verdict.OK
            # What it says nothing of it may have applied.
            told = told and bool(unit_outcomes) and (not applied or len(unit_outcomes) == len(unit.transactions))
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
        self._ended(task.number, sound=told and not again)

    def abandon(self, task: Task, begun: bool) -> list[int]:
        """A task went down with its processor; gives the indexes of its batches.

        They run again; if it was ``begun`` each in a task of its own, and one that was alone already is withdrawn: it
        may be what its processors die of.
        """
        indexes = [index for index in self._take_out(task).indexes if index is not None]
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
        for index in self._take_out(task).indexes:
            if index is not None:
                run = self._runs[index]
                run.running = False
                run.alone = True
                self._make_ready(index)

    def _take_out(self, task: Task) -> _Out:
        """It is out no more."""
        self._resumed_out.discard(task.number)
        return self._tasks.pop(task.number)

    def _ended(self, task: int, *, sound: bool) -> None:
        """A task that was handed over is out no more; unless it was ``sound``, what follows it ran over what is not so.

        What follows it may be out no more itself.
        """
        self._unsound.discard(task)
        follower = self._follower.pop(task, None)
        if follower in self._tasks and not sound:
            self._unsound.add(follower)

    def withdraw(self, route: FamilyVersion) -> None:
        """No processor of ``route`` is left: what needs one, and is not with one, stays pending."""
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
        self._moved += 1
        if not self._waits_for[index] and self._results[index] is None and not run.running:
            heappush(self._ready[run.route], index)

    def _finish(self, index: int, result: Result) -> None:
        """Give a batch its result, and those that depend on one without effect theirs."""
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
                    follows = _depends(why, dependent)
                    self._settle(dependent.batch, follows)
                    without_effect.append((dependent.batch, follows))

    def _settle(self, index: int, result: Result) -> None:
        self._results[index] = result
        self._runs[index].state = None
        self.left -= 1
        self.transactions_left -= len(self._batches[index].transactions)
        if self._frees[index] and not self._waits_for[index]:
            self._free(index)

    def _free(self, index: int) -> None:
        """Let those run that waited for a batch which has its result.

        One that got it before its turn still stands between those before and those behind it: they keep their order
        through it. So it frees nobody until it waits for nobody.
        """
        freed = [index]
        while freed:
            for follower in self._frees[freed.pop()]:
                self._waits_for[follower] -= 1
                self._moved += 1
                if self._waits_for[follower]:
                    continue
                if self._results[follower] is not None:
                    freed.append(follower)
                else:
                    self._make_ready(follower)


def _depends(result: Rejected | Withdrawn, dependent: Dependent) -> Rejected | Withdrawn:
    if isinstance(result, Rejected):
        message = f"it depends on transaction {dependent.dependency}, which was judged invalid"
        return Rejected("dependency_invalid", message, dependent.transaction)
    return Withdrawn("waiting_for_dependency", dependency=dependent.dependency)
