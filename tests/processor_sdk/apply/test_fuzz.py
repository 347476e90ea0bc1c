"""Arbitrary and mutated bytes as payload, header and message: the dispatcher answers every task exactly once.

Without sockets; ``tests/system/e2e/test_processor_fuzz.py`` fuzzes a running processor, ``test_codec_fuzz`` the codecs.
"""

import logging
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.ledger.limits import Limits
from processor_sdk import Context, InvalidTransaction, TransactionHandler
from processor_sdk.apply.dispatch import Dispatcher
from protos import packed_pb2, processor_pb2, state_context_pb2, transaction_pb2
from tests.processor_sdk.mutations import mutated
from tests.processor_sdk.payloads import CODECS
from tests.processor_sdk.scripts import (
    FAMILY,
    INTERNAL,
    INVALID,
    NAMESPACE,
    OK,
    ScriptHandler,
    Spec,
    State,
    address,
    packed_request,
)

A, B = address(1), address(2)
STATUSES = {OK, INVALID, INTERNAL}
DEEP = 100_000
MANY = 20_000


class Typed(TransactionHandler[Any]):
    """Writes its payload, encoded again, to the transaction's first output."""

    family_name: ClassVar[str] = "typed"
    family_version: ClassVar[str] = "1.0"
    namespaces: ClassVar[tuple[str, ...]] = (NAMESPACE,)
    encodings: ClassVar[Any] = CODECS

    def apply(self, transaction: Any, context: Context) -> None:
        codec = CODECS[transaction.header.payload_encoding or "application/cbor"]
        context.set(A, transaction.payload, codec)
        context.get(B, codec)


dispatcher = Dispatcher([ScriptHandler(), Typed()])


@pytest.fixture(autouse=True)
def _no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "processor_sdk.apply.dispatch")


# --- valid messages to mutate ---------------------------------------------------------------------------------------

payloads = st.one_of(
    st.binary(max_size=200),
    st.sampled_from([Spec((), (), script).payload() for script in ([["get", A], ["set", A, "x"]], [["delete", B]])]),
    st.sampled_from([b"\xa2dtextaxfnumber\x01", b'{"text":"x","number":1}', b"[" * 5000, b"\x81" * 5000]),
)
headers = st.builds(
    lambda **fields: transaction_pb2.TransactionHeader(**fields).SerializeToString(),
    family_name=st.sampled_from([FAMILY, "typed", "typed", "", "unknown"]),
    family_version=st.sampled_from(["1.0", "1.0", "1.0", "2.0"]),
    inputs=st.lists(st.sampled_from([A, B, "", "aaaaaa", "a", "ZZ", A + "00"]), max_size=4),
    outputs=st.lists(st.sampled_from([A, B, "", "aaaaaa", "\x00", A.upper()]), max_size=4),
    payload_encoding=st.sampled_from(["", *CODECS, "application/unheard-of"]),
)
contents = st.builds(
    lambda header, signature, payload: transaction_pb2.Transaction(
        header=header, header_signature=signature, payload=payload
    ).SerializeToString(),
    mutated(headers),
    st.text(max_size=20),
    payloads,
)
units = st.lists(st.lists(mutated(contents), max_size=4), max_size=4)
entries = st.lists(st.tuples(st.sampled_from([A, B, "", "\x00", A.upper()]), st.binary(max_size=20)), max_size=4)


@st.composite
def packed_requests(draw: st.DrawFn) -> packed_pb2.PackedProcessRequest:
    request = packed_pb2.PackedProcessRequest(context_id=draw(st.text(max_size=8)))
    for name, data in draw(entries):
        request.entries.add(address=name, data=data)
    for transactions in draw(units):
        request.units.add(transactions=transactions, batch_id=draw(st.text(max_size=8)))
    return request


single_requests = st.builds(
    lambda header, payload, expanded, signature: (
        processor_pb2.TpProcessRequest(header_bytes=header, payload=payload, signature=signature, context_id="ctx")
        if not expanded
        else processor_pb2.TpProcessRequest(
            header=transaction_pb2.TransactionHeader.FromString(expanded), payload=payload, context_id="ctx"
        )
    ).SerializeToString(),
    mutated(headers),
    payloads,
    st.one_of(st.just(b""), headers),
    st.text(max_size=8),
)


