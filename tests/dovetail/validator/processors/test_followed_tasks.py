"""Tasks that a packed processor gets before it has answered the task that they follow, and their outcomes."""

from collections.abc import Sequence

import pytest

from dovetail.validator.core.execution.model import Applied, Rejected, Task, TransactionOutcome, Verdict
from dovetail.validator.core.journal.block_run import BlockRun
from dovetail.validator.processors.dispatch import dispatch
from protos import packed_pb2
from tests.dovetail.validator.processors_support import Bench
from tests.dovetail.validator.support import address, make_batch, make_transaction, view_of

HOT, COLD, NOBODYS = address(1), address(2), "f" * 70
NAMESPACES = ("1cf126",)
HOT_BATCHES = [make_batch(name, make_transaction(name, inputs=[HOT], outputs=[HOT])) for name in "abcdef"]
COLD_BATCH = make_batch("cold", make_transaction("cold", inputs=[COLD], outputs=[COLD]))


class Chain:
    """Batches at one processor, each of which depends on the batch before. Requests are recorded by task."""

    def __init__(self, batches: Sequence[object] = HOT_BATCHES, packed_version: int = 2, occupancy: int = 4) -> None:
        self.bench = Bench()
        self.bench.register(packed_version=packed_version, max_occupancy=occupancy)
        self.bench.take_sent()
        self.execution = BlockRun(view_of({HOT: b""}), batches, self.bench.limits)  # type: ignore[arg-type]
        self.sent: dict[int, object] = {}

    def give(self) -> list[Task]:
        tasks = dispatch(self.execution, self.bench.processors, 256)
        self.sent |= dict(zip([task.number for task in tasks], self.bench.take_sent(), strict=True))
        return tasks

    def request(self, task: Task) -> packed_pb2.PackedProcessRequest:
        return self.sent[task.number].message  # type: ignore[attr-defined,no-any-return]

    def answer(self, task: Task, *values: bytes | Verdict | str | None) -> None:
        """Answer a task.

        Each value is a unit's write at HOT, its verdict, another address that it writes, or None: no result.
        """
        outcomes = []
        for value in values:
            if isinstance(value, bytes):
                outcomes.append([TransactionOutcome(Verdict.OK, changes={HOT: value})])
            elif isinstance(value, Verdict):
                outcomes.append([TransactionOutcome(value)])
            elif value is not None:
                outcomes.append([TransactionOutcome(Verdict.OK, changes={value: b"stolen"})])
            else:
                outcomes.append([])
        self.bench.answer(self.sent[task.number], b"")  # type: ignore[arg-type]
        self.execution.complete(task, outcomes, NAMESPACES)


def held(task: Task) -> list[int]:
    return [unit.batch for unit in task.units]


def test_what_waits_for_a_task_alone_follows_it() -> None:
    chain = Chain()
    first, second = chain.give()
    assert [(held(task), task.follows) for task in (first, second)] == [([0, 1], None), ([2, 3], first.number)]
    assert chain.request(first).follows == ""
    assert chain.request(second).follows == chain.request(first).context_id
    chain.answer(first, b"a", b"b")
    (third,) = chain.give()
    assert (held(third), third.follows) == ([4, 5], second.number)
    # The entry holds the state before the second task. The field ``follows`` names the task whose writes come on top.
    assert [(entry.address, entry.data) for entry in chain.request(third).entries] == [(HOT, b"b")]
    chain.answer(second, b"c", b"d")
    chain.answer(third, b"e", b"f")
    assert chain.execution.finished
    assert chain.execution.changes == {HOT: b"f"}


@pytest.mark.parametrize("packed_version", [0, 1])
def test_nothing_follows_at_a_processor_that_knows_no_following(packed_version: int) -> None:
    assert len(Chain(packed_version=packed_version).give()) == 1


def test_what_waits_for_nothing_follows_nothing() -> None:
    chain = Chain([HOT_BATCHES[0], COLD_BATCH], occupancy=2)
    assert [(held(task), task.follows) for task in chain.give()] == [([0], None), ([1], None)]


