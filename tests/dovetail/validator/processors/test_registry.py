"""Processors register, get tasks, drain and leave; each task is answered or lost, once."""

from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from dovetail.ledger.limits import STATE_REQUEST_ADDRESSES_MAX, Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.execution.model import Task, TransactionOutcome, Verdict
from dovetail.validator.core.journal.block_run import BlockRun
from dovetail.validator.processors.dispatch import dispatch
from dovetail.validator.processors.processor import Registered
from dovetail.validator.processors.registry import ProcessorAvailable, ProcessorUnavailable, TaskAnswered, TaskLost
from dovetail.validator.transport.rights import PROCESSOR_MESSAGES
from protos import packed_pb2, processor_pb2, state_context_pb2
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.processors_support import FAMILY, OTHER, Bench, make_task, touching
from tests.dovetail.validator.support import address, make_batch, make_transaction, view_of

OK = processor_pb2.TpProcessResponse(status="OK")


def test_a_registration_is_answered_and_told() -> None:
    bench = Bench()
    assert bench.register(protocol_version=7) == [ProcessorAvailable(FAMILY, False)]
    (sent,) = bench.take_sent()
    assert (sent.identity, sent.message_type, sent.correlation_id) == (b"p", Envelope.TP_REGISTER_RESPONSE, "c")
    assert (sent.message.status, sent.message.protocol_version) == (processor_pb2.TpRegisterResponse.OK, 7)
    assert (sent.message.packed_version, sent.message.message) == (0, "")
    assert bench.processors.has(FAMILY)
    assert bench.processors.count(FAMILY) == 1
    assert not bench.processors.has(OTHER)
    assert not bench.processors.free(OTHER)
    assert bench.free().families == {FAMILY: Registered(("1cf126",))}


@pytest.mark.parametrize(("asked", "given"), [(0, 0), (1, 1), (2, 2), (2**32 - 1, 2)])
def test_packed_execution_is_agreed_on(asked: int, given: int) -> None:
    bench = Bench()
    assert bench.register(packed_version=asked) == [ProcessorAvailable(FAMILY, bool(given))]
    assert bench.take_sent()[0].message.packed_version == given


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"family": FamilyVersion("", "1")}, "family has 0 characters"),
        ({"family": FamilyVersion("f" * 257, "1")}, "family has 257 characters"),
        ({"family": FamilyVersion("f", "")}, "version has 0 characters"),
        ({"family": FamilyVersion("f", "1" * 257)}, "version has 257 characters"),
        ({"namespaces": ["1cf126", "1CF126"]}, "namespace '1CF126' is not"),
        ({"namespaces": ["1cf"]}, "namespace '1cf' is not"),
        ({"namespaces": ["00" * 36]}, "namespace '000"),
        ({"namespaces": ["1cf126"] * 1001}, "1001 namespaces, at most 1000"),
        ({"namespaces": [""]}, "the namespace '' overlaps 000000, in which only sawtooth_settings writes"),
        ({"namespaces": ["00"]}, "the namespace '00' overlaps 000000"),
        ({"namespaces": ["1cf126", "000000"]}, "the namespace '000000' overlaps 000000"),
        ({"namespaces": ["00000000"]}, "the namespace '00000000' overlaps 000000"),
        ({"namespaces": ["0" * 70]}, "overlaps 000000"),
    ],
)
def test_registrations_that_cannot_stand(fields: dict[str, Any], said: str) -> None:
    bench = Bench()
    assert bench.register(protocol_version=1, **fields) == []
    (sent,) = bench.take_sent()
    assert (sent.message.status, sent.message.protocol_version) == (processor_pb2.TpRegisterResponse.ERROR, 1)
    assert said in sent.message.message
    assert len(sent.message.message) < 500
    assert not bench.processors.free(FAMILY)


def test_bytes_that_are_no_registration_are_answered() -> None:
    bench = Bench()
    assert bench.handle(b"p", Envelope.TP_REGISTER_REQUEST, b"\x0a\xff") == []
    assert "2 bytes that are no TpRegisterRequest" in bench.take_sent()[0].message.message
    bench.register()
    assert bench.handle(b"p", Envelope.TP_REGISTER_REQUEST, b"\x0a\xff") == []
    assert bench.processors.has(FAMILY)


