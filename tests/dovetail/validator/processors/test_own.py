"""The node's own processor takes tasks like a connected one. It needs no connection, and nobody takes its place."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from dovetail.ledger.settings import FamilyVersion
from dovetail.node.judged_here import judged_here
from dovetail.validator.core.execution.model import Task, Verdict
from dovetail.validator.processors.own import OwnFamilies
from dovetail.validator.processors.registry import NOT_NEEDED, TaskAnswered
from dovetail.validator.store import StorageFailed
from processor_sdk import Context, InvalidTransaction, Transaction, TransactionHandler
from protos import processor_pb2, state_context_pb2
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.processors_support import FAMILY, STATE, Bench, make_task
from tests.dovetail.validator.support import address, make_transaction, view_of

OK, ERROR = processor_pb2.TpRegisterResponse.OK, processor_pb2.TpRegisterResponse.ERROR
_PREFIX = "1cf126"


class Copies(TransactionHandler[bytes]):
    """Copies what is at address 1 to address 2; a payload of ``bad`` is invalid, ``bug`` and ``exit`` are faults."""

    family_name, family_version = FAMILY
    namespaces = (_PREFIX,)

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        if transaction.payload == b"bad":
            raise InvalidTransaction("it is bad")
        if transaction.payload == b"bug":
            raise KeyError("a bug")
        if transaction.payload == b"exit":
            raise SystemExit("an exit")
        context.set(address(2), context.get(address(1)) or b"")


def copying(name: str, payload: bytes = b"", *, by_prefix: bool = False) -> Any:
    return make_transaction(name, inputs=[_PREFIX if by_prefix else address(1)], outputs=[address(2)], payload=payload)


@pytest.fixture
def bench() -> Bench:
    return Bench(own=judged_here([Copies()]))


def give(bench: Bench, task: Task, state: Mapping[str, bytes] = STATE) -> None:
    assert bench.processors.start(bench.free(), task, lambda batch: view_of(state))


def answered(bench: Bench) -> TaskAnswered:
    """The event of the task that the node's own processor holds. Each answer comes in a turn of its own."""
    events: list[Any] = []
    while bench.processors.own_is_asked:
        assert events == []
        events = bench.processors.answer_own()
    (event,) = events
    assert isinstance(event, TaskAnswered)
    return event


def test_it_is_there_without_a_connection(bench: Bench) -> None:
    assert bench.processors.has(FAMILY)
    assert bench.processors.count(FAMILY) == bench.processors.counts()[FAMILY] == 1
    assert not bench.processors.has(FAMILY, migration=True)
    (status,) = bench.processors.statuses()
    assert (status.in_process, status.connection_id, status.families[0].family_name) == (True, "", FAMILY.name)
    assert bench.processors.states() == {}
    bench.now_ms += 1_000_000
    assert bench.processors.tick() == bench.processors.probe() == []
    assert bench.processors.has(FAMILY)
    assert bench.sent == []


