"""Arbitrary and mutated bytes for every codec: refused with a reason, or decoded to a value that can be encoded."""

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dovetail.ledger.errors import NotDecodable
from protos import transaction_receipt_pb2
from tests.processor_sdk.mutations import mutated
from tests.processor_sdk.payloads import CODECS, Colour, Part, Payload

DEEP = 100_000

texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30)
parts = st.builds(Part, texts, st.binary(max_size=30))
values = st.builds(
    Payload,
    text=texts,
    number=st.integers(-(2**64), 2**64 - 1),
    ratio=st.floats(allow_nan=False, allow_infinity=False),
    flag=st.booleans(),
    colour=st.sampled_from(Colour),
    verb=st.sampled_from(["set", "inc", 3]),
    parts=st.lists(parts, max_size=3).map(tuple),
    names=st.lists(texts, max_size=3),
    counts=st.dictionaries(texts, st.integers(-(2**64), 2**64 - 1), max_size=3),
    maybe=st.none() | parts,
)
typed_encodings = st.sampled_from(["application/cbor", "application/json"])
FULL = Payload("t", 1, 0.5, True, Colour.GREEN, 3, (Part("p", b"d"),), ["n"], {"c": 1}, Part("m"))


@given(typed_encodings, values)
def test_what_is_encoded_is_decoded(encoding: str, value: Payload) -> None:
    codec = CODECS[encoding]
    data = codec.encode(value)
    assert codec.decode(data) == value
    # The bytes do not depend on the order of a map's keys or on the form of a number.
    again = replace(value, counts=dict(reversed(value.counts.items())))
    assert codec.encode(again) == data


@given(values)
@example(replace(FULL, ratio=-0.0))
def test_equal_values_make_equal_bytes(value: Payload) -> None:
    same = replace(value, ratio=value.ratio + 0.0)
    assert same == value
    for codec in (CODECS["application/cbor"], CODECS["application/json"]):
        assert codec.encode(same) == codec.encode(value)


@pytest.mark.parametrize("encoding", CODECS)
@given(st.data())
def test_any_bytes_are_refused_or_encode_again(encoding: str, data: st.DataObject) -> None:
    codec = CODECS[encoding]
    sample = (
        transaction_receipt_pb2.TransactionReceipt(transaction_id="x", data=[b"1", b"2"])
        if encoding == "application/protobuf"
        else b"bytes"
        if encoding == "application/octet-stream"
        else FULL
    )
    content = data.draw(st.one_of(st.binary(max_size=300), mutated(st.just(codec.encode(sample)))))
    try:
        value = codec.decode(content)
    except NotDecodable:
        return
    again = codec.encode(value)
    assert codec.decode(again) == value
    assert codec.encode(codec.decode(again)) == again


def _json(members: str) -> bytes:
    return f'{{"text":"t","number":1,{members}}}'.encode()


def _cbor(key: str, value: str) -> bytes:
    """A CBOR map of the two required members and one more, which is given in hex."""
    return bytes.fromhex("a3" + "64746578746174" + "666e756d62657201" + key + value)


