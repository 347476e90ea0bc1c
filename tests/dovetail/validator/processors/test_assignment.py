"""Behaviour that is specific to one protocol: counts in packed messages, contexts and order in 1.x conversations."""

import pytest

from dovetail.ledger.limits import Limits
from dovetail.ledger.receipt import Event
from dovetail.validator.core.execution.model import Task, TransactionOutcome, Verdict
from dovetail.validator.processors.assignment import Outcomes
from dovetail.validator.processors.registry import TaskAnswered
from protos import events_pb2, packed_pb2, processor_pb2, state_context_pb2, transaction_pb2
from protos.state_context_pb2 import TpStateGetRequest
from protos.transaction_receipt_pb2 import StateChange
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.processors_support import Bench, Sent, make_task, touching
from tests.dovetail.validator.support import address, make_transaction, view_of

Results = packed_pb2.PackedProcessResponse
Response = processor_pb2.TpProcessResponse
OK = Results.TransactionResult(status="OK")
BAD = Results.TransactionResult(status="INVALID_TRANSACTION")


def packed_bench() -> Bench:
    bench = Bench()
    bench.register(packed_version=1)
    return bench


def single_bench() -> Bench:
    bench = Bench(Limits(receipt_bytes_max=150))
    bench.register()
    return bench


def outcomes_of(bench: Bench, task: Task, *units: list[Results.TransactionResult]) -> Outcomes:
    """The outcomes of an answer with these units' results."""
    response = Results(units=[Results.UnitResult(results=unit) for unit in units])
    (answered,) = bench.answer(bench.start(task), response)
    assert isinstance(answered, TaskAnswered)
    return answered.outcomes


def test_a_packed_message_carries_the_values_of_named_inputs_once() -> None:
    prefix = make_transaction("prefix", inputs=["1cf126", "", address(2)[:68]], outputs=[address(2)])
    task = make_task(1, [touching("a"), touching("b")], [prefix], [touching("c")])
    sent = packed_bench().start(task)
    assert [(entry.address, entry.data) for entry in sent.message.entries] == [(address(1), b"one")]
    assert [list(unit.transactions) for unit in sent.message.units] == [
        [transaction.raw for transaction in unit.transactions] for unit in task.units
    ]


def test_a_packed_message_reads_for_each_batch() -> None:
    bench = packed_bench()
    task = make_task(1, [make_transaction("a", inputs=[""])], [make_transaction("b", inputs=[""])])
    bench.sent.clear()
    assert bench.processors.start(bench.free(), task, lambda batch: view_of({address(9): b"%d" % batch}))
    context_id = bench.take_sent()[0].message.context_id
    for number in range(2):
        get = state_context_pb2.TpStateGetRequest(context_id=f"{context_id}:{number}", addresses=[address(9)])
        response = bench.ask(b"p", Envelope.TP_STATE_GET_REQUEST, get)
        assert [entry.data for entry in response.entries] == [b"%d" % number]


@pytest.mark.parametrize(
    ("answered", "counts"),
    [
        ([], [0, 0]),
        ([[OK, OK]], [2, 0]),
        ([[OK], [OK]], [1, 1]),
        ([[OK, OK, OK, OK], [OK]], [2, 1]),
        ([[OK, OK], [OK], [OK], [OK]], [2, 1]),
        ([[BAD, OK], [OK]], [2, 1]),
        ([[], []], [0, 0]),
    ],
)
def test_a_packed_answer_never_has_more_than_was_asked(
    answered: list[list[Results.TransactionResult]], counts: list[int]
) -> None:
    task = make_task(1, [touching("a"), touching("b")], [touching("c")])
    assert [len(unit) for unit in outcomes_of(packed_bench(), task, *answered)] == counts