def test_the_registrations_of_one_connection_have_bounded_bytes() -> None:
    bench = Bench(replace(Limits(), connection_registered_bytes_max=10_500))
    assert bench.register(namespaces=["01"] * 100)
    bench.take_sent()
    # The registration of a family again replaces the one before.
    assert bench.register(namespaces=["01"] * 120)
    assert bench.register(family=OTHER, namespaces=["01"] * 30) == []
    with capture_logs() as logs:
        bench.now_ms += 2_000
        assert bench.register(family=OTHER, namespaces=["01"] * 30) == []
    for said in (bench.take_sent()[-1].message.message, logs[0]["reason"]):
        assert "the registrations of this connection would have" in said
        assert "at most 10500 are allowed" in said
    assert bench.register(family=OTHER, namespaces=["01"])
    bench.unregister()
    assert bench.register(family=OTHER, namespaces=["01"] * 120)


def test_a_registration_over_the_limit_is_not_decoded() -> None:
    bench = Bench(replace(Limits(), connection_registered_bytes_max=10_000))
    assert bench.handle(b"p", Envelope.TP_REGISTER_REQUEST, b"\xff" * 10_001) == []
    assert "the registration has 10001 bytes, at most 10000" in bench.take_sent()[0].message.message


def test_the_registrations_of_all_connections_have_bounded_bytes() -> None:
    bench = Bench(replace(Limits(), registered_bytes_max=20_000))
    assert bench.register(b"a", namespaces=["01"] * 100)
    assert bench.register(b"b", namespaces=["01"] * 100)
    with capture_logs() as logs:
        assert bench.register(b"c", namespaces=["01"] * 100) == []
    (line,) = logs
    assert "the registrations of all processors would have" in line["reason"]
    assert "at most 20000 are allowed" in line["reason"]
    assert line["connection_id"] == b"c".hex()
    # Those of a closed connection count no longer.
    bench.gone.add(b"a")
    bench.processors.probe()
    assert bench.register(b"c", namespaces=["01"] * 100)


def test_one_connection_registers_a_bounded_number_of_families() -> None:
    bench = Bench()
    for number in range(100):
        assert bench.register(family=FamilyVersion("f", str(number)))
    bench.take_sent()
    assert bench.register(family=FamilyVersion("f", "100")) == []
    assert "registered 100 families already" in bench.take_sent()[0].message.message
    assert bench.processors.has(FamilyVersion("f", "99"))


@pytest.mark.parametrize(
    ("fields", "capacity"),
    [({}, 10), ({"max_occupancy": 3}, 3), ({"max_occupancy": 2**32 - 1}, 4_096), ({"packed_version": 1}, 2)],
)
def test_a_processor_holds_no_more_than_its_capacity(fields: dict[str, Any], capacity: int) -> None:
    bench = Bench()
    bench.register(**fields)
    for number in range(min(capacity, 20)):
        assert bench.free().capacity == capacity - number
        bench.start(make_task(number))
    assert (not bench.processors.free(FAMILY)) == (capacity <= 20)


def test_the_one_with_the_fewest_tasks_is_free() -> None:
    bench = Bench()
    for name in (b"a", b"b", b"c"):
        bench.register(name, max_occupancy=2)
    bench.register(b"other", OTHER)
    assert bench.processors.count(FAMILY) == 3
    taken = [bench.start(make_task(number)).identity for number in range(6)]
    assert sorted(taken[:3]) == sorted(taken[3:]) == [b"a", b"b", b"c"]
    assert not bench.processors.free(FAMILY)
    assert bench.free(OTHER).identity == b"other"


def test_who_unregisters_finishes_and_takes_no_more() -> None:
    bench = Bench()
    bench.register()
    bench.register(family=OTHER)
    task = make_task(1)
    sent = bench.start(task)
    assert bench.unregister() == [ProcessorUnavailable((FAMILY, OTHER), "it unregistered")]
    assert bench.take_sent()[0].message.status == processor_pb2.TpUnregisterResponse.OK
    assert not bench.processors.has(FAMILY)
    assert bench.processors.count(FAMILY) == 0
    assert not bench.processors.free(FAMILY)
    get = state_context_pb2.TpStateGetRequest(context_id=sent.message.context_id)
    assert bench.ask(b"p", Envelope.TP_STATE_GET_REQUEST, get).status == state_context_pb2.TpStateGetResponse.OK
    (answered,) = bench.answer(sent, OK)
    assert answered == TaskAnswered(task, [[TransactionOutcome(Verdict.OK)]], ("1cf126",), (), b"p")


