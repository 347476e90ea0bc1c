"""A sample of transactions runs at a second processor too, and differences between the answers are held."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from dovetail.ledger.batch import VerifiedTransaction
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.execution.model import NotExecuting, Task
from dovetail.validator.core.state.view import View
from dovetail.validator.processors.comparing import Comparisons, Difference
from dovetail.validator.processors.registry import ProcessorEvent, TaskAnswered, TaskLost
from protos import packed_pb2, processor_pb2, state_context_pb2
from protos.transaction_receipt_pb2 import StateChange
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.processors_support import FAMILY, STATE, Bench, Sent, make_task, touching
from tests.dovetail.validator.support import address, make_transaction, view_of

OK, INVALID, ERROR = (
    processor_pb2.TpProcessResponse.OK,
    processor_pb2.TpProcessResponse.INVALID_TRANSACTION,
    processor_pb2.TpProcessResponse.INTERNAL_ERROR,
)
LIMITS = Limits(task_answer_ms_max=10_000)


class Left:
    """The state of a batch that left its block."""

    def get(self, address: str) -> bytes | None:
        raise NotExecuting("it left")

    def under(self, prefix: str, after: str) -> Any:
        raise NotExecuting("it left")


class Compared:
    """A registry of processors, its messages, and the comparisons of the answers."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.bench = Bench(limits)
        self.comparisons = Comparisons(self.bench.processors, limits, lambda: self.bench.now_ms)
        self.state: dict[str, bytes] = dict(STATE)
        self.left = False

    def view(self, batch: int) -> View:
        return Left() if self.left else view_of(dict(self.state))

    def register(self, *identities: bytes, **fields: Any) -> None:
        for identity in identities:
            more = {"packed_version": 2, "build_id": f"of {identity.decode()}"} | fields
            self.bench.register(identity, FAMILY, **more)

    def give(self, task: Task, identity: bytes = b"a") -> Sent:
        """Give a task of a block to a processor. Returns the request."""
        processor = next(one for one in self.bench.processors.free(FAMILY) if one.identity == identity)
        self.bench.take_sent()
        assert self.bench.processors.start(processor, task, self.view)
        self.comparisons.given(task, self.view)
        (sent,) = self.bench.take_sent()
        return sent

    def answer(self, sent: Sent, *results: dict[str, Any]) -> Sent | None:
        """Answer a task. Returns the request of the second processor, if one is sent."""
        self.bench.take_sent()
        self.take(self.bench.answer(sent, answer_of(sent, *results)))
        second = [one for one in self.bench.take_sent() if one.message_type in (1000, Envelope.TP_PROCESS_REQUEST)]
        return second[0] if second else None

    def take(self, events: Sequence[ProcessorEvent]) -> None:
        for event in events:
            if isinstance(event, TaskAnswered):
                self.comparisons.answered(event)
            elif isinstance(event, TaskLost):
                self.comparisons.lost(event.task)

    def run(self, task: Task, first: dict[str, Any], second: dict[str, Any]) -> list[Difference]:
        """Give a task to ``a``, let both answer, and return the differences."""
        asked = self.answer(self.give(task), first)
        assert asked is not None
        assert self.answer(asked, second) is None
        return self.comparisons.differences()

    @property
    def counts(self) -> Mapping[str, int]:
        return self.comparisons.counts


def answer_of(sent: Sent, *results: dict[str, Any]) -> Any:
    if sent.message_type == Envelope.TP_PROCESS_REQUEST:
        return processor_pb2.TpProcessResponse(**results[0])
    response = packed_pb2.PackedProcessResponse()
    unit = response.units.add()
    for result in results:
        unit.results.add(**result)
    return response


