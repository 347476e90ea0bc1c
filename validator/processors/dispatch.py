"""Handing the work of an execution to the processors that have room for it."""

from typing import Final

from validator.execution.executor import Execution
from validator.execution.model import Task
from validator.processors.registry import Processors

_SHARE_MIN: Final = 32
"""A task is not made smaller than this many transactions to give every processor one."""


def dispatch(execution: Execution, processors: Processors, packed_transactions_max: int) -> list[Task]:
    """Start all that may run now; withdraw what no processor is left for. Returns the tasks that were started."""
    started: list[Task] = []
    withdrawn = True
    while withdrawn:
        # What is withdrawn may set other families' work free.
        withdrawn = False
        for route in execution.ready_routes():
            while (processor := processors.free(route, migration=execution.migrates(route))) is not None:
                share = -(-execution.transactions_left // processors.count(route))
                most = min(packed_transactions_max, max(share, _SHARE_MIN), processor.transactions_max(route))
                task = execution.next_task(route, most, alone=processor.takes_alone)
                if task is None:
                    break
                if processors.start(processor, task, execution.view):
                    started.append(task)
                else:
                    execution.split(task)
            if not processors.has(route, migration=execution.migrates(route)):
                execution.withdraw(route)
                withdrawn = True
    return started