@pytest.mark.parametrize(
    "number", [Envelope.TP_STATE_GET_REQUEST, Envelope.TP_STATE_SET_REQUEST, Envelope.TP_STATE_DELETE_REQUEST]
)
def test_a_state_request_has_a_bounded_number_of_addresses(number: int) -> None:
    bench = Bench()
    bench.register()
    context_id = bench.start(make_task(1)).message.context_id
    with capture_logs() as logs:
        for count, status in (
            (STATE_REQUEST_ADDRESSES_MAX, "OK"),
            (STATE_REQUEST_ADDRESSES_MAX + 1, "AUTHORIZATION_ERROR"),
        ):
            addresses = [address(3)] * count
            request: Any
            if number == Envelope.TP_STATE_SET_REQUEST:
                entries = [{"address": each} for each in addresses]
                request = state_context_pb2.TpStateSetRequest(context_id=context_id, entries=entries)
            elif number == Envelope.TP_STATE_GET_REQUEST:
                request = state_context_pb2.TpStateGetRequest(context_id=context_id, addresses=addresses)
            else:
                request = state_context_pb2.TpStateDeleteRequest(context_id=context_id, addresses=addresses)
            answer = bench.ask(b"p", number, request)
            assert answer.Status.Name(answer.status) == status
    (line,) = logs
    assert (line["event"], line["reason"]) == (
        "state request refused",
        "one request has 20001 addresses, at most 20000 are allowed",
    )


def test_who_registers_again_takes_work_again() -> None:
    bench = Bench()
    bench.register()
    bench.unregister()
    assert bench.register(namespaces=["01"]) == [ProcessorAvailable(FAMILY, False)]
    assert bench.free().families == {FAMILY: Registered(("01",))}


def test_a_stranger_cannot_unregister() -> None:
    bench = Bench()
    assert bench.unregister(b"stranger") == []
    assert bench.take_sent()[0].message.status == processor_pb2.TpUnregisterResponse.ERROR


def test_a_closed_connection_loses_its_tasks_and_no_others() -> None:
    bench = Bench()
    bench.register(b"a")
    bench.register(b"b")
    tasks = {bench.start(make_task(number)).identity: make_task(number) for number in range(2)}
    bench.gone.add(b"a")
    assert bench.processors.probe() == [
        ProcessorUnavailable((FAMILY,), "its connection closed"),
        TaskLost(tasks[b"a"], True),
    ]
    assert bench.processors.probe() == []
    assert bench.processors.count(FAMILY) == 1
    assert bench.free().identity == b"b"


def test_answers_after_a_loss_change_nothing() -> None:
    bench = Bench()
    bench.register()
    sent = bench.start(make_task(1))
    bench.gone.add(b"p")
    bench.processors.probe()
    bench.gone.clear()
    assert bench.answer(sent, OK) == []
    bench.register()
    assert bench.answer(sent, OK) == []
    assert bench.free().capacity == 10


def test_an_answer_counts_once_and_from_its_own_processor() -> None:
    bench = Bench()
    bench.register(b"a")
    sent = bench.start(make_task(1))
    bench.register(b"b")
    assert bench.handle(b"b", Envelope.TP_PROCESS_RESPONSE, OK, sent.correlation_id) == []
    for correlation_id in ("", "c", sent.correlation_id + "0", sent.correlation_id.partition(":")[0]):
        assert bench.handle(b"a", Envelope.TP_PROCESS_RESPONSE, OK, correlation_id) == []
    assert len(bench.answer(sent, OK)) == 1
    assert bench.answer(sent, OK) == []