def writes(**values: bytes) -> dict[str, Any]:
    """OK, with a write at address 2 or 3 (``at2``, ``at3``); an empty value removes."""
    changes = [
        StateChange(address=address(int(name[2:])), value=value, type=StateChange.SET)
        if value
        else StateChange(address=address(int(name[2:])), type=StateChange.DELETE)
        for name, value in values.items()
    ]
    return {"status": OK, "state_changes": changes}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (writes(at2=b"x"), writes(at2=b"x")),
        (writes(at2=b"x", at3=b"y"), writes(at3=b"y", at2=b"x")),
        # Address 3 holds nothing, so its removal changes nothing.
        (writes(at3=b""), writes()),
        ({"status": INVALID, "message": "too late"}, {"status": INVALID, "message": "zu spät"}),
        # The rules of the ledger make a write outside the outputs INVALID.
        ({"status": INVALID}, writes(at1=b"outside")),
    ],
)
def test_answers_with_the_same_effect_are_the_same(first: dict[str, Any], second: dict[str, Any]) -> None:
    compared = Compared()
    compared.register(b"a", b"b")
    assert compared.run(make_task(1), first, second) == []
    assert compared.counts == {"same": 1}


@pytest.mark.parametrize(
    ("first", "second", "said", "answered"),
    [
        (writes(), {"status": INVALID, "message": "no"}, "OK, with 0 changes", "INVALID: no"),
        ({"status": INVALID, "message": "no"}, writes(at3=b"y"), "INVALID: no", "OK, with 1 changes"),
        (writes(at2=b"x"), writes(at2=b"y"), f"OK, with 78, 1 bytes at {address(2)}",
         f"OK, with 79, 1 bytes at {address(2)}"),
        (writes(at2=b""), writes(), f"OK, with removed at {address(2)}", f"OK, without a change at {address(2)}"),
        (writes() | {"data": [b"d"]}, writes(), "OK, with data (b'd',)", "OK, with data ()"),
        (writes() | {"events": [{"event_type": "e"}]}, writes(),
         "OK, with events (Event(event_type='e', attributes=(), data=b''),)", "OK, with events ()"),
    ],
)  # fmt: skip
def test_a_difference_is_held_and_logged_with_both_answers(
    first: dict[str, Any], second: dict[str, Any], said: str, answered: str
) -> None:
    compared = Compared()
    compared.register(b"a", b"b")
    task = make_task(1)
    with capture_logs() as lines:
        (found,) = compared.run(task, first, second)
    assert (found.first.answer, found.second.answer) == (said, answered)
    assert compared.counts == {"different": 1}
    (unit,) = task.units
    assert lines == [
        {
            "event": "processors judge differently", "log_level": "error", "family": "intkey 1.0",
            "batch_id": unit.batch_id, "transaction_id": unit.transactions[0].id,
            "first_connection": b"a".hex(), "first_build": "of a", "first_answer": said,
            "second_connection": b"b".hex(), "second_build": "of b", "second_answer": answered,
        }
    ]  # fmt: skip


def test_a_pair_that_differs_again_is_logged_once_and_counted_each_time() -> None:
    compared = Compared()
    compared.register(b"a", b"b")
    with capture_logs() as lines:
        for number in range(3):
            compared.run(make_task(number), writes(), {"status": INVALID})
            compared.bench.now_ms += 1_000
    assert (len(lines), compared.counts) == (1, {"different": 3})


@pytest.mark.parametrize("leaves", [b"a", b"b"])
@pytest.mark.parametrize(
    "leave", [Bench.unregister, lambda bench, name: (bench.gone.add(name), bench.processors.probe())]
)
def test_a_difference_ends_when_one_of_the_two_is_gone(leave: Callable[[Bench, bytes], object], leaves: bytes) -> None:
    compared = Compared()
    compared.register(b"a", b"b")
    assert compared.run(make_task(1), writes(), {"status": INVALID})
    compared.comparisons.tick()
    assert compared.comparisons.differences()
    leave(compared.bench, leaves)
    assert compared.comparisons.differences() == []
    compared.comparisons.tick()
    compared.register(b"a", b"b")
    assert compared.comparisons.differences() == []