def test_a_packed_result_holds_changes_events_and_data() -> None:
    result = Results.TransactionResult(
        status="OK",
        message="unheard",
        state_changes=[
            StateChange(address=address(3), value=b"new", type="SET"),
            StateChange(address=address(2), value=b"unheard", type="DELETE"),
        ],
        events=[events_pb2.Event(event_type="kind", attributes=[{"key": "k", "value": "v"}], data=b"d")],
        data=[b"first", b""],
    )
    ((outcome,),) = outcomes_of(packed_bench(), make_task(1), [result])
    changes = {address(3): b"new", address(2): None}
    event = Event("kind", (("k", "v"),), b"d")
    assert outcome == TransactionOutcome(Verdict.OK, "", b"", changes, (event,), (b"first", b""))
    result.status = Response.INVALID_TRANSACTION
    ((outcome,),) = outcomes_of(packed_bench(), make_task(1), [result])
    assert outcome == TransactionOutcome(Verdict.INVALID, "unheard")


def test_a_packed_message_that_is_too_large_is_not_sent() -> None:
    """A request takes at most half of a message's limit, so that an answer with as many writes fits too."""
    value = bytes(1_000)
    for fits, most in ((True, 6_000), (False, 4_000)):
        bench = Bench(Limits(message_bytes_max=most))
        bench.register(packed_version=1)
        bench.take_sent()
        started = bench.processors.start(
            bench.free(), make_task(1), lambda batch: view_of({address(1): value, address(3): value})
        )
        assert started is fits
        assert bool(bench.sent) is fits
        assert bench.free().capacity == (1 if fits else 2)


def test_a_task_that_must_be_alone_is_a_conversation() -> None:
    bench = packed_bench()
    task = make_task(1)._replace(alone=True)
    sent = bench.start(task)
    assert sent.message_type == Envelope.TP_PROCESS_REQUEST
    (answered,) = bench.answer(sent, Response(status="OK"))
    assert isinstance(answered, TaskAnswered)
    assert answered.outcomes == [[TransactionOutcome(Verdict.OK)]]


def list_request(sent: Sent, prefix: str, after: str = "") -> packed_pb2.StateListRequest:
    return packed_pb2.StateListRequest(context_id=sent.message.context_id, prefix=prefix, after=after)


def listed(bench: Bench, request: packed_pb2.StateListRequest) -> list[tuple[str, bytes]]:
    response = bench.ask(b"p", Envelope.STATE_LIST_REQUEST, request)
    assert response.status == packed_pb2.StateListResponse.OK
    return [(entry.address, entry.data) for entry in response.entries]


def test_a_conversation_lists_what_it_has_written_so_far() -> None:
    bench = single_bench()
    task = make_task(
        1,
        [
            make_transaction("a", inputs=["1cf126"], outputs=["1cf126"]),
            make_transaction("b", inputs=["1cf1"], outputs=["1cf126"]),
        ],
    )
    first = bench.start(task)
    everything = [(address(1), b"one"), (address(2), b"two")]
    assert listed(bench, list_request(first, "1cf126")) == everything
    bench.ask(b"p", Envelope.TP_STATE_SET_REQUEST, set_request(first, 3, b"by a"))
    gone = state_context_pb2.TpStateDeleteRequest(context_id=first.message.context_id, addresses=[address(1)])
    bench.ask(b"p", Envelope.TP_STATE_DELETE_REQUEST, gone)
    expected = [(address(2), b"two"), (address(3), b"by a")]
    assert listed(bench, list_request(first, "1cf126")) == expected
    assert bench.answer(first, Response(status="OK")) == []
    (second,) = bench.take_sent()
    bench.ask(b"p", Envelope.TP_STATE_SET_REQUEST, set_request(second, 2, b"by b"))
    assert listed(bench, list_request(second, "1cf1")) == [(address(2), b"by b"), (address(3), b"by a")]
    assert listed(bench, list_request(second, "1cf126", address(2))) == [(address(3), b"by a")]
    # The context of the first transaction is closed.
    late = bench.ask(b"p", Envelope.STATE_LIST_REQUEST, list_request(first, "1cf126"))
    assert (late.status, len(late.entries)) == (packed_pb2.StateListResponse.AUTHORIZATION_ERROR, 0)


