"""Packed execution and the 1.x conversation: compared with a plain interpreter, and given malformed messages."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.ledger.limits import PROCESSOR_MESSAGE_BYTES_MAX, STATE_REQUEST_ADDRESSES_MAX
from processor_sdk import Context, InternalError, InvalidTransaction, Transaction, TransactionHandler
from processor_sdk.apply.dispatch import EXTENDED_BYTES_MAX, MESSAGE_CHARACTERS_MAX, Dispatcher
from processor_sdk.apply.state import StateCalls
from processor_sdk.errors import StateUnavailable
from protos import packed_pb2, processor_pb2, state_context_pb2, transaction_pb2
from tests.processor_sdk.scripts import (
    FAMILY,
    INTERNAL,
    INVALID,
    NAMESPACE,
    OK,
    VERSION,
    Outcome,
    ScriptHandler,
    Spec,
    State,
    address,
    interpret,
    packed,
    packed_request,
    single,
)

A, B, C = address(1), address(2), address(3)
ELSEWHERE = address(1, "bbbbbb")

addresses = st.sampled_from([A, B, C, address(0x100), ELSEWHERE, "aaaaaa", A[:-1] + "G"])
prefixes = st.sampled_from(["aaaaaa"] * 6 + [A[:68], A[:68], A, "", "aaaaaa0", "AAAAAA", "bbbbbb"])
declared = st.lists(st.sampled_from([A, B, C, ELSEWHERE, "", "aaaaaa", "aaaaaa00", A[:68], "bbbbbb"]), max_size=4).map(
    tuple
)
values = st.sampled_from(["", "x", "yy"])
operations = st.one_of(
    st.tuples(st.just("get"), addresses),
    st.tuples(st.just("get_many"), st.lists(addresses, max_size=3)),
    st.tuples(st.just("set"), addresses, values),
    st.tuples(st.just("delete"), addresses),
    st.tuples(st.just("list"), prefixes),
    st.tuples(st.just("list_and_change"), prefixes, st.sampled_from([A, B]), st.just(C)),
    st.just(("event", "type")),
    st.sampled_from([("invalid", "no"), ("bug",)]),
)
# If all addresses are declared, most scripts run more than two operations.
specs = st.builds(
    Spec,
    inputs=st.one_of(st.just((A, B, C, "aaaaaa")), st.just(("aaaaaa",)), declared),
    outputs=st.one_of(st.just((A, B, C, "aaaaaa")), declared),
    script=st.lists(operations, max_size=6),
)
units = st.lists(st.lists(specs, min_size=1, max_size=4), max_size=4)
states = st.dictionaries(st.sampled_from([A, B, C, address(0x100), ELSEWHERE]), values.map(str.encode))

quiet = Dispatcher([ScriptHandler()])


@pytest.fixture(autouse=True)
def _no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "processor_sdk.apply.dispatch")


def serial(batches: Sequence[Sequence[Spec]], state: dict[str, bytes]) -> tuple[list[list[Outcome]], dict[str, bytes]]:
    outcomes = []
    for batch in batches:
        after = dict(state)
        results = []
        for spec in batch:
            outcome, after = interpret(spec, after)
            results.append(outcome)
            if outcome.status != OK:
                after = dict(state)
                break
        state = after
        outcomes.append(results)
    return outcomes, state


@given(units, states)
def test_packed_equals_transaction_by_transaction(batches: list[list[Spec]], state: dict[str, bytes]) -> None:
    validator = State(state)
    response = packed_pb2.PackedProcessResponse.FromString(quiet.packed(packed_request(batches, state), validator.link))
    after = dict(state)
    outcomes = []
    for unit in response.units:
        outcomes.append([Outcome(result.status, tuple(result.data)) for result in unit.results])
        if all(result.status == OK for result in unit.results):
            for result in unit.results:
                assert len({change.address for change in result.state_changes}) == len(result.state_changes)
                for change in result.state_changes:
                    if change.type == 1:
                        after[change.address] = change.value
                    else:
                        after.pop(change.address, None)
    assert (outcomes, after) == serial(batches, state)


@given(specs, states)
def test_single_equals_the_interpreter(spec: Spec, state: dict[str, bytes]) -> None:
    validator = State(state)
    for style in ("raw", "expanded"):
        validator = State(state)
        response = single(quiet, spec, validator, style)
        outcome, after = interpret(spec, state)
        assert Outcome(response.status, tuple(validator.receipt_data)) == outcome
        assert validator.values == after
        assert [kind for kind, _, _ in validator.calls].count("set") <= 1
        assert [kind for kind, _, _ in validator.calls].count("delete") <= 1


def test_prefix_inputs_are_fetched_once_under_the_transactions_own_context() -> None:
    state = State({B: b"b"})
    first = Spec((A,), (A,), [["get", A], ["invalid", "no"]])
    skipped = Spec((A,), (A,), [])
    second = Spec(("aaaaaa",), (), [["get", B], ["get", B], ["get_many", [A, B, C]]])
    results = packed(quiet, [[first, skipped], [second, second]], state)
    assert [[result.status for result in unit] for unit in results] == [[INVALID], [OK, OK]]
    assert state.calls == [("get", "ctx:2", (B,)), ("get", "ctx:2", (A, C))]


def test_writes_of_earlier_units_win_over_fetched_values() -> None:
    state = State({A: b"old", B: b"old"})
    write = Spec((), (A, B), [["set", A, "new"], ["delete", B]])
    read = Spec(("aaaaaa",), (), [["get", A], ["get", B]])
    results = packed(quiet, [[write], [read]], state)
    assert list(results[1][0].data) == [b"data new", b"none"]
    assert state.calls == []


def test_later_units_do_not_see_a_failed_unit() -> None:
    state = State({A: b"old"})
    write = Spec((A,), (A,), [["set", A, "new"]])
    fail = Spec((A,), (A,), [["get", A], ["bug"]])
    read = Spec((A,), (A,), [["get", A]])
    results = packed(quiet, [[write, fail, read], [read]], state)
    assert [[result.status for result in unit] for unit in results] == [[OK, INTERNAL], [OK]]
    assert list(results[1][0].data) == [b"data old"]


def _following(
    dispatcher: Dispatcher, context_id: str, follows: str, batches: Sequence[Sequence[Spec]], state: State
) -> list[packed_pb2.PackedProcessResponse.TransactionResult]:
    """The results of all units of one request."""
    content = dispatcher.packed(packed_request(batches, state.values, context_id, follows=follows), state.link)
    return [result for unit in packed_pb2.PackedProcessResponse.FromString(content).units for result in unit.results]


def test_a_following_request_sees_the_changes_of_the_one_before() -> None:
    dispatcher, state = Dispatcher([ScriptHandler()]), State({A: b"old", B: b"old", C: b"old"})
    write = Spec((A,), (A, B, C), [["set", A, "new"], ["delete", B]])
    fail = Spec((C,), (C,), [["set", C, "new"], ["invalid", "no"]])
    read = Spec((A, B, C), (), [["get", A], ["get", B], ["get", C]])
    _following(dispatcher, "first", "", [[write], [fail]], state)
    (result,) = _following(dispatcher, "second", "first", [[read]], state)
    # The entries of the second request hold the state before the first request. The changes of the first come on top.
    assert list(result.data) == [b"data new", b"none", b"data old"]
    # For the third request, the validator's entries include the changes of the first. The SDK adds only those of the
    # second.
    (result,) = _following(dispatcher, "third", "second", [[read]], state)
    assert list(result.data) == [b"data old", b"data old", b"data old"]


def test_values_that_were_only_read_are_not_passed_to_a_following_request() -> None:
    dispatcher, state = Dispatcher([ScriptHandler()]), State({A: b"old"})
    read = Spec(("aaaaaa",), (), [["get", A]])
    _following(dispatcher, "first", "", [[read]], state)
    state.values[A] = b"new"
    (result,) = _following(dispatcher, "second", "first", [[read]], state)
    assert list(result.data) == [b"data new"]


def test_a_request_that_follows_an_unknown_one_gets_no_verdict() -> None:
    dispatcher, state = Dispatcher([ScriptHandler()]), State({})
    unit = [Spec((), (), [])]
    _following(dispatcher, "first", "", [unit], state)
    results = _following(dispatcher, "second", "another", [unit, unit], state)
    assert [(result.status, result.message) for result in results] == [
        (INTERNAL, "InternalError: it follows 'another', and the one before it was 'first'")
    ] * 2


@pytest.mark.parametrize("inputs", [(A,), ("aaaaaa",)])
@pytest.mark.parametrize("values", [{}, {A: b""}])
def test_a_delete_is_recorded_where_nothing_is_read(inputs: tuple[str, ...], values: dict[str, bytes]) -> None:
    """What is read does not tell an entry without bytes, which is to be removed, from an address that is not set."""
    spec = Spec(inputs, (A,), [["delete", A], ["set", A, "x"], ["delete", A], ["set", A, ""], ["delete", A]])
    [[result]] = packed(quiet, [[spec]], State(values))
    assert [(change.address, change.type) for change in result.state_changes] == [(A, 2)]
    assert list(result.data) == [b"not held", b"held", b"not held"]
    conversation = State(values)
    single(quiet, spec, conversation)
    assert conversation.calls[-1] == ("delete", "ctx", (A,))
    assert (conversation.receipt_data, conversation.values) == (list(result.data), {})


def test_a_delete_at_an_unreadable_address_is_recorded_and_reveals_nothing() -> None:
    for values_held in ({}, {A: b"x"}):
        [[first], [second]] = packed(
            quiet, [[Spec((), (A,), [["set", A, "y"]])], [Spec((), (A,), [["delete", A]])]], State(values_held)
        )
        assert first.status == OK
        assert [(change.address, change.type) for change in second.state_changes] == [(A, 2)]
        assert list(second.data) == [b"held"]
        conversation = State(values_held)
        single(quiet, Spec((), (A,), [["delete", A]]), conversation)
        assert conversation.calls == [("delete", "ctx", (A,))]
        assert conversation.receipt_data == [b"held"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (Spec((B,), (), [["get", A]]), [A, B, "inputs"]),
        (Spec((), (B,), [["set", A, "x"]]), [A, B, "outputs"]),
        (Spec((), (ELSEWHERE,), [["set", ELSEWHERE, "x"]]), [ELSEWHERE, NAMESPACE, "namespaces"]),
        (Spec(("",), (), [["get", A.upper()]]), ["no address"]),
        (Spec(("",), (), [["get_many", [A, A[:10]]]]), ["no address", "10 characters"]),
        (Spec((B,), (), [["get", A]]), [f'inputs=[…, "{A}"]']),
        (Spec((), (B,), [["set", A, "x"]]), [f'outputs=[…, "{A}"]']),
        (Spec((A,), (), [["list", "aaaaaa"]]), ["may not list 'aaaaaa'", f"inputs [{A}]", 'inputs=[…, "aaaaaa"]']),
        (Spec(("aaaaaa",), (), [["list", ""]]), ["may not list ''", 'inputs=[…, ""]']),
        (Spec(("",), (), [["list", "aaaaaa0"]]), ["'aaaaaa0' (7 characters) is no prefix of an address"]),
        (Spec(("",), (), [["list", "AAAAAA"]]), ["'AAAAAA'", "lower-case hex"]),
    ],
)
def test_an_undeclared_access_says_what_to_declare(spec: Spec, said: list[str]) -> None:
    response = single(quiet, spec, State({}))
    assert response.status == INVALID
    assert all(text in response.message for text in said)
    [[result]] = packed(quiet, [[spec]], State({}))
    assert (result.status, result.message) == (response.status, response.message)


def test_events_and_receipt_data_arrive_in_both_protocols() -> None:
    spec = Spec((), (A,), [["set", A, "x"], ["event", "one"], ["event", "two"], ["delete", A]])
    state = State({})
    assert single(quiet, spec, state).status == OK
    assert (state.event_types, state.receipt_data) == (["one", "two"], [b"held"])
    [[result]] = packed(quiet, [[spec]], State({}))
    assert [event.event_type for event in result.events] == ["one", "two"]
    assert [(item.key, item.value) for item in result.events[0].attributes] == [("key", "value")]


def test_invalid_carries_its_extended_data() -> None:
    [[result]] = packed(quiet, [[Spec((), (), [["invalid", "because"]])]], State({}))
    assert (result.status, result.message, result.extended_data) == (INVALID, "because", b"extended")


@pytest.mark.parametrize(("units", "extended", "messages"), [(300, 300, 300), (600, 350, 600), (2_100, 0, 2_000)])
def test_the_verdicts_of_many_transactions_fit_in_one_message(units: int, extended: int, messages: int) -> None:
    """The last ones go without extended data, and then without a message. Every verdict is there."""
    request = packed_request([[Spec((), (), [])]] * units, {})
    verbose = InvalidTransaction("\N{GRINNING FACE}" * MESSAGE_CHARACTERS_MAX, bytes(EXTENDED_BYTES_MAX))
    content = Dispatcher([handler_that(verbose)]).packed(request, State({}).link)
    assert len(content) <= PROCESSOR_MESSAGE_BYTES_MAX - 60_000
    results = [result for unit in packed_pb2.PackedProcessResponse.FromString(content).units for result in unit.results]
    assert [result.status for result in results] == [INVALID] * units
    for kept, least in (
        ([bool(item.extended_data) for item in results], extended),
        ([bool(item.message) for item in results], messages),
    ):
        assert kept == sorted(kept, reverse=True)
        assert sum(kept) >= least


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Careless(InvalidTransaction):
    def __init__(self) -> None:
        self.extended_data = "text"  # type: ignore[assignment]


class Anything(BaseException):
    pass


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ZeroDivisionError("by zero"), INTERNAL, "ZeroDivisionError: by zero"),
        (InternalError("not now"), INTERNAL, "InternalError: not now"),
        (SystemExit(3), INTERNAL, "SystemExit: 3"),
        (Anything("any"), INTERNAL, "Anything: any"),
        (RecursionError(), INTERNAL, "RecursionError: "),
        (MemoryError(), INTERNAL, "MemoryError: "),
        (Unprintable(), INTERNAL, "Unprintable: (no message: its str() raised RuntimeError)"),
        (InvalidTransaction("\ud800 and more"), INVALID, "? and more"),
        (InvalidTransaction("x" * 100_000), INVALID, "x" * MESSAGE_CHARACTERS_MAX),
        (Careless(), INVALID, ""),
    ],
)
def test_whatever_a_handler_raises_is_answered(error: BaseException, status: int, message: str) -> None:
    dispatcher = Dispatcher([handler_that(error)])
    good = Spec((), (), [])
    response = single(dispatcher, good, State({}))
    assert (response.status, response.message) == (status, message)
    [[result], [other]] = packed(dispatcher, [[good, good], [good]], State({}))
    assert (result.status, result.message) == (other.status, other.message) == (status, message)


def handler_that(outcome: Any) -> TransactionHandler[bytes]:
    class Bad(TransactionHandler[bytes]):
        family_name = FAMILY
        family_version = VERSION
        namespaces = (NAMESPACE,)

        def apply(self, transaction: Transaction[bytes], context: Context) -> None:
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome  # type: ignore[no-any-return]

    return Bad()


def test_a_handler_that_returns_a_value_fails() -> None:
    response = single(Dispatcher([handler_that(InvalidTransaction)]), Spec((), (), []), State({}))
    assert (response.status, response.message) == (INTERNAL, "TypeError: apply of script returned type, not None")


def test_ctrl_c_is_no_verdict() -> None:
    with pytest.raises(KeyboardInterrupt):
        single(Dispatcher([handler_that(KeyboardInterrupt())]), Spec((), (), []), State({}))


def test_many_addresses_are_asked_for_in_several_requests() -> None:
    asked: list[int] = []

    def link(message_type: int, content: bytes) -> bytes:
        addresses = state_context_pb2.TpStateGetRequest.FromString(content).addresses
        asked.append(len(addresses))
        entries = [{"address": addresses[0], "data": b"x"}]
        return state_context_pb2.TpStateGetResponse(status="OK", entries=entries).SerializeToString()

    calls = StateCalls("context", "batch", link)
    many = [address(number) for number in range(2 * STATE_REQUEST_ADDRESSES_MAX + 1)]
    found = calls.fetch(many)
    assert asked == [STATE_REQUEST_ADDRESSES_MAX, STATE_REQUEST_ADDRESSES_MAX, 1]
    assert list(found) == [many[0], many[STATE_REQUEST_ADDRESSES_MAX], many[-1]]


def test_a_bug_is_logged_with_its_stack(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "processor_sdk.apply.dispatch")
    single(quiet, Spec((), (), [["bug"]]), State({}))
    [record] = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ZeroDivisionError)


def test_an_unknown_family_is_no_verdict() -> None:
    dispatcher = Dispatcher([])
    assert single(dispatcher, Spec((), (), []), State({})).status == INTERNAL
    [[result]] = packed(dispatcher, [[Spec((), (), [])]], State({}))
    assert result.message == "InternalError: no handler here for the family script 1.0"


def test_two_handlers_of_one_family_are_refused() -> None:
    with pytest.raises(ValueError, match=r"two handlers for the family script 1\.0"):
        Dispatcher([ScriptHandler(), ScriptHandler()])


class Swallower(ScriptHandler):
    """Treats a missing answer as missing data, as careless code does."""

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        try:
            super().apply(transaction, context)
        except Exception:
            context.set(A, b"nothing there")


@pytest.mark.parametrize("answer", [b"\xff", b"\x10\x07", None])
@pytest.mark.parametrize(
    "script", [[["get", A]], [["set", A, "x"]], [["delete", B]], [["event", "e"]], [["list", "aaaaaa"]]]
)
def test_a_state_call_without_a_good_answer_is_no_verdict(answer: bytes | None, script: list[list[str]]) -> None:
    def link(message_type: int, content: bytes) -> bytes:
        if answer is None:
            raise StateUnavailable("gone")
        return answer

    spec = Spec(("aaaaaa",), (A, B), script)
    request = processor_pb2.TpProcessRequest(header_bytes=spec.header_bytes(), payload=spec.payload())
    for handler in (ScriptHandler(), Swallower()):
        content = Dispatcher([handler]).single(request.SerializeToString(), link)
        assert processor_pb2.TpProcessResponse.FromString(content).status == INTERNAL


@pytest.mark.parametrize("script", [[["get", A]], [["set", A, "x"]], [["delete", A]]])
@pytest.mark.parametrize("inputs", [(), ("aaaaaa",)])
def test_the_validators_own_authorization_error_is_final(inputs: tuple[str, ...], script: list[list[str]]) -> None:
    spec = Spec(inputs, (A,), script)
    request = processor_pb2.TpProcessRequest(header_bytes=spec.header_bytes(), payload=spec.payload())
    content = quiet.single(request.SerializeToString(), lambda *_: b"\x10\x02")
    assert processor_pb2.TpProcessResponse.FromString(content).status == INVALID


@pytest.mark.parametrize("answer", [b"", b"\x10\x01"], ids=["no status", "OK"])
def test_a_success_without_every_written_address_is_none(answer: bytes) -> None:
    spec = Spec((), (A,), [["set", A, "x"]])
    request = processor_pb2.TpProcessRequest(header_bytes=spec.header_bytes(), payload=spec.payload())
    response = processor_pb2.TpProcessResponse.FromString(quiet.single(request.SerializeToString(), lambda *_: answer))
    assert response.status == INTERNAL


def test_an_answer_without_status_is_a_success() -> None:
    """As the published 1.x SDKs take it. OK is field 2 of every answer."""
    script = [["get", A], ["set", A, "x"], ["delete", B], ["event", "e"]]
    spec = Spec(("aaaaaa",), (A, B), script)
    request = processor_pb2.TpProcessRequest(header_bytes=spec.header_bytes(), payload=spec.payload())
    state = State({B: b"b"})
    answers = []

    def link(message_type: int, content: bytes) -> bytes:
        answer = state.link(message_type, content)
        answers.append(answer.endswith(b"\x10\x01"))
        return answer.removesuffix(b"\x10\x01")

    response = processor_pb2.TpProcessResponse.FromString(quiet.single(request.SerializeToString(), link))
    assert (response.status, state.values, answers) == (OK, {A: b"x"}, [True] * 7)
    assert state.receipt_data == [b"none", b"held"]


@given(st.binary(max_size=200))
def test_any_bytes_get_one_answer(content: bytes) -> None:
    state = State({})
    processor_pb2.TpProcessResponse.FromString(quiet.single(content, state.link))
    packed_pb2.PackedProcessResponse.FromString(quiet.packed(content, state.link))


@given(
    st.lists(st.lists(st.binary(max_size=60), max_size=3), max_size=3), st.binary(max_size=60), st.binary(max_size=60)
)
def test_any_transactions_get_one_result_a_unit(transactions: list[list[bytes]], header: bytes, payload: bytes) -> None:
    wrapped = transaction_pb2.Transaction(header=header, payload=payload).SerializeToString()
    garbled = transaction_pb2.Transaction(header=Spec((), (), []).header_bytes(), payload=payload).SerializeToString()
    request = packed_pb2.PackedProcessRequest(context_id="ctx")
    for unit in (*transactions, [wrapped], [garbled]):
        request.units.add(transactions=unit)
    response = packed_pb2.PackedProcessResponse.FromString(quiet.packed(request.SerializeToString(), State({}).link))
    assert len(response.units) == len(request.units)
    for asked, answered in zip(request.units, response.units, strict=True):
        statuses = [result.status for result in answered.results]
        assert statuses[:-1] == [OK] * len(statuses[:-1])
        assert len(statuses) == len(asked.transactions) or statuses[-1] != OK
