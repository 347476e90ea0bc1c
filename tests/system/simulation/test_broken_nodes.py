"""Tests that the simulation finds broken nodes: each test breaks one part of the node, and some seed must fail."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail.ledger.errors import RefusedBatch
from dovetail.ledger.ids import BatchId
from dovetail.ledger.outcome import keep
from dovetail.validator.admission.submission import Submissions
from dovetail.validator.client_api.statuses import Statuses
from dovetail.validator.core.consensus.engine import CommitFailed, Effect, Event
from dovetail.validator.core.consensus.solo import SoloEngine
from dovetail.validator.core.execution import run
from dovetail.validator.core.execution.executor import Execution
from dovetail.validator.core.execution.schedule import _AccessIndex
from dovetail.validator.core.journal.rules import Body
from dovetail.validator.core.mempool.queue import Pending, PendingQueue, Reason
from dovetail.validator.node import Node
from dovetail.validator.processors.registry import Processors
from dovetail.validator.store import Store
from protos.client_batch_submit_pb2 import ClientBatchStatus, ClientBatchSubmitResponse
from tests.system.simulation.clock import Stuck
from tests.system.simulation.disk import Disk
from tests.system.simulation.model import Violated
from tests.system.simulation.world import run_world

SEEDS = 120
"""How many seeds are tried at most."""

Patch = pytest.MonkeyPatch


def answer_before_the_sync(patch: Patch) -> None:
    accept_checked = Submissions.accept_checked

    def early(self: Submissions) -> None:
        for request, verified in self._checked:
            if not isinstance(verified, RefusedBatch):
                ids = [batch.id for batch in verified]
                self._answer(request, ClientBatchSubmitResponse(status="OK", batch_ids=ids))
        answer, self._answer = self._answer, lambda request, response: None
        accept_checked(self)
        self._answer = answer

    patch.setattr(Submissions, "accept_checked", early)


def commit_without_sync(patch: Patch) -> None:
    """Commits are not synced, so a crash loses batches that were reported to clients."""
    opened = Disk._open
    patch.setattr(Disk, "_open", lambda self, path, **options: opened(self, path, **{**options, "sync": False}))


def report_committed_too_early(patch: Patch) -> None:
    """A batch is reported COMMITTED before its block is written."""
    status_of = Statuses._status

    def early(self: Statuses, text: str) -> ClientBatchStatus:
        entry = self._queue.get(BatchId(text))
        if entry is not None and entry.reason is Reason.EXECUTING:
            return ClientBatchStatus(batch_id=text, status=ClientBatchStatus.COMMITTED)
        return status_of(self, text)

    patch.setattr(Statuses, "_status", early)


def keep_settled_batches_pending(patch: Patch) -> None:
    put_invalid = Store._put_invalid
    patch.setattr(
        Store, "_put_invalid", lambda self, transaction, invalid, _: put_invalid(self, transaction, invalid, [])
    )


def restore_nothing(patch: Patch) -> None:
    patch.setattr(Store, "pending", lambda self: iter(()))


def run_in_any_order(patch: Patch) -> None:
    patch.setattr(_AccessIndex, "add", lambda self, index, batch: set())


def keep_writes_of_failed_batches(patch: Patch) -> None:
    finish = Execution._finish

    def kept(self: Execution, index: int, result: Any) -> None:
        self.changes.update(self._runs[index].changes)
        finish(self, index, result)

    patch.setattr(Execution, "_finish", kept)


def skip_the_check_of_writes(patch: Patch) -> None:
    anywhere = tuple("0123456789abcdef")
    patch.setattr(run, "keep", lambda *words: keep(words[0], words[1], anywhere, anywhere, *words[4:]))


def accept_answers_from_any_processor(patch: Patch) -> None:
    take_answer = Processors._take_answer

    def anybody(self: Processors, processor: Any, correlation_id: str, content: bytes) -> Any:
        key = correlation_id.partition(":")[0]
        holders = [entry for entry in self._connected.values() if key in entry.held]
        return take_answer(self, holders[0] if holders else processor, correlation_id, content)

    patch.setattr(Processors, "_take_answer", anybody)


def commit_a_transaction_again(patch: Patch) -> None:
    check = Body.check

    def blind(self: Body, batch: Any) -> Any:
        verdict = check(self, batch)
        return None if verdict is not None and getattr(verdict, "reason", "") == "duplicate_transaction" else verdict

    patch.setattr(Body, "check", blind)


def overlook_dependencies(patch: Patch) -> None:
    check = Body.check

    def blind(self: Body, batch: Any) -> Any:
        verdict = check(self, batch)
        return None if verdict is not None and verdict.reason == "waiting_for_dependency" else verdict

    patch.setattr(Body, "check", blind)


def overlook_activation(patch: Patch) -> None:
    patch.setattr(Body, "_bar", lambda self, family: None)


def never_wake_parked_batches(patch: Patch) -> None:
    patch.setattr(PendingQueue, "_wake", lambda self, cause: None)


def forget_tasks_of_lost_processors(patch: Patch) -> None:
    abandon = Execution.abandon

    def lost(self: Execution, task: Any, begun: bool) -> list[int]:
        indexes = abandon(self, task, begun)
        for index in indexes:
            self._runs[index].running = True
        return indexes

    patch.setattr(Execution, "abandon", lost)


def keep_tasks_that_follow_refused_writes(patch: Patch) -> None:
    """The result of a task counts although the task read refused writes."""
    patch.setattr(Execution, "_ended", lambda self, task, *, sound: None)


def build_on_what_the_disk_refused(patch: Patch) -> None:
    step = SoloEngine.step

    def going_on(self: SoloEngine, event: Event) -> list[Effect]:
        return [] if isinstance(event, CommitFailed) else step(self, event)

    patch.setattr(SoloEngine, "step", going_on)


def keep_what_the_disk_did_not_take(patch: Patch) -> None:
    accept_checked = Submissions.accept_checked

    def kept(self: Submissions) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self._queue, "remove", lambda entry: None)
            accept_checked(self)

    patch.setattr(Submissions, "accept_checked", kept)


def keep_waits_of_closed_connections(patch: Patch) -> None:
    patch.setattr(Node, "_on_disconnect", lambda self: None)


def miscount_the_queue(patch: Patch) -> None:
    remove = PendingQueue.remove

    def short(self: PendingQueue, entry: Pending) -> None:
        remove(self, entry)
        self.quota._held.transactions += len(entry.batch.transactions) - 1

    patch.setattr(PendingQueue, "remove", short)


BREAKS: Sequence[Callable[[Patch], None]] = (
    answer_before_the_sync,
    commit_without_sync,
    report_committed_too_early,
    keep_settled_batches_pending,
    restore_nothing,
    run_in_any_order,
    keep_writes_of_failed_batches,
    skip_the_check_of_writes,
    accept_answers_from_any_processor,
    commit_a_transaction_again,
    overlook_dependencies,
    overlook_activation,
    never_wake_parked_batches,
    forget_tasks_of_lost_processors,
    keep_tasks_that_follow_refused_writes,
    build_on_what_the_disk_refused,
    keep_what_the_disk_did_not_take,
    keep_waits_of_closed_connections,
    miscount_the_queue,
)


FIRST: dict[Callable[[Patch], None], int] = {accept_answers_from_any_processor: 35, build_on_what_the_disk_refused: 20}
"""The first seed to try, for faults that only few seeds find."""


@contextmanager
def broken(break_it: Callable[[Patch], None]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        break_it(patch)
        yield


@pytest.mark.parametrize("break_it", BREAKS, ids=lambda break_it: break_it.__name__)
def test_the_simulation_finds_a_broken_node(break_it: Callable[[Patch], None], tmp_path: Path) -> None:
    with broken(break_it):
        first = FIRST.get(break_it, 0)
        for seed in range(first, first + SEEDS):
            outcome = run_world(seed, tmp_path)
            if outcome.failure is not None:
                break
    assert outcome.failure is not None, f"{SEEDS} seeds found nothing"
    assert isinstance(outcome.failure, Violated | Stuck | AssertionError | KeyError), outcome.failure
    print(f"seed {seed}: {outcome.failure}")
