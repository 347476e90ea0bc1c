"""A task has a deadline: a processor that answers pings and not its task loses the task, and gets no other."""

from collections.abc import Callable

import pytest

from dovetail.ledger.limits import Limits
from dovetail.validator.core.execution.model import Task, TransactionOutcome, Verdict
from dovetail.validator.processors.registry import ProcessorAvailable, ProcessorUnavailable, TaskAnswered, TaskLost
from protos import packed_pb2, processor_pb2, state_context_pb2
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.processors_support import FAMILY, OTHER, Bench, Sent, make_task, touching

LIMITS = Limits(task_answer_ms_max=1_000)
OK = processor_pb2.TpProcessResponse(status="OK")
STUCK = ProcessorUnavailable((FAMILY,), "it is stuck: no answer to 1 transactions of intkey 1.0 within 1000 ms")


def packed_ok(transactions: int = 1) -> packed_pb2.PackedProcessResponse:
    response = packed_pb2.PackedProcessResponse()
    for _ in range(transactions):
        response.units.add().results.add(status=processor_pb2.TpProcessResponse.OK)
    return response


def pass_ms(bench: Bench, ms: int, *, busy: bytes = b"p") -> list[object]:
    """Let time pass, in which the processor answers every ping."""
    bench.now_ms += ms
    bench.processors.mark_alive(busy)
    return list(bench.processors.tick())


@pytest.mark.parametrize("packed_version", [0, 2])
def test_a_task_without_an_answer_is_lost_and_its_processor_gets_no_other(packed_version: int) -> None:
    bench = Bench(LIMITS)
    bench.register(packed_version=packed_version)
    task, behind = make_task(1), make_task(2)
    bench.start(task)
    bench.start(behind)
    assert pass_ms(bench, 1_000) == []
    # A 1.x processor may apply both at once, a packed one applies one after the other.
    assert pass_ms(bench, 1) == [STUCK, TaskLost(task, True), TaskLost(behind, not packed_version)]
    assert not bench.processors.has(FAMILY)
    assert not bench.processors.free(FAMILY)
    assert bench.processors.states() == {"stuck": 1}
    (stuck,) = bench.processors.stuck()
    assert (stuck.connection_id, stuck.family, stuck.transactions) == (b"p".hex(), FAMILY, 1)
    assert pass_ms(bench, 100_000) == []


@pytest.mark.parametrize("packed_version", [0, 2])
def test_a_late_answer_changes_nothing_but_that_the_processor_takes_work_again(packed_version: int) -> None:
    bench = Bench(LIMITS)
    bench.register(packed_version=packed_version)
    answer = packed_ok() if packed_version else OK
    sent = bench.start(make_task(1))
    pass_ms(bench, 1_001)
    assert bench.answer(sent, answer) == [ProcessorAvailable(FAMILY, bool(packed_version))]
    assert (bench.processors.states(), bench.processors.stuck()) == ({"takes_work": 1}, [])
    assert bench.answer(sent, answer) == []
    again = make_task(2)
    assert [type(event) for event in bench.answer(bench.start(again), answer)] == [TaskAnswered]


@pytest.mark.parametrize("packed_version", [0, 2])
def test_what_is_no_answer_to_its_task_leaves_it_stuck(packed_version: int) -> None:
    bench = Bench(LIMITS)
    bench.register(packed_version=packed_version)
    sent = bench.start(make_task(1))
    assert pass_ms(bench, 900) == []
    # Reads of state, and answers with other ids, begin no new time.
    get = state_context_pb2.TpStateGetRequest(context_id=sent.correlation_id)
    bench.handle(b"p", Envelope.TP_STATE_GET_REQUEST, get)
    key = sent.correlation_id.partition(":")[0]
    bench.handle(b"p", Envelope.TP_PROCESS_RESPONSE, OK, "somebody's")
    if not packed_version:
        bench.handle(b"p", Envelope.TP_PROCESS_RESPONSE, OK, f"{key}:7")
    assert STUCK in pass_ms(bench, 101)
    for answered in ("somebody's", f"{key}:7"):
        assert bench.handle(b"p", Envelope.TP_PROCESS_RESPONSE, OK, answered) == []
    assert bench.ask(b"p", Envelope.TP_STATE_GET_REQUEST, get).status == 2
    assert not bench.processors.has(FAMILY)


def test_who_registers_again_takes_work_of_all_its_families_again() -> None:
    bench = Bench(LIMITS)
    bench.register()
    bench.register(family=OTHER)
    bench.start(make_task(1))
    bench.now_ms += 1_001
    bench.processors.tick()
    assert not bench.processors.has(OTHER)
    assert bench.register() == [ProcessorAvailable(FAMILY, False), ProcessorAvailable(OTHER, False)]
    assert bench.register() == [ProcessorAvailable(FAMILY, False)]
    assert bench.free().capacity == 10


