"""The contract of an assignment (one task at one processor), for the packed message and the 1.x conversation."""

from collections.abc import Mapping

import pytest

from dovetail.ledger.limits import Limits
from dovetail.validator.core.execution.model import TransactionOutcome, Verdict
from dovetail.validator.processors.registry import TaskAnswered
from protos import packed_pb2, processor_pb2, state_context_pb2
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.processors_support import Bench, Sent, make_task, touching
from tests.dovetail.validator.support import address, make_transaction

List, ListResponse = packed_pb2.StateListRequest, packed_pb2.StateListResponse
Get, GetResponse = state_context_pb2.TpStateGetRequest, state_context_pb2.TpStateGetResponse
Response = processor_pb2.TpProcessResponse
Results = packed_pb2.PackedProcessResponse


@pytest.fixture(params=[0, 1], ids=["conversation", "packed"])
def bench(request: pytest.FixtureRequest) -> Bench:
    limits = Limits(
        message_bytes_max=20_000, receipt_bytes_max=100, state_list_entries_max=3, state_list_bytes_max=1_000
    )
    bench = Bench(limits)
    bench.register(packed_version=request.param)
    return bench


def context_of(sent: Sent) -> str:
    """The context id of the first transaction."""
    packed = sent.message_type == Envelope.PACKED_PROCESS_REQUEST
    return f"{sent.message.context_id}:0" if packed else str(sent.message.context_id)


def answer(bench: Bench, sent: Sent, response: Response) -> list[TaskAnswered]:
    """Answer a task of one transaction in the task's protocol."""
    if sent.message_type == Envelope.TP_PROCESS_REQUEST:
        events = bench.answer(sent, response)
    else:
        result = Results.TransactionResult(
            status=response.status, message=response.message, extended_data=response.extended_data
        )
        events = bench.answer(sent, Results(units=[Results.UnitResult(results=[result])]))
    return [event for event in events if isinstance(event, TaskAnswered)]


def test_ids_belong_to_one_task(bench: Bench) -> None:
    sents = [bench.start(make_task(number)) for number in range(2)]
    assert len({sent.correlation_id for sent in sents}) == len({sent.message.context_id for sent in sents}) == 2
    for sent in reversed(sents):
        assert len(answer(bench, sent, Response(status="OK"))) == 1


def test_reads_are_served_within_the_inputs(bench: Bench) -> None:
    context_id = context_of(bench.start(make_task(1)))
    response = bench.ask(b"p", 7, Get(context_id=context_id, addresses=[address(1), address(3)]))
    assert response.status == GetResponse.OK
    assert [(entry.address, entry.data) for entry in response.entries] == [(address(1), b"one"), (address(3), b"")]
    for outside in (address(2), "", "1cf126", address(1).upper(), address(1) + "00", "é" * 70):
        response = bench.ask(b"p", 7, Get(context_id=context_id, addresses=[address(1), outside]))
        assert response.status == GetResponse.AUTHORIZATION_ERROR
        assert not response.entries


def listing(bench: Bench, *inputs: str, state: Mapping[str, bytes]) -> str:
    """The context id of a transaction with these inputs."""
    return context_of(bench.start(make_task(1, [make_transaction("t", inputs=inputs)]), state))


def pages(bench: Bench, context_id: str, prefix: str) -> list[list[tuple[str, bytes]]]:
    """All pages of a list. Each request names the last address of the page before."""
    found: list[list[tuple[str, bytes]]] = []
    after, more = "", True
    while more:
        response = bench.ask(b"p", 1002, List(context_id=context_id, prefix=prefix, after=after))
        assert response.status == ListResponse.OK
        found.append([(entry.address, entry.data) for entry in response.entries])
        more = response.more
        after = found[-1][-1][0] if more else ""
    return found


def test_lists_come_in_pages_by_address(bench: Bench) -> None:
    state = {address(number): b"%d" % number for number in (5, 1, 4, 2, 3, 0x100, 6)}
    state |= {address(1, "1cf127"): b"other"}
    context_id = listing(bench, "1cf1", state=state)
    ordered = [(address(number), b"%d" % number) for number in (1, 2, 3, 4, 5, 6, 0x100)]
    assert pages(bench, context_id, "1cf126") == [ordered[:3], ordered[3:6], ordered[6:]]
    assert pages(bench, context_id, "1cf1") == [
        ordered[:3],
        ordered[3:6],
        [*ordered[6:], (address(1, "1cf127"), b"other")],
    ]
    assert pages(bench, context_id, address(4)) == [[(address(4), b"4")]]
    assert pages(bench, context_id, "1cf128") == [[]]
    assert pages(bench, context_id, address(7)) == [[]]
    # ``after`` may be an empty address, lie between prefixes, or be no address at all.
    for after, expected in ((address(7), ordered[6:]), ("", ordered[:3]), ("1cf125ff", ordered[:3]), ("z", [])):
        response = bench.ask(b"p", 1002, List(context_id=context_id, prefix="1cf126", after=after))
        assert [(entry.address, entry.data) for entry in response.entries] == expected


def test_a_page_has_at_least_one_entry_and_as_many_as_fit(bench: Bench) -> None:
    state = {address(1): bytes(5_000), address(2): bytes(5_000), address(3): bytes(400), address(4): bytes(400)}
    context_id = listing(bench, "", state=state)
    assert [[name for name, _ in page] for page in pages(bench, context_id, "")] == [
        [address(1)], [address(2)], [address(3), address(4)],
    ]  # fmt: skip