@pytest.mark.parametrize("second", ["x", None], ids=["wrote where it may not", "said nothing"])
def test_what_followed_what_did_not_come_true_runs_again(second: str | None) -> None:
    chain = Chain()
    first, following = chain.give()
    chain.answer(first, b"a", NOBODYS if second else None)
    chain.answer(following, b"wrong", b"wrong")
    assert chain.execution.changes == {HOT: b"a"}
    (again,) = chain.give()[:1]
    assert held(again) == [2, 3]
    assert chain.request(again).entries[0].data == b"a"
    chain.answer(again, b"c", b"d")
    assert chain.execution.changes == {HOT: b"d"}
    assert isinstance(chain.execution.results()[1], Rejected) == bool(second)


def test_what_its_processor_failed_itself_leaves_the_following_sound() -> None:
    chain = Chain()
    first, following = chain.give()
    chain.answer(first, b"a", Verdict.INVALID)
    chain.answer(following, b"c", b"d")
    assert chain.execution.changes == {HOT: b"d"}


def test_answers_in_the_wrong_order_are_not_believed() -> None:
    chain = Chain()
    first, following = chain.give()
    chain.answer(following, b"wrong", b"wrong")
    assert chain.execution.changes == {}
    # No task is sent, because it is unclear which task the processor applied last.
    assert chain.give() == []
    chain.answer(first, b"a", b"b")
    assert [(held(task), task.follows is None) for task in chain.give()] == [([2, 3], True), ([4, 5], False)]


def test_what_follows_what_was_lost_is_not_believed() -> None:
    chain = Chain()
    first, following = chain.give()
    chain.execution.abandon(first, begun=False)
    chain.answer(following, b"wrong", b"wrong")
    assert chain.execution.changes == {}


def test_nothing_follows_what_is_not_sound() -> None:
    chain = Chain()
    first, following = chain.give()
    chain.answer(first, NOBODYS, b"b")
    (again,) = chain.give()
    # The second unit of the first task runs again, and the units that depend on it are still in flight.
    assert (held(again), again.follows) == ([1], None)
    chain.answer(following, b"wrong", b"wrong")
    chain.answer(again, b"b")
    assert chain.execution.changes == {HOT: b"b"}


def test_a_batch_of_two_families_is_not_followed() -> None:
    two = make_batch(
        "two",
        make_transaction("one", inputs=[HOT], outputs=[HOT]),
        make_transaction("other", inputs=[HOT], outputs=[HOT], family=("other", "2.0")),
    )
    chain = Chain([two, *HOT_BATCHES])
    chain.bench.register(identity=b"q", family=two.transactions[1].family)
    chain.bench.take_sent()
    assert [held(task) for task in chain.give()] == [[0]]


def test_what_will_run_again_is_not_carried_into_the_next_block() -> None:
    """The following task is not carried either, because its batches may depend on a batch that runs again."""
    chain = Chain()
    first, following = chain.give()
    chain.answer(first, NOBODYS, b"b")
    assert chain.execution.running() == []
    resumed = BlockRun(view_of({HOT: b""}), HOT_BATCHES[1:], chain.bench.limits, continues=chain.execution)
    chain.execution.drop()
    chain.execution = resumed
    chain.answer(following, b"wrong", b"wrong")
    assert chain.execution.changes == {}
    (again, _) = chain.give()
    assert held(again) == [0, 1]


def test_tasks_that_are_carried_follow_each_other_still() -> None:
    chain = Chain([*HOT_BATCHES[:4], COLD_BATCH])
    first, following = chain.give()
    resumed = BlockRun(view_of({HOT: b""}), HOT_BATCHES[:4], chain.bench.limits, continues=chain.execution)
    chain.execution = resumed
    chain.answer(first, b"a", NOBODYS)
    chain.answer(following, b"wrong", b"wrong")
    assert chain.execution.changes == {HOT: b"a"}
    assert isinstance(chain.execution.results()[0], Applied)