def test_a_refused_list_outweighs_the_processors_ok() -> None:
    bench = single_bench()
    sent = bench.start(make_task(1))
    response = bench.ask(b"p", Envelope.STATE_LIST_REQUEST, list_request(sent, "1cf126"))
    assert response.status == packed_pb2.StateListResponse.AUTHORIZATION_ERROR
    (answered,) = bench.answer(sent, Response(status="OK"))
    assert isinstance(answered, TaskAnswered)
    ((outcome,),) = answered.outcomes
    assert outcome.verdict is Verdict.INVALID
    assert "it listed '1cf126', which no one of its inputs covers" in outcome.message


def test_a_packed_message_lists_for_each_batch() -> None:
    bench = packed_bench()
    task = make_task(1, [make_transaction("a", inputs=[""])], [make_transaction("b", inputs=[""])])
    bench.sent.clear()
    assert bench.processors.start(bench.free(), task, lambda batch: view_of({address(9): b"%d" % batch}))
    context_id = bench.take_sent()[0].message.context_id
    for number in range(2):
        request = packed_pb2.StateListRequest(context_id=f"{context_id}:{number}", prefix="1cf126")
        assert listed(bench, request) == [(address(9), b"%d" % number)]


def set_request(sent: Sent, number: int, data: bytes) -> state_context_pb2.TpStateSetRequest:
    entry = state_context_pb2.TpStateEntry(address=address(number), data=data)
    return state_context_pb2.TpStateSetRequest(context_id=sent.message.context_id, entries=[entry])


@pytest.mark.parametrize("style", ["HEADER_STYLE_UNSET", "EXPANDED", "RAW"])
def test_a_process_request_carries_the_header_as_it_was_asked_for(style: str) -> None:
    transaction = touching("t")
    bench = Bench()
    bench.register(request_header_style=style)
    sent = bench.start(make_task(1, [transaction]))
    message = transaction_pb2.Transaction.FromString(transaction.raw)
    if style == "RAW":
        assert sent.message.header_bytes == message.header
        assert not sent.message.HasField("header")
    else:
        assert sent.message.header == transaction_pb2.TransactionHeader.FromString(message.header)
    assert (sent.message.payload, sent.message.signature) == (message.payload, transaction.id)
    assert sent.message.context_id


def test_a_conversation_builds_on_its_earlier_transactions() -> None:
    bench = single_bench()
    task = make_task(1, [touching("a"), touching("b")])
    first = bench.start(task)
    response = bench.ask(b"p", Envelope.TP_STATE_SET_REQUEST, set_request(first, 3, b"by a"))
    assert (response.status, list(response.addresses)) == (state_context_pb2.TpStateSetResponse.OK, [address(3)])
    assert bench.answer(first, Response(status="OK")) == []
    (second,) = bench.take_sent()
    get = state_context_pb2.TpStateGetRequest(context_id=second.message.context_id, addresses=[address(3)])
    assert [entry.data for entry in bench.ask(b"p", Envelope.TP_STATE_GET_REQUEST, get).entries] == [b"by a"]
    delete = state_context_pb2.TpStateDeleteRequest(
        context_id=second.message.context_id, addresses=[address(3), address(2), address(2)]
    )
    for _ in range(2):
        # All addresses that were asked for, also when they are no longer set, as 1.x validators answer.
        gone = bench.ask(b"p", Envelope.TP_STATE_DELETE_REQUEST, delete)
        assert (gone.status, gone.addresses) == (state_context_pb2.TpStateDeleteResponse.OK, delete.addresses)
    # The context of the first transaction is closed.
    late = bench.ask(b"p", Envelope.TP_STATE_SET_REQUEST, set_request(first, 3, b"late"))
    assert late.status == state_context_pb2.TpStateSetResponse.AUTHORIZATION_ERROR
    assert bench.answer(first, Response(status="INVALID_TRANSACTION")) == []
    (answered,) = bench.answer(second, Response(status="OK"))
    assert isinstance(answered, TaskAnswered)
    assert [[outcome.changes for outcome in unit] for unit in answered.outcomes] == [
        [{address(3): b"by a"}, {address(3): None, address(2): None}]
    ]


