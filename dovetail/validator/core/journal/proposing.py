"""Chooses the pending batches of the next proposal, by this node's queue, clock, processors and limits.

Everything that depends on this one node belongs here, not in ``block_run``. Nothing runs here.
"""

from collections.abc import Callable
from functools import cache
from itertools import filterfalse
from operator import attrgetter
from typing import Final, NamedTuple

from dovetail.ledger.batch import VerifiedBatch, VerifiedTransaction
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.execution.model import Rejected, Withdrawn
from dovetail.validator.core.journal.block_run import BlockRun
from dovetail.validator.core.journal.rules import Body
from dovetail.validator.core.mempool.queue import INJECTED, Pending, PendingQueue
from dovetail.validator.core.state.view import View

_family_of: Final[Callable[[VerifiedTransaction], FamilyVersion]] = attrgetter("family")


class Candidate(NamedTuple):
    """The pending batches that this node proposes, in order, and their run.

    ``started_ms``: when the node began to choose them, by its own clock.
    """

    entries: list[Pending]
    run: BlockRun
    started_ms: int


def choose(
    queue: PendingQueue,
    body: Body,
    base: View,
    has_processor: Callable[[FamilyVersion], bool],
    limits: Limits,
    now_ms: int,
    before: Candidate | None,
) -> Candidate:
    """Choose batches from the queue in order of arrival; park those that must wait.

    The proposal begins with the batches of ``before`` that still run. Other unfinished batches of ``before`` are queued
    again.
    """
    entries: list[Pending] = []
    if before is not None:
        held = before.run.running()
        entries = [before.entries[index] for index in held]
        for index in set(before.run.not_finished()).difference(held):
            queue.put_back(before.entries[index])
    carried: list[Rejected | Withdrawn | None] = []
    for entry in entries:
        verdict = body.check(entry.batch)
        if verdict is None and entry.arrival == INJECTED and not body.is_migration(entry.batch):
            # The permission has changed: the version no longer needs this migration.
            verdict = Withdrawn("waiting_for_activation", entry.batch.transactions[0].family)
        carried.append(verdict)
        body.include(entry.batch)
    refused: dict[int, Rejected] = {}
    has_processor = cache(has_processor)
    size = _Size(limits)
    while (ready := queue.pop_ready()) is not None:
        entry, batch = ready, ready.batch
        if not size.fits(batch):
            queue.put_back(entry)
            break
        verdict = body.check(batch)
        if isinstance(verdict, Rejected):
            refused[len(entries)] = verdict
            entries.append(entry)
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
    run = BlockRun(
        base,
        [entry.batch for entry in entries],
        limits,
        refused=refused,
        migrations=frozenset(index for index, entry in enumerate(entries) if entry.arrival == INJECTED),
        alone=frozenset(index for index, entry in enumerate(entries) if entry.alone),
        continues=before.run if before is not None else None,
    )
    for index, verdict in enumerate(carried):
        if verdict is not None:
            run.reject(index, verdict)
    return Candidate(entries, run, now_ms)


class _Size:
    """The size of a proposal so far, without the batches of the previous proposal that still run."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._transactions = self._bytes = self._addresses = 0

    def fits(self, batch: VerifiedBatch) -> bool:
        """Whether one more batch fits within the limits. The first batch always fits."""
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
    """Park a batch without a verdict by the reason for which it waits."""
    if verdict.family is not None and verdict.reason == "waiting_for_activation":
        queue.park_for_activation(entry, verdict.family, verdict.message)
    elif verdict.family is not None:
        queue.park_for_processor(entry, verdict.family)
    elif verdict.dependency is not None:
        queue.park_for_dependency(entry, verdict.dependency, dependency_due_ms)
    else:
        queue.put_back(entry)