def test_lists_are_served_within_the_inputs(bench: Bench) -> None:
    context_id = listing(bench, "1cf126", address(1, "1cf127"), state={address(1, "1cf127"): b"x"})
    assert pages(bench, context_id, address(1, "1cf127")) == [[(address(1, "1cf127"), b"x")]]
    for outside in ("", "1cf1", "1cf127", address(2, "1cf127"), "1cf1260", "1CF126", "1cf126" + "0" * 66, "é"):
        response = bench.ask(b"p", 1002, List(context_id=context_id, prefix=outside))
        assert (response.status, len(response.entries)) == (ListResponse.AUTHORIZATION_ERROR, 0)


def test_nothing_is_listed_without_inputs_or_for_an_unknown_context(bench: Bench) -> None:
    context_id = listing(bench, state={address(1): b"x"})
    for name in (context_id, context_id.partition(":")[0] + ":1", "unknown", ""):
        response = bench.ask(b"p", 1002, List(context_id=name, prefix=""))
        assert (response.status, len(response.entries)) == (ListResponse.AUTHORIZATION_ERROR, 0)


def test_a_request_names_the_batch(bench: Bench) -> None:
    task = make_task(1)
    sent = bench.start(task)
    told = sent.message.units[0] if sent.message_type == Envelope.PACKED_PROCESS_REQUEST else sent.message
    assert told.batch_id == task.units[0].batch_id
    assert len(told.batch_id) == 128


def test_an_address_asked_for_many_times_is_answered_once(bench: Bench) -> None:
    context_id = context_of(bench.start(make_task(1)))
    response = bench.ask(b"p", 7, Get(context_id=context_id, addresses=[address(1)] * 100))
    assert [entry.address for entry in response.entries] == [address(1)]


def test_an_address_that_is_not_set_and_an_entry_without_bytes_are_answered_alike(bench: Bench) -> None:
    """Both are answered by an entry without data, as in 1.x."""
    context_id = listing(bench, "1cf126", state={address(1): b"", address(2): b"two"})
    response = bench.ask(b"p", 7, Get(context_id=context_id, addresses=[address(number) for number in (1, 2, 3)]))
    found = [(entry.address, entry.data) for entry in response.entries]
    assert found == [(address(1), b""), (address(2), b"two"), (address(3), b"")]
    # A list holds what is stored. The SDK leaves out the entries without bytes.
    assert pages(bench, context_id, "1cf126") == [[(address(1), b""), (address(2), b"two")]]


def test_an_answer_to_a_read_has_a_bound(bench: Bench) -> None:
    """A read of half a message's limit is answered. One byte more is refused, though each address alone can be read."""
    state = {address(1): bytes(6_000), address(2): bytes(3_860), address(3): bytes(3_861)}
    context_id = listing(bench, "1cf126", state=state)
    for number, status in ((2, GetResponse.OK), (3, GetResponse.AUTHORIZATION_ERROR)):
        response = bench.ask(b"p", 7, Get(context_id=context_id, addresses=[address(1), address(number)]))
        assert (response.status, len(response.entries)) == (status, 2 if status == GetResponse.OK else 0)
    assert bench.ask(b"p", 7, Get(context_id=context_id, addresses=[address(3)])).status == GetResponse.OK
    # Addresses that are not set count, too.
    unset = [address(number) for number in range(100, 100 + 143)]
    assert bench.ask(b"p", 7, Get(context_id=context_id, addresses=unset[1:])).status == GetResponse.OK
    response = bench.ask(b"p", 7, Get(context_id=context_id, addresses=unset))
    assert response.status == GetResponse.AUTHORIZATION_ERROR


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
    assert answer(bench, bench.start(task), response) == [
        TaskAnswered(task, [[outcome]], ("1cf126",), (task.route,), b"p")
    ]


def test_message_and_extended_data_of_a_processor_are_bounded(bench: Bench) -> None:
    response = Response(status="INVALID_TRANSACTION", message="é" * 10_000, extended_data=bytes(100_000))
    (answered,) = answer(bench, bench.start(make_task(1)), response)
    ((outcome,),) = answered.outcomes
    assert outcome == TransactionOutcome(Verdict.INVALID, "é" * 4_096, bytes(65_536))


@pytest.mark.parametrize("content", [b"\x0a\xff", b"\xff", b"\x08"])
def test_an_answer_that_cannot_be_decoded_is_no_verdict(bench: Bench, content: bytes) -> None:
    (answered,) = bench.answer(bench.start(make_task(1)), content)
    assert isinstance(answered, TaskAnswered)
    (outcomes,) = answered.outcomes
    assert all(outcome.verdict is Verdict.ERROR for outcome in outcomes)
    assert bench.processors.free(make_task(1).route)


def test_writes_outside_are_refused_and_leave_nothing(bench: Bench) -> None:
    """The 1.x conversation refuses the write at once. Packed execution refuses the answer, which holds the writes."""
    context_id = context_of(bench.start(make_task(1)))
    entries = [state_context_pb2.TpStateEntry(address=name, data=b"x") for name in (address(3), address(1))]
    set_request = state_context_pb2.TpStateSetRequest(context_id=context_id, entries=entries)
    response = bench.ask(b"p", 9, set_request)
    assert response.status == state_context_pb2.TpStateSetResponse.AUTHORIZATION_ERROR
    delete = state_context_pb2.TpStateDeleteRequest(context_id=context_id, addresses=[address(3), address(1)])
    response = bench.ask(b"p", 11, delete)
    assert response.status == state_context_pb2.TpStateDeleteResponse.AUTHORIZATION_ERROR
    response = bench.ask(b"p", 7, Get(context_id=context_id, addresses=[address(3)]))
    assert (response.status, [entry.data for entry in response.entries]) == (GetResponse.OK, [b""])


def test_a_processor_is_sent_all_transactions_of_a_task(bench: Bench) -> None:
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