def test_the_contexts_of_another_processor_are_refused() -> None:
    bench = Bench()
    bench.register(b"a")
    sent = bench.start(make_task(1))
    bench.register(b"b")
    for context_id in (sent.message.context_id, "", "nobody's", sent.message.context_id + "0"):
        get = state_context_pb2.TpStateGetRequest(context_id=context_id)
        response = bench.ask(b"b", Envelope.TP_STATE_GET_REQUEST, get)
        assert response.status == state_context_pb2.TpStateGetResponse.AUTHORIZATION_ERROR


def test_what_strangers_send_changes_nothing() -> None:
    bench = Bench()
    for message_type in PROCESSOR_MESSAGES - {Envelope.TP_REGISTER_REQUEST, Envelope.TP_UNREGISTER_REQUEST}:
        for content in (b"", b"\x0a\xff"):
            assert bench.handle(b"stranger", message_type, content) == []
    assert bench.sent == []


def test_undecodable_state_requests_change_nothing() -> None:
    bench = Bench()
    bench.register()
    bench.take_sent()
    for message_type in range(Envelope.TP_STATE_GET_REQUEST, Envelope.TP_EVENT_ADD_REQUEST + 1, 2):
        assert bench.handle(b"p", message_type, b"\x0a\xff") == []
    assert bench.sent == []


def test_an_answer_tells_what_its_processor_has_room_for() -> None:
    bench = Bench()
    bench.register(max_occupancy=1)
    bench.register(family=OTHER, max_occupancy=1)
    sent = bench.start(make_task(1))
    assert not bench.processors.free(OTHER)
    (answered,) = bench.answer(sent, OK)
    assert isinstance(answered, TaskAnswered)
    assert answered.families == (FAMILY, OTHER)


@pytest.mark.parametrize(("occupancy", "most"), [(0, 5), (1, 1), (2, 1), (64, 32), (5_000, 256)])
def test_a_packed_task_gives_no_more_than_the_occupancy(occupancy: int, most: int) -> None:
    bench = Bench()
    bench.register(packed_version=1, max_occupancy=occupancy)
    assert bench.free().transactions_max(FAMILY) == most
    bench.register(max_occupancy=occupancy)
    assert bench.free().transactions_max(FAMILY) == 1


def packed_answer(units: int) -> packed_pb2.PackedProcessResponse:
    """Units of one transaction each, all applied."""
    answer = packed_pb2.PackedProcessResponse()
    for _ in range(units):
        answer.units.add().results.add(status=processor_pb2.TpProcessResponse.OK)
    return answer


@pytest.mark.parametrize(("task_ms", "most"), [(0, 2_048), (1, 2_000), (100, 20), (5_000, 16)])
def test_a_packed_task_is_as_large_as_its_family_is_fast(task_ms: int, most: int) -> None:
    bench = Bench()
    for family in (FAMILY, OTHER):
        bench.register(family=family, packed_version=1, max_occupancy=4_096)
    for _ in range(8):
        sent = bench.start(make_task(1, *([touching(number)] for number in range(80))))
        bench.now_ms += task_ms
        bench.answer(sent, packed_answer(80))
    assert bench.free().transactions_max(FAMILY) == most
    assert bench.free().transactions_max(OTHER) == 256


def test_an_answer_that_waited_makes_no_family_slow() -> None:
    """The validator reads no answers while it writes a block."""
    bench = Bench()
    bench.register(packed_version=1, max_occupancy=4_096)
    for task_ms in (1, *[500] * 7):
        sent = bench.start(make_task(1, *([touching(number)] for number in range(80))))
        bench.now_ms += task_ms
        bench.answer(sent, packed_answer(80))
    assert bench.free().transactions_max(FAMILY) == 2_000


def alone_together(*, workers: int = 1, others: int = 1, **fields: Any) -> tuple[Bench, BlockRun]:
    """Batches of one family without conflicts, of which the first two must run alone."""
    bench = Bench()
    for number in range(workers):
        bench.register(b"%d" % number, **fields)
    batches = [
        make_batch(number, make_transaction(number, inputs=[address(number)], outputs=[address(number)]))
        for number in range(2 + others)
    ]
    return bench, BlockRun(view_of({}), batches, bench.limits, alone=frozenset({0, 1}))


def held(tasks: list[Task]) -> list[tuple[bool, list[int]]]:
    return [(task.alone, [unit.batch for unit in task.units]) for task in tasks]