@pytest.mark.parametrize(("first", "second"), [(0, 0), (0, 2), (2, 0), (2, 2)])
def test_the_second_reads_what_the_first_read_in_either_protocol(first: int, second: int) -> None:
    compared = Compared()
    compared.register(b"a", packed_version=first)
    compared.register(b"b", packed_version=second)
    sent = compared.give(make_task(1, [touching("x"), touching("y")]))
    # The block goes on, and its state with it.
    compared.state.clear()
    asked = compared.answer(sent, {"status": OK}, {"status": OK})
    if first == 0:
        assert asked is not None
        assert asked.identity == b"a"
        asked = compared.answer(asked, {"status": OK})
    assert asked is not None
    assert asked.identity == b"b"
    if second:
        assert [(entry.address, entry.data) for entry in asked.message.entries] == [(address(1), b"one")]
        (unit,) = asked.message.units
        assert len(unit.transactions) == 2
    else:
        get = state_context_pb2.TpStateGetRequest(context_id=asked.message.context_id, addresses=[address(1)])
        (entry,) = compared.bench.ask(b"b", Envelope.TP_STATE_GET_REQUEST, get).entries[:1]
        assert entry.data == b"one"
        asked = compared.answer(asked, {"status": OK})
        assert asked is not None
    compared.answer(asked, {"status": OK}, {"status": OK})
    assert compared.counts == {"same": 1}
    # What is only compared is counted at the first processor alone.
    assert [status.done for status in compared.bench.processors.statuses()] == [2, 0]


def test_between_two_samples_a_task_costs_no_reads_and_no_search_for_processors() -> None:
    compared = Compared()
    compared.register(b"a", b"b")
    counted = Counter[str]()
    count = compared.bench.processors.count

    def counting(family: FamilyVersion) -> int:
        counted["searches"] += 1
        return count(family)

    def reading(batch: int) -> View:
        counted["views"] += 1
        return view_of(STATE)

    compared.bench.processors.count = counting  # type: ignore[method-assign, assignment]
    for number in range(100):
        task = make_task(number)
        compared.comparisons.given(task, reading)
        compared.comparisons.lost(task)
        compared.bench.now_ms += 25
    assert counted == {"searches": 3, "views": 3}


def test_one_sample_a_second_of_each_family_and_none_with_a_limit_of_zero() -> None:
    for limits, expected in ((LIMITS, 3), (replace(LIMITS, comparisons_a_minute_max=0), 0)):
        compared = Compared(limits)
        compared.register(b"a", b"b")
        asked = 0
        for number in range(25):
            second = compared.answer(compared.give(make_task(number)), writes())
            if second is not None:
                asked += 1
                compared.answer(second, writes())
            compared.bench.now_ms += 100
        assert asked == expected


def test_who_is_alone_is_compared_with_nobody() -> None:
    compared = Compared()
    compared.register(b"a")
    assert compared.answer(compared.give(make_task(1)), writes()) is None
    # A second processor that comes later is compared from then on.
    compared.register(b"b")
    compared.bench.now_ms += 1_000
    assert compared.answer(compared.give(make_task(2)), writes()) is not None


@pytest.mark.parametrize(
    "task",
    [
        make_task(1)._replace(alone=True),
        make_task(1)._replace(migration=True),
        make_task(1)._replace(follows=7),
        make_task(1, [make_transaction("p", inputs=["1cf126"], outputs=[address(2)])]),
        make_task(1, [make_transaction("l", inputs=[address(1)], outputs=[address(2)], payload=bytes(2_000_000))]),
    ],
    ids=["alone", "migration", "follows", "prefix", "large"],
)
def test_what_is_no_sample(task: Task) -> None:
    compared = Compared()
    compared.register(b"a", b"b", migrates=True)
    compared.comparisons.given(task, compared.view)
    assert compared.comparisons._samples == {}


def test_a_sample_is_the_first_transactions_of_a_task() -> None:
    wide = make_transaction("wide", inputs=["1cf126"], outputs=[address(2)])
    for unit, limits, sampled in (
        ([touching(number) for number in range(5)], replace(LIMITS, comparison_transactions_max=3), 3),
        ([touching("a"), wide, touching("b")], LIMITS, 1),
        ([touching(number) for number in range(5)], LIMITS, 5),
    ):
        compared = Compared(limits)
        compared.register(b"a", b"b")
        transactions: Sequence[VerifiedTransaction] = unit
        second = compared.answer(
            compared.give(make_task(1, transactions, [touching("other")])), *[writes()] * len(unit)
        )
        assert second is not None
        (asked,) = second.message.units
        assert len(asked.transactions) == sampled


