"""Sends the tasks of block runs to processors, and their answers back to the runs. Decides nothing about blocks."""

from dovetail.validator.core.execution.model import Task
from dovetail.validator.core.journal.block_run import BlockRun
from dovetail.validator.processors.dispatch import dispatch
from dovetail.validator.processors.registry import Processors, TaskAnswered, TaskLost


class Driver:
    """Maps each running task to its block run."""

    def __init__(self, processors: Processors, packed_transactions_max: int) -> None:
        self._processors = processors
        self._packed_transactions_max = packed_transactions_max
        self._runs: dict[int, BlockRun] = {}

    @property
    def tasks_out(self) -> int:
        """The number of tasks that processors hold for runs that still need the answers."""
        return len(self._runs)

    def dispatch(self, run: BlockRun) -> list[Task]:
        """Give processors all work that may run now. Returns the started tasks."""
        tasks = dispatch(run, self._processors, self._packed_transactions_max)
        for task in tasks:
            self._runs[task.number] = run
        return tasks

    def complete(self, event: TaskAnswered) -> None:
        """Hand an answer to its run. The answer for a dropped run changes nothing."""
        run = self._runs.pop(event.task.number, None)
        if run is not None:
            run.complete(event.task, event.outcomes, event.namespaces)

    def abandon(self, event: TaskLost) -> tuple[BlockRun, list[int]] | None:
        """A task was lost. Returns its run and the indexes of its batches there; None if the run was dropped."""
        run = self._runs.pop(event.task.number, None)
        return None if run is None else (run, run.abandon(event.task, event.begun))

    def adopt(self, old: BlockRun, new: BlockRun) -> None:
        """Move the running tasks of ``old`` to ``new``, which continues it."""
        for number, run in self._runs.items():
            if run is old:
                self._runs[number] = new

    def drop(self, run: BlockRun) -> None:
        """End ``run`` without results, and forget its tasks."""
        run.drop()
        self._runs = {number: other for number, other in self._runs.items() if other is not run}
