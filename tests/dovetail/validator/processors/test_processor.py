"""The status of a processor: its builds, state, tasks in flight, counts and times."""

from typing import Any

import pytest

from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.execution.model import TransactionOutcome, Verdict
from dovetail.validator.processors.processor import STATES, Held, Record
from dovetail.validator.processors.registry import ProcessorAvailable, ProcessorUnavailable, TaskAnswered, TaskLost
from protos import packed_pb2, processor_pb2
from protos.node_pb2 import ProcessorStatus
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.processors_support import FAMILY, OTHER, Bench, Sent, make_task, touching

OK, INVALID, ERROR = (
    processor_pb2.TpProcessResponse.OK,
    processor_pb2.TpProcessResponse.INVALID_TRANSACTION,
    processor_pb2.TpProcessResponse.INTERNAL_ERROR,
)
Results = packed_pb2.PackedProcessResponse


def status_of(bench: Bench) -> ProcessorStatus:
    (status,) = bench.processors.statuses()
    return status


def packed(*units: list[processor_pb2.TpProcessResponse.Status]) -> Results:
    return Results(
        units=[Results.UnitResult(results=[Results.TransactionResult(status=s) for s in unit]) for unit in units]
    )


def counts(status: ProcessorStatus) -> tuple[int, int, int]:
    return status.done, status.invalid, status.internal_errors


def answer(bench: Bench, sent: Sent, status: processor_pb2.TpProcessResponse.Status = OK) -> None:
    bench.answer(sent, processor_pb2.TpProcessResponse(status=status))


def test_what_was_registered_is_told_by_family() -> None:
    bench = Bench()
    assert list(bench.processors.statuses()) == []
    bench.register(build_id="7f3a", migrates=True, packed_version=1, max_occupancy=64)
    assert bench.register(family=OTHER, build_id="", packed_version=1, max_occupancy=64)[0].build_id == ""  # type: ignore[union-attr]
    bench.register(b"other", namespaces=[])
    first, second = bench.processors.statuses()
    assert (first.connection_id, second.connection_id) == (b"p".hex(), b"other".hex())
    one, two = first.families
    assert (one.family_name, one.family_version, one.build_id, one.migrates) == (*FAMILY, "7f3a", True)
    assert list(one.namespaces) == ["1cf126"]
    assert (two.family_name, two.family_version, two.build_id, two.migrates) == (*OTHER, "", False)
    assert (first.packed_version, first.max_occupancy, first.state) == (1, 64, ProcessorStatus.TAKES_WORK)
    assert (second.packed_version, second.max_occupancy) == (0, 10)
    assert bench.processors.states() == {"takes_work": 2}


def test_the_event_of_a_registration_names_the_build() -> None:
    assert Bench().register(build_id="7f3a") == [ProcessorAvailable(FAMILY, False, "7f3a")]


@pytest.mark.parametrize(("characters", "stands"), [(256, True), (257, False)])
def test_a_build_id_is_bounded(characters: int, stands: bool) -> None:
    bench = Bench()
    assert bool(bench.register(build_id="é" * characters)) is stands
    message = bench.take_sent()[0].message.message
    assert message == ("" if stands else "build_id has 257 characters, at most 256 are allowed")


def test_who_migrates_counts_while_it_takes_work() -> None:
    bench = Bench()
    bench.register(b"a", migrates=True)
    bench.register(b"b", migrates=True)
    bench.register(b"c")
    bench.register(b"c", OTHER, migrates=True)
    assert (bench.processors.count(FAMILY, migration=True), bench.processors.count(OTHER, migration=True)) == (2, 1)
    bench.unregister(b"a")
    assert bench.processors.count(FAMILY, migration=True) == 1
    assert bench.processors.count(FamilyVersion("nobody's", "1"), migration=True) == 0


def test_one_that_drains_is_told_of_until_it_is_done() -> None:
    bench = Bench()
    bench.register(build_id="7f3a")
    sents = [bench.start(make_task(number)) for number in range(2)]
    bench.unregister()
    status = status_of(bench)
    assert (status.state, status.in_flight_tasks) == (ProcessorStatus.DRAINING, 2)
    assert status.families[0].build_id == "7f3a"
    assert bench.processors.states() == {"draining": 1}
    assert not bench.processors.counts()
    answer(bench, sents[0])
    assert status_of(bench).in_flight_tasks == 1
    answer(bench, sents[1])
    assert list(bench.processors.statuses()) == []
    # The peer's connection may stay open for ever, but the peer is no longer a processor.
    bench.now_ms += 1_000_000
    assert bench.processors.tick() == bench.processors.probe() == []
    assert not [sent for sent in bench.take_sent() if sent.message_type == Envelope.PING_REQUEST]


def test_who_unregisters_with_nothing_to_do_frees_its_place() -> None:
    bench = Bench()
    bench.limits = bench.processors._limits = bench.limits.__class__(processors_max=1)
    bench.register(b"a")
    assert bench.register(b"b") == []
    bench.unregister(b"a")
    assert bench.register(b"b") == [ProcessorAvailable(FAMILY, False)]