@pytest.mark.parametrize(("first", "second"), [(ERROR, OK), (OK, ERROR), (ERROR, INVALID)])
def test_no_verdict_is_not_compared(first: int, second: int) -> None:
    compared = Compared()
    compared.register(b"a", b"b")
    asked = compared.answer(compared.give(make_task(1)), {"status": first})
    assert (asked is None) == (first == ERROR)
    if asked is not None:
        compared.answer(asked, {"status": second})
    assert (compared.counts, compared.comparisons._samples) == ({}, {})


def test_an_answer_for_a_batch_that_left_its_block_is_not_compared() -> None:
    """Its processor was refused state, and may have judged it INVALID for that."""
    compared = Compared()
    compared.register(b"a", b"b")
    compared.state[address(1)] = b"one"
    live = compared.view(0)

    class Leaves:
        def get(self, address: str) -> bytes | None:
            return Left().get(address) if compared.left else live.get(address)

        def under(self, prefix: str, after: str) -> Any: ...

    task = make_task(1)
    sent = compared.bench.start(task)
    compared.comparisons.given(task, lambda _: Leaves())
    compared.left = True
    assert compared.answer(sent, {"status": INVALID}) is None
    assert compared.comparisons._samples == {}


def test_the_second_answer_has_time_until_the_deadline_and_its_loss_is_nothing() -> None:
    compared = Compared()
    compared.register(b"a", b"b")
    assert compared.answer(compared.give(make_task(1)), writes()) is not None
    compared.bench.now_ms += 10_001
    compared.bench.processors.mark_alive(b"b")
    compared.take(compared.bench.processors.tick())
    assert (compared.counts, compared.comparisons._samples) == ({}, {})
    # The second processor is stuck, so nobody is left to compare with.
    assert compared.answer(compared.give(make_task(2)), writes()) is None


def test_a_sample_waits_for_a_second_processor_with_capacity() -> None:
    compared = Compared()
    compared.register(b"a", b"b")
    busy = [compared.give(make_task(number), b"b") for number in (10, 11)]
    compared.bench.now_ms += 1_000
    # The sample of the busy one's first task ends with it.
    assert compared.answer(compared.give(make_task(1)), writes()) is None
    second = compared.answer(busy[0], writes())
    assert second is not None
    assert second.identity == b"a"
    compared.bench.gone.add(b"a")
    compared.take(compared.bench.processors.probe())
    compared.comparisons.tick()
    assert compared.comparisons._samples == {}


def test_a_sample_ends_with_the_last_second_processor() -> None:
    compared = Compared()
    compared.register(b"a", b"b")
    for number in (10, 11):
        compared.give(make_task(number)._replace(follows=1), b"b")
    assert compared.answer(compared.give(make_task(1)), writes()) is None
    assert compared.comparisons._waiting
    compared.bench.gone.add(b"b")
    compared.take(compared.bench.processors.probe())
    compared.comparisons.tick()
    assert (compared.comparisons._samples, compared.comparisons._waiting) == ({}, {})


def test_no_task_follows_a_comparison() -> None:
    """The next task of a packed processor would read the writes of the sample."""
    compared = Compared()
    compared.register(b"a", b"b")
    assert compared.answer(compared.give(make_task(1)), writes()) is not None
    second = next(one for one in compared.bench.processors.free(FAMILY) if one.identity == b"b")
    assert (second.followed, second.capacity) == (None, 1)


def test_each_processor_has_its_turn_as_the_second() -> None:
    compared = Compared()
    compared.register(b"a", b"b", b"c", b"d")
    seconds = []
    for number in range(6):
        second = compared.answer(compared.give(make_task(number)), writes())
        assert second is not None
        seconds.append(second.identity)
        compared.answer(second, writes())
        compared.bench.now_ms += 1_000
    assert {name: seconds.count(name) for name in (b"b", b"c", b"d")} == {b"b": 2, b"c": 2, b"d": 2}


def test_what_is_held_is_bounded() -> None:
    """A first answer that is too large to keep ends its sample."""
    compared = Compared(replace(LIMITS, comparison_bytes_max=10_000))
    compared.register(b"a", b"b")
    assert compared.answer(compared.give(make_task(1)), writes(at2=bytes(20_000))) is None
    assert compared.comparisons._samples == {}
    compared.bench.now_ms += 10_000
    compared.comparisons.tick()
    assert compared.comparisons._due_ms == {}