RATIO, COUNTS, NAMES, TEXT = "65726174696f", "66636f756e7473", "656e616d6573", "6474657874"
REFUSED: dict[str, tuple[str, bytes, str]] = {
    "JSON nothing": ("json", b"", "not JSON"),
    "JSON byte order mark": ("json", b"\xef\xbb\xbf{}", "JSON"),
    "JSON UTF-16": ("json", '{"text":"t","number":1}'.encode("utf-16"), "UTF-8"),
    "JSON half a character": ("json", b'{"text":"\\ud800","number":1}', "text"),
    "JSON half a character as bytes": ("json", b'{"text":"\xed\xa0\x80","number":1}', "UTF-8"),
    "JSON key twice": ("json", _json('"flag":true,"flag":true'), "flag"),
    "JSON key twice inside": ("json", _json('"counts":{"a":1,"a":2}'), "a"),
    "JSON NaN": ("json", _json('"ratio":NaN'), "NaN"),
    "JSON infinity": ("json", _json('"ratio":-Infinity'), "Infinity"),
    "JSON number too large": ("json", _json('"ratio":1e999'), "ratio"),
    "JSON integer too large": ("json", _json(f'"counts":{{"a":{2**64}}}'), "counts"),
    "JSON integer of many digits": ("json", _json(f'"counts":{{"a":{"9" * 100_000}}}'), "100000 characters"),
    "JSON integer as a fraction": ("json", b'{"text":"t","number":1.0}', "number"),
    "JSON flag as a number": ("json", _json('"flag":1'), "flag"),
    "JSON number as a flag": ("json", b'{"text":"t","number":true}', "number"),
    "JSON unknown key": ("json", _json('"more":1'), "more"),
    "JSON missing key": ("json", b'{"text":"t"}', "number"),
    "JSON null": ("json", b'{"text":null,"number":1}', "text"),
    "JSON no base64": ("json", _json('"may be":{"label":"l","data":"?"}'), "may be.data"),
    "JSON two values": ("json", b"{}{}", "JSON"),
    "CBOR nothing": ("cbor", b"", "0 bytes"),
    "CBOR two values": ("cbor", b"\xa0\xa0", "behind"),
    "CBOR key twice": ("cbor", _cbor(TEXT, "6174"), "twice"),
    "CBOR key twice inside": ("cbor", _cbor(COUNTS, "a2616101616102"), "twice"),
    "CBOR key that is a number": ("cbor", _cbor(COUNTS, "a10101"), "key"),
    "CBOR NaN": ("cbor", _cbor(RATIO, "f97e00"), "ratio"),
    "CBOR infinity": ("cbor", _cbor(RATIO, "fb7ff0000000000000"), "ratio"),
    "CBOR undefined": ("cbor", _cbor(RATIO, "f7"), "0xf7"),
    "CBOR half a character": ("cbor", bytes.fromhex("a2647465787463eda080666e756d62657201"), "UTF-8"),
    "CBOR huge map": ("cbor", bytes.fromhex("bbffffffffffffffff"), "ends"),
    "CBOR huge list": ("cbor", _cbor(NAMES, "9bffffffffffffffff"), "ends"),
    "CBOR huge text": ("cbor", _cbor(NAMES, "7bffffffffffffffff"), "ends"),
    "CBOR huge bytes": ("cbor", bytes.fromhex("5b7fffffffffffffff"), "ends"),
    "CBOR bignum tag": ("cbor", _cbor(COUNTS, "a16161c249010000000000000000"), "tag"),
    "CBOR reserved length": ("cbor", b"\x1c", "not CBOR"),
    "CBOR lone break": ("cbor", b"\xff", "0xff"),
    "CBOR indefinite text": ("cbor", _cbor(NAMES, "9f7f6161ffff"), "indefinite"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_codecs_refusal_names_the_fault(case: str) -> None:
    codec, data, said = REFUSED[case]
    with pytest.raises(NotDecodable, match=said):
        CODECS[f"application/{codec}"].decode(data)


@pytest.mark.parametrize("encoding", ["application/cbor", "application/json"])
@pytest.mark.parametrize(
    "value",
    [
        replace(FULL, text="\ud800"),
        replace(FULL, ratio=math.nan),
        replace(FULL, ratio=math.inf),
        replace(FULL, number=2**64),
        replace(FULL, number=True),
        replace(FULL, counts={"\udfff": 1}),
        replace(FULL, counts={1: 1}),  # type: ignore[dict-item]
        replace(FULL, names=("tuple",)),  # type: ignore[arg-type]
        replace(FULL, parts=(FULL,)),  # type: ignore[arg-type]
        replace(FULL, verb=[]),  # type: ignore[arg-type]
        None,
    ],
)
def test_what_cannot_be_carried_is_not_encoded(encoding: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"(?s)\A.*(is|has|not) "):
        CODECS[encoding].encode(value)


def test_no_payload_makes_the_stack_overflow() -> None:
    """Not even with a high recursion limit, which an application may set."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10**6)
    try:
        for codec, opening in (("cbor", b"\x81"), ("cbor", b"\xa1\x60"), ("json", b"["), ("json", b'{"":')):
            _refused_deep(codec, opening)
    finally:
        sys.setrecursionlimit(before)


def _refused_deep(codec: str, opening: bytes) -> None:
    decode: Callable[[bytes], Any] = CODECS[f"application/{codec}"].decode
    with pytest.raises(NotDecodable, match="deeper"):
        decode(opening * DEEP)