@pytest.mark.parametrize("by_prefix", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_a_task_is_answered_in_a_later_turn(bench: Bench, alone: bool, by_prefix: bool) -> None:
    task = make_task(1, [copying("a", by_prefix=by_prefix)])._replace(alone=alone)
    give(bench, task)
    assert bench.processors.own_is_asked
    event = answered(bench)
    assert (event.task, event.namespaces, event.families) == (task, (_PREFIX,), (FAMILY,))
    ((outcome,),) = event.outcomes
    assert (outcome.verdict, outcome.changes) == (Verdict.OK, {address(2): STATE[address(1)]})
    (status,) = bench.processors.statuses()
    assert (status.done, status.in_flight_tasks) == (1, 0)
    assert bench.sent == []


def test_a_task_may_follow_one_that_is_not_answered(bench: Bench) -> None:
    first = make_task(1, [copying("a")])
    give(bench, first)
    processor = bench.free()
    assert processor.followed is first
    give(bench, make_task(2, [copying("b")])._replace(follows=1))
    events = [event for _ in range(2) for event in bench.processors.answer_own()]
    assert [event.task.number for event in events if isinstance(event, TaskAnswered)] == [1, 2]


@pytest.mark.parametrize("alone", [False, True])
def test_a_verdict_and_a_fault_are_outcomes(bench: Bench, alone: bool) -> None:
    for payload, verdict, said in (
        (b"bad", Verdict.INVALID, "it is bad"),
        (b"bug", Verdict.ERROR, "a bug"),
        (b"exit", Verdict.ERROR, "an exit"),
    ):
        give(bench, make_task(1, [copying("a", payload)])._replace(alone=alone))
        ((outcome,),) = answered(bench).outcomes
        assert outcome.verdict is verdict
        assert said in outcome.message


def asking(message_type: int, content: bytes, call: Callable[[int, bytes], bytes]) -> bytes:
    try:
        context_id = processor_pb2.TpProcessRequest.FromString(content).context_id
        asked = state_context_pb2.TpStateGetRequest(context_id=context_id, addresses=[address(1)])
        call(Envelope.TP_STATE_GET_REQUEST, asked.SerializeToString())
    except StorageFailed:
        pass
    return processor_pb2.TpProcessResponse(status="OK").SerializeToString()


def test_a_fault_of_the_store_is_the_nodes_and_no_verdict() -> None:
    class Damaged(dict[str, bytes]):
        def __getitem__(self, key: str) -> bytes:
            raise StorageFailed("damaged")

        def __contains__(self, key: object) -> bool:
            return True

        def get(self, *_: object) -> bytes:
            raise StorageFailed("damaged")

    bench = Bench(own=OwnFamilies({FAMILY: (_PREFIX,)}, asking))
    give(bench, make_task(1, [copying("a")])._replace(alone=True), Damaged())
    with pytest.raises(StorageFailed):
        bench.processors.answer_own()


@pytest.mark.parametrize("packed_version", [0, 2])
def test_a_connected_processor_of_its_family_gets_nothing(bench: Bench, packed_version: int) -> None:
    with capture_logs() as logs:
        for identity in (b"p", b"q"):
            assert bench.register(identity, packed_version=packed_version) == []
    assert [line["family"] for line in logs] == ["intkey 1.0"]
    assert "it is not needed, end it" in logs[0]["event"]
    assert [(sent.message.status, sent.message.message) for sent in bench.take_sent()] == [(OK, NOT_NEEDED)] * 2
    assert bench.processors.count(FAMILY) == 1
    for number in range(3):
        if bench.processors.free(FAMILY):
            give(bench, make_task(number, [copying(str(number))]))
    assert bench.sent == []
    assert [entry.families[0].idle for entry in bench.processors.statuses()] == [False, True, True]
    # A processor whose only family is judged here reads nothing either.
    asked = state_context_pb2.TpStateGetRequest(context_id=bench.processors._own[0].newest, addresses=[address(1)])
    assert bench.ask(b"p", Envelope.TP_STATE_GET_REQUEST, asked).status == 2


def test_it_keeps_the_other_families_of_its_connection(bench: Bench) -> None:
    bench.register(b"p")
    other = FamilyVersion("other", "1.0")
    bench.register(b"p", other)
    assert bench.processors.has(other)
    assert [processor.identity for processor in bench.processors.free(other)] == [b"p"]


def test_another_version_of_its_family_is_refused(bench: Bench) -> None:
    with capture_logs() as logs:
        assert bench.register(family=FamilyVersion(FAMILY.name, "9.9")) == []
    (sent,) = bench.take_sent()
    assert sent.message.status == ERROR
    assert "the node judges intkey itself, in intkey 1.0" in sent.message.message
    assert [(line["event"], line["reason"]) for line in logs] == [("registration refused", sent.message.message)]
