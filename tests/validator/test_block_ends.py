"""When a block ends that has not finished, and how much the next then takes from the queue."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.limits import Limits
from protos.processor_pb2 import TpProcessResponse
from tests.validator.processors_support import Bench, Sent
from tests.validator.support import SIGNER, address, commit, make_batch, make_transaction, open_store, view_of
from validator.execution.executor import Execution
from validator.execution.model import TransactionOutcome, Verdict
from validator.mempool.queue import PendingQueue
from validator.metrics import Metrics
from validator.processors.dispatch import dispatch
from validator.production import Production

OK = TpProcessResponse(status=TpProcessResponse.OK)
PENDING, BLOCK_MAX = 1_000, 500
TIME_S = 1.5
"""More than a block may take."""

BATCHES = [make_batch(number, make_transaction(number, outputs=[address(number)])) for number in range(PENDING)]


def test_a_block_waits_for_old_work_only_while_some_of_it_comes() -> None:
    bench = Bench()
    bench.register(max_occupancy=4)
    before = Execution(view_of({}), BATCHES[:4], bench.limits)
    tasks = dispatch(before, bench.processors, 1)
    done = [[TransactionOutcome(Verdict.OK)]]
    before.complete(tasks[0], done, ("1cf126",))
    bench.answer(bench.take_sent()[1], OK)
    following = Execution(view_of({}), [*BATCHES[1:4], BATCHES[5]], bench.limits, resumed=before)
    (fresh,) = dispatch(following, bench.processors, 1)
    assert not following.held_up
    following.complete(fresh, done, ("1cf126",))
    assert following.held_up
    following.complete(tasks[1], done, ("1cf126",))
    # It is not slow, it is much.
    assert not following.held_up


class Line:
    """A node's production, its clock, and a 1.x processor that is given all that a block chose at once."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 0.0
        self.bench = Bench(Limits(block_transactions_max=BLOCK_MAX))
        self.bench.register(max_occupancy=PENDING)
        self.bench.take_sent()
        self.store = open_store(folder, self.bench.limits)
        commit(self.store, [make_batch("genesis")])
        queue, clock_s = PendingQueue(self.bench.limits), lambda: self.now_s
        self.production = Production(
            self.store,
            queue,
            self.bench.processors,
            SIGNER,
            self.bench.limits,
            clock_s,
            Metrics(self.bench.limits, clock_s),
        )
        self.store.add_pending([batch.raw for batch in BATCHES])
        for arrival, batch in enumerate(BATCHES):
            queue.add(arrival, batch)
        self.held: list[Sent] = []
        self.production.begin()

    def answer(self, count: int) -> None:
        """So many transactions are done, one after the other."""
        for _ in range(count):
            self.held += self.bench.take_sent()
            for event in self.bench.answer(self.held.pop(0), OK):
                self.production.take(event)
            self.production.advance()

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        while self.production.advance().more:
            pass

    @property
    def chosen(self) -> int:
        """How many batches the block in the making has."""
        candidate = self.production._executing
        assert candidate is not None
        return len(candidate.entries)


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    made = Line(tmp_path)
    yield made
    made.store.close()


def test_a_block_takes_twice_what_ran_in_the_time_of_the_one_before(line: Line) -> None:
    assert line.chosen == BLOCK_MAX
    line.answer(80)
    line.pass_s(TIME_S)
    carried = BLOCK_MAX - 80
    assert line.chosen == carried + 160
    # All of it in its time: twice as much next.
    line.answer(carried + 160)
    assert line.chosen == 320


def test_a_block_takes_some_however_few_ran(line: Line) -> None:
    line.answer(1)
    line.pass_s(TIME_S)
    assert line.chosen == BLOCK_MAX - 1 + 100