def answer_packed(content: bytes, link: Any = None) -> packed_pb2.PackedProcessResponse:
    return packed_pb2.PackedProcessResponse.FromString(dispatcher.packed(content, link or State({}).link))


def answer_single(content: bytes, link: Any = None) -> processor_pb2.TpProcessResponse:
    response = processor_pb2.TpProcessResponse.FromString(dispatcher.single(content, link or State({}).link))
    assert response.status in STATUSES
    return response


def check_units(asked: packed_pb2.PackedProcessRequest, answered: packed_pb2.PackedProcessResponse) -> None:
    """A unit has one result for each transaction up to the first that is not OK, and none after it."""
    assert len(answered.units) == len(asked.units)
    for unit, results in zip(asked.units, answered.units, strict=True):
        statuses = [result.status for result in results.results]
        assert set(statuses) <= STATUSES
        assert statuses[:-1] == [OK] * len(statuses[:-1])
        assert len(statuses) == len(unit.transactions) or statuses[-1] != OK


# --- dispatch -------------------------------------------------------------------------------------------------------


@given(packed_requests())
def test_each_unit_of_rubbish_gets_its_results(request: packed_pb2.PackedProcessRequest) -> None:
    check_units(request, answer_packed(request.SerializeToString()))


@given(mutated(packed_requests().map(lambda request: request.SerializeToString())))
def test_a_mutated_packed_request_gets_one_answer(content: bytes) -> None:
    answered = answer_packed(content)
    try:
        asked = packed_pb2.PackedProcessRequest.FromString(content)
    except Exception:  # The answer to an undecodable request has one unit with one result.
        asked = packed_pb2.PackedProcessRequest(units=[packed_pb2.PackedProcessRequest.Unit(transactions=[b""])])
        assert answered.units[0].results[0].status == INTERNAL
    check_units(asked, answered)


@given(mutated(single_requests))
def test_a_mutated_single_request_gets_one_answer(content: bytes) -> None:
    answer_single(content)


@given(
    single_requests,
    st.lists(
        mutated(
            st.sampled_from(
                [
                    state_context_pb2.TpStateGetResponse(
                        status="OK", entries=[state_context_pb2.TpStateEntry(address=A, data=b"x")]
                    ).SerializeToString(),
                    state_context_pb2.TpStateSetResponse(status="OK", addresses=[A]).SerializeToString(),
                    state_context_pb2.TpReceiptAddDataResponse(status="OK").SerializeToString(),
                    b"\x10\x02",
                    b"\x10\x4d",
                ]
            )
        ),
        min_size=1,
    ),
)
def test_mutated_answers_to_state_calls_end_in_one_answer(content: bytes, answers: list[bytes]) -> None:
    calls = 0

    def link(message_type: int, request: bytes) -> bytes:
        nonlocal calls
        calls += 1
        return answers[calls % len(answers)]

    answer_single(content, link)
    request = packed_pb2.PackedProcessRequest()
    spec = Spec(("aaaaaa",), ("aaaaaa",), [["get", B], ["delete", A]])
    request.units.add(transactions=[spec.raw(), spec.raw()])
    check_units(request, answer_packed(request.SerializeToString(), link))


@pytest.mark.parametrize(
    "nested", [b"\x0b" * DEEP, b"\x0b" * 90 + b"\x0c" * 90, b"\x8a\x3f\x00" * DEEP], ids=["groups", "closed", "empty"]
)
def test_deep_nesting_in_messages_gets_one_answer(nested: bytes) -> None:
    answer_single(nested)
    answer_packed(nested)
    answer_single(processor_pb2.TpProcessRequest(header_bytes=nested).SerializeToString())
    request = packed_pb2.PackedProcessRequest()
    request.units.add(transactions=[nested, transaction_pb2.Transaction(header=nested).SerializeToString()])
    check_units(request, answer_packed(request.SerializeToString()))


