"""One task at one processor: what the packed message and the 1.x conversation both keep."""

import pytest

from ledger.limits import Limits
from protos import packed_pb2, processor_pb2, state_context_pb2
from protos.validator_pb2 import Message as Envelope
from tests.validator.processors_support import Bench, Sent, make_task, touching
from tests.validator.support import address
from validator.execution.model import TransactionOutcome, Verdict
from validator.processors.registry import Answered

Get, GetResponse = state_context_pb2.TpStateGetRequest, state_context_pb2.TpStateGetResponse
Response = processor_pb2.TpProcessResponse
Results = packed_pb2.PackedProcessResponse


@pytest.fixture(params=[0, 1], ids=["conversation", "packed"])
def bench(request: pytest.FixtureRequest) -> Bench:
    bench = Bench(Limits(receipt_bytes_max=100))
    bench.register(packed_version=request.param)
    return bench


def context_of(sent: Sent) -> str:
    """The context id of the first transaction."""
    packed = sent.message_type == Envelope.PACKED_PROCESS_REQUEST
    return f"{sent.message.context_id}:0" if packed else str(sent.message.context_id)


def answer(bench: Bench, sent: Sent, response: Response) -> list[Answered]:
    """The same answer for one transaction in the task's protocol."""
    if sent.message_type == Envelope.TP_PROCESS_REQUEST:
        events = bench.answer(sent, response)
    else:
        result = Results.TransactionResult(
            status=response.status, message=response.message, extended_data=response.extended_data
        )
        events = bench.answer(sent, Results(units=[Results.UnitResult(results=[result])]))
    return [event for event in events if isinstance(event, Answered)]


def test_ids_belong_to_one_task(bench: Bench) -> None:
    sents = [bench.start(make_task(number)) for number in range(2)]
    assert len({sent.correlation_id for sent in sents}) == len({sent.message.context_id for sent in sents}) == 2
    for sent in reversed(sents):
        assert len(answer(bench, sent, Response(status="OK"))) == 1


def test_reads_are_served_within_the_inputs(bench: Bench) -> None:
    context_id = context_of(bench.start(make_task(1)))
    response = bench.ask(b"p", 7, Get(context_id=context_id, addresses=[address(1), address(3)]))
    assert response.status == GetResponse.OK
    assert [(entry.address, entry.data) for entry in response.entries] == [(address(1), b"one")]
    for outside in (address(2), "", "1cf126", address(1).upper(), address(1) + "00", "é" * 70):
        response = bench.ask(b"p", 7, Get(context_id=context_id, addresses=[address(1), outside]))
        assert response.status == GetResponse.AUTHORIZATION_ERROR
        assert not response.entries


def test_an_address_asked_for_many_times_is_answered_once(bench: Bench) -> None:
    context_id = context_of(bench.start(make_task(1)))
    response = bench.ask(b"p", 7, Get(context_id=context_id, addresses=[address(1)] * 100))
    assert [entry.address for entry in response.entries] == [address(1)]


def test_only_contexts_of_the_task_are_served(bench: Bench) -> None:
    context_id = context_of(bench.start(make_task(1)))
    bare = context_id.partition(":")[0]
    for other in (
        bare,
        bare + ":",
        bare + ":1",
        bare + ":-1",
        bare + ":0 ",
        bare + ":\u0660",
        bare + ":" + "9" * 5_000,
    ):
        response = bench.ask(b"p", 7, Get(context_id=other, addresses=[address(1)]))
        assert response.status == GetResponse.AUTHORIZATION_ERROR


@pytest.mark.parametrize(
    ("response", "outcome"),
    [
        (Response(status="OK", message="unheard", extended_data=b"unheard"), TransactionOutcome(Verdict.OK)),
        (
            Response(status="INVALID_TRANSACTION", message="no", extended_data=b"x"),
            TransactionOutcome(Verdict.INVALID, "no", b"x"),
        ),
        (Response(status="INTERNAL_ERROR", message="bug"), TransactionOutcome(Verdict.ERROR, "bug")),
        (Response(message="unset"), TransactionOutcome(Verdict.ERROR, "unset")),
        (Response(status=77, message="what?"), TransactionOutcome(Verdict.ERROR, "what?")),  # type: ignore[arg-type]
    ],
)
def test_verdicts(bench: Bench, response: Response, outcome: TransactionOutcome) -> None:
    task = make_task(1)
    assert answer(bench, bench.start(task), response) == [Answered(task, [[outcome]], ("1cf126",), (task.route,))]


def test_words_of_a_processor_are_bounded(bench: Bench) -> None:
    response = Response(status="INVALID_TRANSACTION", message="é" * 10_000, extended_data=bytes(100_000))
    (answered,) = answer(bench, bench.start(make_task(1)), response)
    ((outcome,),) = answered.outcomes
    assert outcome == TransactionOutcome(Verdict.INVALID, "é" * 4_096, bytes(65_536))


@pytest.mark.parametrize("content", [b"\x0a\xff", b"\xff", b"\x08"])
def test_an_answer_that_cannot_be_decoded_is_no_verdict(bench: Bench, content: bytes) -> None:
    (answered,) = bench.answer(bench.start(make_task(1)), content)
    assert isinstance(answered, Answered)
    (outcomes,) = answered.outcomes
    assert all(outcome.verdict is Verdict.ERROR for outcome in outcomes)
    assert bench.processors.free(make_task(1).route) is not None


def test_writes_outside_are_refused_and_leave_nothing(bench: Bench) -> None:
    """In the conversation at once; a packed processor's state is set by its answer alone."""
    context_id = context_of(bench.start(make_task(1)))
    entries = [state_context_pb2.TpStateEntry(address=name, data=b"x") for name in (address(3), address(1))]
    set_request = state_context_pb2.TpStateSetRequest(context_id=context_id, entries=entries)
    response = bench.ask(b"p", 9, set_request)
    assert response.status == state_context_pb2.TpStateSetResponse.AUTHORIZATION_ERROR
    delete = state_context_pb2.TpStateDeleteRequest(context_id=context_id, addresses=[address(3), address(1)])
    response = bench.ask(b"p", 11, delete)
    assert response.status == state_context_pb2.TpStateDeleteResponse.AUTHORIZATION_ERROR
    response = bench.ask(b"p", 7, Get(context_id=context_id, addresses=[address(3)]))
    assert (response.status, list(response.entries)) == (GetResponse.OK, [])


def test_tasks_are_told_all_of_their_transactions(bench: Bench) -> None:
    task = make_task(1, [touching("a"), touching("b")])
    sent = bench.start(task)
    if sent.message_type == Envelope.PACKED_PROCESS_REQUEST:
        (unit,) = sent.message.units
        assert list(unit.transactions) == [transaction.raw for transaction in task.units[0].transactions]
        return
    told = [sent]
    assert bench.answer(told[0], Response(status="OK")) == []
    told += bench.take_sent()
    assert [message.message.signature for message in told] == [entry.id for entry in task.units[0].transactions]
    ((outcomes,),) = [event.outcomes for event in answer(bench, told[1], Response(status="OK"))]
    assert len(outcomes) == 2
