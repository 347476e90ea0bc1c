"""When an unfinished block ends."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.validator.blocks.production import Production
from dovetail.validator.core.consensus.solo import SoloEngine
from dovetail.validator.core.journal import proposing
from dovetail.validator.core.mempool.queue import PendingQueue
from dovetail.validator.metrics import Metrics
from protos.processor_pb2 import TpProcessResponse
from tests.dovetail.validator.processors_support import Bench, Sent
from tests.dovetail.validator.support import (
    SIGNER,
    address,
    commit,
    make_batch,
    make_transaction,
    no_network,
    open_store,
)

OK = TpProcessResponse(status=TpProcessResponse.OK)
PENDING = 500
TIME_S = 1.5
"""More than the time limit of a block."""
COST_S = 0.1

BATCHES = [make_batch(number, make_transaction(number, outputs=[address(number)])) for number in range(PENDING)]


class Line:
    """A node's production, its clock, and a 1.x processor that holds all tasks of a block at one time."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 0.0
        self.bench = Bench()
        self.bench.register(max_occupancy=PENDING)
        self.bench.take_sent()
        self.store = open_store(folder, self.bench.limits)
        commit(self.store, [make_batch("genesis")])
        queue, clock_s = PendingQueue(self.bench.limits), lambda: self.now_s
        self.production = Production(
            self.store,
            queue,
            self.bench.processors,
            SoloEngine(1),
            no_network,
            SIGNER,
            self.bench.limits,
            clock_s,
            lambda: 0,
            Metrics(self.bench.limits, clock_s),
        )
        self.store.add_pending([batch.raw for batch in BATCHES])
        for arrival, batch in enumerate(BATCHES):
            queue.add(arrival, batch)
        self.held: list[Sent] = []
        self.production.advance()

    def answer(self, count: int) -> None:
        """Answer ``count`` transactions one after the other."""
        for _ in range(count):
            self.held += self.bench.take_sent()
            for event in self.bench.answer(self.held.pop(0), OK):
                self.production.on_processor_event(event)
            self.pass_s(0)

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        while self.production.advance().more:
            pass

    @property
    def head_num(self) -> int:
        head = self.store.head
        assert head is not None
        return head.num


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    made = Line(tmp_path)
    yield made
    made.store.close()


def test_a_block_that_only_carries_tasks_ends_with_the_first_result(line: Line) -> None:
    line.answer(80)
    line.pass_s(TIME_S)
    assert line.head_num == 1
    line.answer(3)
    assert line.head_num == 4


def test_a_block_stays_open_longer_than_its_choice_took(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = proposing.choose

    def costly(*arguments: Any) -> proposing.Candidate:
        line.now_s += COST_S
        return choose(*arguments)

    monkeypatch.setattr(proposing, "choose", costly)
    line.answer(80)
    line.pass_s(TIME_S)
    line.answer(40)
    assert line.head_num == 1
    line.pass_s(3 * COST_S)
    assert line.head_num == 2
    # A finished block ends at once.
    line.answer(PENDING - 120)
    assert line.head_num == 3