def test_who_registers_again_while_it_drains_serves_only_that() -> None:
    bench = Bench()
    bench.register()
    bench.register(family=OTHER)
    sent = bench.start(make_task(1))
    bench.unregister()
    bench.register(build_id="new")
    status = status_of(bench)
    assert (status.state, len(status.families), status.in_flight_tasks) == (ProcessorStatus.TAKES_WORK, 1, 1)
    assert not bench.processors.has(OTHER)
    answer(bench, sent)
    assert status_of(bench).done == 1


def test_one_that_closes_while_it_drains_loses_what_it_holds() -> None:
    bench = Bench()
    bench.register()
    task = make_task(1)
    bench.start(task)
    bench.unregister()
    bench.gone.add(b"p")
    assert bench.processors.probe() == [ProcessorUnavailable((), "its connection closed"), TaskLost(task, True)]
    assert list(bench.processors.statuses()) == []


def test_one_that_goes_silent_while_it_drains_is_forgotten() -> None:
    bench = Bench()
    bench.register()
    task = make_task(1)
    bench.start(task)
    bench.unregister()
    bench.now_ms += bench.limits.processor_ping_ms + 1
    assert bench.processors.tick() == []
    bench.now_ms += bench.limits.processor_silence_ms
    left, lost = bench.processors.tick()
    assert (left[0], lost) == ((), TaskLost(task, True))
    assert bench.processors.mark_alive(b"p") == []
    assert list(bench.processors.statuses()) == []


def test_one_that_is_silent_is_told_of_as_such() -> None:
    bench = Bench()
    bench.register()
    bench.now_ms += bench.limits.processor_ping_ms + 1
    bench.processors.tick()
    bench.now_ms += bench.limits.processor_silence_ms
    bench.processors.tick()
    status = status_of(bench)
    assert (status.state, len(status.families)) == (ProcessorStatus.SILENT, 1)
    assert status.last_heard_s == status.connected_s == pytest.approx(40.001)
    bench.processors.mark_alive(b"p")
    assert (status_of(bench).state, status_of(bench).last_heard_s) == (ProcessorStatus.TAKES_WORK, 0)


def test_every_state_has_its_word() -> None:
    assert {word.upper() for word in STATES} == set(ProcessorStatus.State.keys()) - {"STATE_UNSET"}


@pytest.mark.parametrize(
    ("answered", "expected"),
    [
        (packed([OK, OK, OK], [OK], [OK]), (5, 0, 0)),
        (packed([OK, INVALID], [OK], [OK]), (3, 1, 0)),
        (packed([OK, OK, ERROR], [INVALID], [OK]), (3, 1, 1)),
        (packed([OK, OK], [OK]), (3, 0, 2)),
        (packed([], [OK], []), (1, 0, 2)),
        (b"\xff", (0, 0, 3)),
    ],
)
def test_transactions_of_a_message_count_by_their_outcome(answered: Any, expected: tuple[int, int, int]) -> None:
    bench = Bench()
    bench.register(packed_version=1)
    units = ([touching(number) for number in range(3)], [touching(3)], [touching(4)])
    sent = bench.start(make_task(1, *units))
    assert (status_of(bench).in_flight_tasks, status_of(bench).in_flight_transactions) == (1, 5)
    assert isinstance(bench.answer(sent, answered)[0], TaskAnswered)
    assert counts(status_of(bench)) == expected
    assert status_of(bench).in_flight_transactions == 0


def test_transactions_of_a_conversation_count_when_it_is_over() -> None:
    bench = Bench()
    bench.register()
    sent = bench.start(make_task(1, [touching(1), touching(2)]))
    assert bench.answer(sent, processor_pb2.TpProcessResponse(status=OK)) == []
    assert counts(status_of(bench)) == (0, 0, 0)
    (following,) = bench.take_sent()
    answer(bench, following, INVALID)
    assert counts(status_of(bench)) == (1, 1, 0)
    answer(bench, bench.start(make_task(2)), ERROR)
    assert counts(status_of(bench)) == (1, 1, 1)


def test_a_task_is_timed_from_when_its_processor_could_begin() -> None:
    """Two tasks are sent together. The time that the second waits for the first does not count as its apply time."""
    bench = Bench()
    bench.register(packed_version=1)
    assert not status_of(bench).HasField("apply_ms_p50")
    units = ([touching(1), touching(2)], [touching(3), touching(4)])
    first, second = (bench.start(make_task(number, *units)) for number in range(2))
    bench.now_ms += 40
    bench.answer(first, packed([OK, OK], [OK, OK]))
    bench.now_ms += 100
    bench.answer(second, packed([OK, OK], [OK, OK]))
    bench.now_ms += 1_000
    bench.answer(bench.start(make_task(3)), packed([OK]))
    status = status_of(bench)
    # Of nine transactions, four took 10 ms, four 25 ms, and one no time.
    assert (status.apply_ms_p50, status.apply_ms_p95, status.apply_ms_p99) == (10, 25, 25)


def test_percentiles_are_of_transactions_and_of_the_newest_tasks() -> None:
    record = Record()
    bench = Bench()
    bench.register(packed_version=1)
    bench.start(make_task(1))
    ((assignment, _),) = bench.free().held.values()
    outcomes = [[TransactionOutcome(Verdict.OK)]]
    for number in range(1, 2_001):
        # Each task takes one millisecond longer than the task before.
        now_ms = number * (number + 1) / 2
        record.answered(Held(assignment, 0), outcomes, now_ms)
    assert record.apply_ms() == (1_500, 1_950, 1_990)
    assert record.done == 2_000
