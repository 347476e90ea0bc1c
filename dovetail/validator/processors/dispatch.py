"""Handing the work of an execution to the processors that have room for it."""

from typing import Final

from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.execution.executor import Execution
from dovetail.validator.core.execution.model import Task
from dovetail.validator.processors.processor import Processor
from dovetail.validator.processors.registry import Processors

_SHARE_MIN: Final = 32
"""A task is not made smaller than this many transactions to give every processor one."""


def dispatch(execution: Execution, processors: Processors, packed_transactions_max: int) -> list[Task]:
    """Start all that may run now; withdraw what no processor is left for. Returns the tasks that were started."""
    started: list[Task] = []
    withdrawn = True
    while withdrawn:
        # What is withdrawn may set other families' work free.
        withdrawn = False
        for route in dict.fromkeys([*execution.ready_routes(), *processors.routes_behind()]):
            while (given := _next(execution, processors, route, packed_transactions_max)) is not None:
                processor, task = given
                if processors.start(processor, task, execution.view):
                    started.append(task)
                else:
                    execution.split(task)
            if route in execution.ready_routes() and not processors.has(route, migration=execution.migrates(route)):
                execution.withdraw(route)
                withdrawn = True
    return started


def _next(
    execution: Execution, processors: Processors, route: FamilyVersion, packed_transactions_max: int
) -> tuple[Processor, Task] | None:
    """The next task of a family, and the processor for it: the one with the fewest, or another that may take more."""
    takers = processors.with_room(route, migration=execution.migrates(route))
    if not takers:
        return None
    share = max(_SHARE_MIN, -(-execution.transactions_left // processors.count(route)))
    tried: set[tuple[int | None, bool]] = set()
    for processor in takers:
        behind = processor.followed.number if processor.followed is not None else None
        may_take = behind, processor.takes_alone
        if may_take in tried:
            continue
        tried.add(may_take)
        most = min(packed_transactions_max, share, processor.transactions_max(route))
        task = execution.next_task(route, most, alone=processor.takes_alone, behind=behind)
        if task is not None:
            return processor, task
    return None