def test_the_time_of_a_task_begins_with_the_answer_to_the_one_before() -> None:
    """A serial processor that takes nearly the whole time for each of its tasks is never stuck."""
    bench = Bench(LIMITS)
    bench.register(max_occupancy=5)
    held = [bench.start(make_task(number)) for number in range(5)]
    for sent in held:
        assert pass_ms(bench, 1_000) == []
        bench.answer(sent, OK)
    assert pass_ms(bench, 5_000) == []
    bench.start(make_task(9))
    assert STUCK in pass_ms(bench, 1_001)


def test_each_transaction_of_a_conversation_has_its_own_time() -> None:
    """Its next transaction is behind the messages that the processor got meanwhile."""
    bench = Bench(LIMITS)
    bench.register()
    long, short = make_task(1, [touching("a"), touching("b")]), make_task(2)
    sent, other = bench.start(long), bench.start(short)
    assert pass_ms(bench, 1_000) == []
    assert bench.answer(sent, OK) == []
    (second,) = bench.take_sent()
    assert pass_ms(bench, 1_000) == []
    bench.answer(other, OK)
    assert pass_ms(bench, 1_000) == []
    outcomes = [[TransactionOutcome(Verdict.OK)] * 2]
    assert bench.answer(Sent(*second), OK) == [TaskAnswered(long, outcomes, ("1cf126",), (FAMILY,), b"p")]


def test_a_processor_that_answers_its_other_tasks_loses_only_the_one() -> None:
    """A processor of several threads, one of which hangs. The lost task takes up its thread."""
    bench = Bench(LIMITS)
    bench.register(max_occupancy=3)
    hanging = make_task(0)
    bench.start(hanging)
    events: list[object] = []
    for number in range(1, 12):
        sent = bench.start(make_task(number))
        events += pass_ms(bench, 100)
        events += bench.answer(sent, OK)
    lost = [event for event in events if not isinstance(event, TaskAnswered)]
    assert lost == [STUCK, TaskLost(hanging, True), ProcessorAvailable(FAMILY, False)]
    assert bench.free().capacity == 2


@pytest.mark.parametrize("leave", [Bench.unregister, lambda bench: bench.gone.add(b"p")])
def test_a_stuck_processor_that_leaves_is_forgotten(leave: Callable[[Bench], object]) -> None:
    bench = Bench(LIMITS)
    bench.register()
    bench.start(make_task(1))
    pass_ms(bench, 1_001)
    leave(bench)
    bench.processors.probe()
    assert (bench.processors.stuck(), bench.processors.states()) == ([], {})


def test_a_draining_processor_has_no_longer_than_others() -> None:
    bench = Bench(LIMITS)
    bench.register()
    task = make_task(1)
    bench.start(task)
    bench.unregister()
    assert TaskLost(task, True) in pass_ms(bench, 1_001)
    assert bench.processors.states() == {}


def test_a_task_has_as_long_as_its_transactions_took_before() -> None:
    """A large batch is one task, however slow its family is."""
    bench = Bench(LIMITS)
    bench.register(packed_version=2)
    sent = bench.start(make_task(1))
    bench.now_ms += 500
    bench.answer(sent, packed_ok())
    large = make_task(2, *([touching(number)] for number in range(20)))
    bench.start(large)
    assert pass_ms(bench, 1_000 + 4 * 500 * 20) == []
    assert TaskLost(large, True) in pass_ms(bench, 1)


def test_tasks_of_a_slow_family_stay_far_below_the_deadline() -> None:
    bench = Bench(LIMITS)
    bench.register(packed_version=2, max_occupancy=1_000)
    most: list[int] = []
    for passed_ms in (10_000, 300, 10):
        sent = bench.start(Task(len(most), *make_task(1)[1:]))
        bench.now_ms += passed_ms
        bench.answer(sent, packed_ok())
        most.append(bench.free().transactions_max(FAMILY))
    assert most == [1, 3, 16]


def test_a_migration_that_is_not_answered_is_the_next_processors() -> None:
    bench = Bench(LIMITS)
    bench.register(b"older", migrates=True)
    bench.register(b"p", migrates=True)
    assert [one.identity for one in bench.processors.free(FAMILY, migration=True)] == [b"p"]
    task = make_task(1)._replace(migration=True)
    bench.processors.start(bench.processors.free(FAMILY, migration=True)[0], task, lambda batch: None)  # type: ignore[arg-type, return-value]
    bench.now_ms += 1_001
    (left, lost) = bench.processors.tick()
    assert isinstance(left, ProcessorUnavailable)
    assert (left.migrated, lost) == ((FAMILY,), TaskLost(task, True))
    bench.register(b"p", migrates=True)
    assert [one.identity for one in bench.processors.free(FAMILY, migration=True)] == [b"older"]