def test_huge_counts_get_as_many_answers() -> None:
    many_units = packed_pb2.PackedProcessRequest()
    for _ in range(MANY):
        many_units.units.add()
    check_units(many_units, answer_packed(many_units.SerializeToString()))
    spec = Spec((), ("aaaaaa",), [])
    many_transactions = packed_pb2.PackedProcessRequest()
    many_transactions.units.add(transactions=[spec.raw()] * MANY)
    answered = answer_packed(many_transactions.SerializeToString())
    assert len(answered.units[0].results) == MANY
    many_inputs = Spec((A, "", "zz") * MANY, ("aaaaaa",) * MANY, [["get", A]])
    assert answer_packed(packed_request([[many_inputs]], {})).units[0].results[0].status == OK


@pytest.mark.parametrize("encoding", CODECS)
@pytest.mark.parametrize("opening", [b"[", b'{"parts":[', b"\x81", b"\xa1a\x30", b"\x9f", b"\x0b", b"\xc1"])
def test_deep_nesting_in_payloads_is_invalid_or_carried(encoding: str, opening: bytes) -> None:
    header = transaction_pb2.TransactionHeader(
        family_name="typed", family_version="1.0", inputs=[B], outputs=[A], payload_encoding=encoding
    )
    request = processor_pb2.TpProcessRequest(header=header, payload=opening * DEEP)
    assert answer_single(request.SerializeToString()).status == (OK if encoding.endswith("stream") else INVALID)


class Mute(InvalidTransaction):
    """An exception whose ``str`` exits the process."""

    def __str__(self) -> str:
        raise SystemExit(1)

    @property
    def extended_data(self) -> bytes:
        raise ZeroDivisionError

    @extended_data.setter
    def extended_data(self, data: bytes) -> None:
        """Ignore the value."""


def _mute(context: Any) -> None:
    raise Mute("no")


def _huge_reason(context: Any) -> None:
    raise InvalidTransaction("no", bytes(40_000_000))


SPOILT: dict[str, tuple[Callable[[Any], None], int]] = {
    "text among the changes": (lambda context: context.changes.update({A: "text"}), INTERNAL),
    "a number for an address": (lambda context: context.changes.update({1: b"x"}), INTERNAL),
    "half a character in an address": (lambda context: context.changes.update({"\ud800": b"x"}), INTERNAL),
    "no changes at all": (lambda context: setattr(context, "changes", None), INTERNAL),
    "rubbish among the events": (lambda context: context.events.append(b"x"), INTERNAL),
    "rubbish among the receipt data": (lambda context: context.receipt_data.append(1), INTERNAL),
    "rubbish for a refusal": (lambda context: setattr(context, "refused", "no"), INTERNAL),
    "more than a message": (lambda context: context.changes.update({A: bytes(40_000_000)}), INVALID),
    "more than a message in pieces": (lambda context: context.receipt_data.extend([b""] * 3_000_000), INVALID),
    "an exception that says nothing": (_mute, INVALID),
    "a reason without an end": (_huge_reason, INVALID),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_damaged_context_gets_one_answer_that_fits_a_message(case: str) -> None:
    spoil, status = SPOILT[case]

    class Spoiler(ScriptHandler):
        def apply(self, transaction: Any, context: Any) -> None:
            context.set(A, b"x")
            spoil(context)

    spoiler = Dispatcher([Spoiler()])
    spec = Spec((A,), (A,), [])
    content = spoiler.packed(packed_request([[spec, spec], [spec]], {}), State({}).link)
    assert len(content) < Limits().message_bytes_max
    response = packed_pb2.PackedProcessResponse.FromString(content)
    assert [[result.status for result in unit.results] for unit in response.units] == [[status], [status]]
    assert not any(result.state_changes or result.data for unit in response.units for result in unit.results)
    request = processor_pb2.TpProcessRequest(header_bytes=spec.header_bytes(), payload=spec.payload())
    assert (
        processor_pb2.TpProcessResponse.FromString(spoiler.single(request.SerializeToString(), State({}).link)).status
        == status
    )