def test_a_conversation_ends_with_its_first_failure() -> None:
    bench = single_bench()
    sent = bench.start(make_task(1, [touching("a"), touching("b")]))
    (answered,) = bench.answer(sent, Response(status="INVALID_TRANSACTION", message="no"))
    assert isinstance(answered, TaskAnswered)
    assert answered.outcomes == [[TransactionOutcome(Verdict.INVALID, "no")]]
    assert bench.sent == []


def test_a_refused_access_outweighs_the_processors_ok() -> None:
    bench = single_bench()
    sent = bench.start(make_task(1))
    bench.ask(b"p", Envelope.TP_STATE_SET_REQUEST, set_request(sent, 3, b"x"))
    bench.ask(b"p", Envelope.TP_STATE_SET_REQUEST, set_request(sent, 1, b"x"))
    (answered,) = bench.answer(sent, Response(status="OK"))
    assert isinstance(answered, TaskAnswered)
    ((outcome,),) = answered.outcomes
    assert (outcome.verdict, outcome.changes) == (Verdict.INVALID, {})
    assert f"wrote at {address(1)}, outside its outputs" in outcome.message


def test_receipts_grow_to_a_limit() -> None:
    bench = single_bench()
    sent = bench.start(make_task(1))
    context_id = sent.message.context_id
    data = state_context_pb2.TpReceiptAddDataRequest(context_id=context_id, data=bytes(60))
    good, bad = state_context_pb2.TpReceiptAddDataResponse.OK, state_context_pb2.TpReceiptAddDataResponse.ERROR
    statuses = [bench.ask(b"p", Envelope.TP_RECEIPT_ADD_DATA_REQUEST, data).status for _ in range(3)]
    assert statuses == [good, bad, bad]
    event = state_context_pb2.TpEventAddRequest(context_id=context_id, event=events_pb2.Event(data=bytes(60)))
    assert bench.ask(b"p", Envelope.TP_EVENT_ADD_REQUEST, event).status == state_context_pb2.TpEventAddResponse.ERROR
    (answered,) = bench.answer(sent, Response(status="OK"))
    assert isinstance(answered, TaskAnswered)
    # As in packed execution, the transaction is INVALID, even though the processor answers OK after the refusal.
    ((outcome,),) = answered.outcomes
    assert outcome.verdict is Verdict.INVALID
    assert "at most 150 are kept" in outcome.message


def test_events_are_kept_in_order() -> None:
    bench = Bench()
    bench.register()
    sent = bench.start(make_task(1))
    for kind in ("one", "two"):
        event = events_pb2.Event(event_type=kind, attributes=[{"key": "k", "value": "v"}], data=b"d")
        request = state_context_pb2.TpEventAddRequest(context_id=sent.message.context_id, event=event)
        assert bench.ask(b"p", Envelope.TP_EVENT_ADD_REQUEST, request).status == 1
    (answered,) = bench.answer(sent, Response(status="OK"))
    assert isinstance(answered, TaskAnswered)
    assert answered.outcomes[0][0].events == (Event("one", (("k", "v"),), b"d"), Event("two", (("k", "v"),), b"d"))


def test_an_answer_to_a_conversation_fits_a_message() -> None:
    bench = Bench(Limits(message_bytes_max=1_000))
    bench.register()
    value = bytes(600)
    sent = bench.start(make_task(1), {address(1): value, address(3): value})
    get = TpStateGetRequest(context_id=sent.message.context_id, addresses=[address(1), address(3)])
    assert bench.ask(b"p", Envelope.TP_STATE_GET_REQUEST, get).ByteSize() < 1_000