def test_nothing_goes_behind_a_batch_that_is_alone() -> None:
    """No task waits behind a task that runs alone, so no task is lost because of the batch that runs alone."""
    bench, execution = alone_together(packed_version=1, max_occupancy=100)
    for expected in ((True, [0]), (True, [1]), (False, [2])):
        (task,) = dispatch(execution, bench.processors, 256)
        assert held([task]) == [expected]
        assert dispatch(execution, bench.processors, 256) == []
        bench.answer(bench.take_sent()[-1], b"")
        execution.complete(task, [[TransactionOutcome(Verdict.OK)]], ("1cf126",))
    assert execution.finished


def test_a_1x_processor_takes_it_beside_others() -> None:
    """An apply that never ends must not keep the other slots empty.

    Two tasks that run alone never share a processor.
    """
    bench, execution = alone_together(max_occupancy=100)
    first, _ = tasks = dispatch(execution, bench.processors, 256)
    assert held(tasks) == [(True, [0]), (False, [2])]
    sent = next(sent for sent in bench.take_sent() if sent.message_type == Envelope.TP_PROCESS_REQUEST)
    bench.answer(sent, OK)
    execution.complete(first, [[TransactionOutcome(Verdict.OK)]], ("1cf126",))
    assert held(dispatch(execution, bench.processors, 256)) == [(True, [1])]


def test_what_must_be_alone_goes_to_whoever_takes_it() -> None:
    """The processor with the fewest tasks already has a task that runs alone.

    The next such task goes to another processor.
    """
    bench, execution = alone_together(workers=2, others=0, max_occupancy=100)
    first = bench.start(make_task(8))
    bench.start(make_task(9))
    bench.answer(first, OK)
    assert held(dispatch(execution, bench.processors, 256)) == [(True, [0]), (True, [1])]
    sent = [sent for sent in bench.take_sent() if sent.message_type == Envelope.TP_PROCESS_REQUEST]
    assert [task.identity for task in sent] == [b"0", b"1"]


def test_answers_that_are_read_together_are_timed_together() -> None:
    """Two tasks were answered while the validator was busy. The second task must not count as instant."""
    bench = Bench()
    bench.register(packed_version=1, max_occupancy=4_096)
    both = [bench.start(make_task(of, *([touching(number)] for number in range(80)))) for of in range(2)]
    bench.now_ms += 800
    for sent in both:
        bench.answer(sent, packed_answer(80))
    assert bench.free().transactions_max(FAMILY) == 16


@pytest.mark.parametrize("packed_version", [0, 1])
def test_what_a_processor_had_not_begun_is_not_what_it_died_of(packed_version: int) -> None:
    """A task that waits behind another family's task is not blamed when the processor ends."""
    bench, execution = alone_together(packed_version=packed_version)
    busy = make_task(9)
    bench.start(busy)
    task = dispatch(execution, bench.processors, 256)[0]
    assert held([task]) == [(True, [0])]
    bench.gone.add(b"0")
    events = bench.processors.probe()
    assert events[1:3] == [TaskLost(busy, True), TaskLost(task, not packed_version)]
    assert execution.abandon(task, not packed_version) == [0]
    assert (execution.results()[0] is None) == bool(packed_version)


@pytest.mark.parametrize("begun", [True, False])
def test_only_what_was_begun_is_alone_from_then_on(begun: bool) -> None:
    """Tasks behind the fatal task did not end the processor, so they do not need to run alone."""
    bench = Bench()
    bench.register(packed_version=1, max_occupancy=100)
    batches = [
        make_batch(number, make_transaction(number, inputs=[address(number)], outputs=[address(number)]))
        for number in range(2)
    ]
    execution = BlockRun(view_of({}), batches, bench.limits)
    (task,) = dispatch(execution, bench.processors, 256)
    bench.gone.add(b"p")
    bench.processors.probe()
    assert execution.abandon(task, begun) == [0, 1]
    bench.gone.clear()
    bench.register(packed_version=1, max_occupancy=100)
    assert held(dispatch(execution, bench.processors, 256)) == ([(True, [0])] if begun else [(False, [0, 1])])
