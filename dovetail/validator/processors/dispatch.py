"""Gives the ready tasks of a block run to processors with free capacity."""

from typing import Final

from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.execution.model import Task
from dovetail.validator.core.journal.block_run import BlockRun
from dovetail.validator.processors.processor import Processor
from dovetail.validator.processors.registry import Processors

_SHARE_MIN: Final = 32
"""A task gets at least this many transactions before work is split among more processors."""


def dispatch(run: BlockRun, processors: Processors, packed_transactions_max: int) -> list[Task]:
    """Start every task that may run now, and withdraw work without a processor. Returns the started tasks."""
    started: list[Task] = []
    withdrawn = True
    while withdrawn:
        # A withdrawal may make work of other families ready.
        withdrawn = False
        for route in dict.fromkeys([*run.ready_routes(), *processors.routes_to_follow()]):
            while (given := _next(run, processors, route, packed_transactions_max)) is not None:
                processor, task = given
                if processors.start(processor, task, run.view):
                    started.append(task)
                else:
                    run.split(task)
            if route in run.ready_routes() and not processors.has(route, migration=run.migrates(route)):
                run.withdraw(route)
                withdrawn = True
    return started


def _next(
    run: BlockRun, processors: Processors, route: FamilyVersion, packed_transactions_max: int
) -> tuple[Processor, Task] | None:
    """The next task of a family, and its processor: of those that may run a task now, the one with the fewest tasks."""
    takers = processors.free(route, migration=run.migrates(route))
    if not takers:
        return None
    share = max(_SHARE_MIN, -(-run.transactions_left // processors.count(route)))
    tried: set[tuple[int | None, bool]] = set()
    for processor in takers:
        behind = processor.followed.number if processor.followed is not None else None
        # The result of ``next_task`` depends on this pair only.
        if (behind, processor.takes_alone) in tried:
            continue
        tried.add((behind, processor.takes_alone))
        most = min(packed_transactions_max, share, processor.transactions_max(route))
        task = run.next_task(route, most, alone=processor.takes_alone, behind=behind)
        if task is not None:
            return processor, task
    return None
