"""The codecs: accepted and refused values with their messages, equal bytes for equal values, a custom codec."""

import enum
import json
import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.ledger.ids import TransactionId
from dovetail.ledger.transaction import Transaction, decode_header
from processor_sdk import CborCodec, Codec, InvalidTransaction, JsonCodec, NotDecodable, RawCodec
from processor_sdk.transaction import with_payload
from protos import transaction_pb2


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Item:
    owner: str
    amount: int = 1

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError(f"amount is {self.amount}, below 0")


@dataclass(frozen=True)
class Everything:
    text: str
    number: int
    ratio: float
    truth: bool
    raw: bytes
    maybe: str | None
    items: tuple[Item, ...]
    names: list[str]
    counts: dict[str, int]
    verb: Literal["set", "inc"]
    colour: Colour
    renamed: int = field(metadata={"key": "Re-named"})


GOOD = Everything(
    "é", -5, 0.5, True, b"\x00\xff", None, (Item("a"), Item("b", 2)), ["n"], {"k": 2**64 - 1}, "inc", Colour.BLUE, 7
)
TREE: dict[str, Any] = {
    "text": "é", "number": -5, "ratio": 0.5, "truth": True, "raw": b"\x00\xff", "maybe": None,
    "items": [{"owner": "a", "amount": 1}, {"owner": "b", "amount": 2}], "names": ["n"], "counts": {"k": 2**64 - 1},
    "verb": "inc", "colour": "blue", "Re-named": 7,
}  # fmt: skip
CODECS: dict[str, Codec[Everything]] = {"cbor": CborCodec(Everything), "json": JsonCodec(Everything)}


def tree_bytes(form: str, tree: dict[str, Any]) -> bytes:
    if form == "cbor":
        encoded: bytes = cbor2.dumps(tree)
        return encoded
    return json.dumps({**tree, "raw": "AP8="} if tree.get("raw") == TREE["raw"] else tree).encode()


@pytest.mark.parametrize("form", CODECS)
def test_every_type_is_carried(form: str) -> None:
    codec = CODECS[form]
    assert codec.decode(tree_bytes(form, TREE)) == GOOD
    assert codec.decode(codec.encode(GOOD)) == GOOD


def test_the_bytes_are_deterministic() -> None:
    assert CODECS["cbor"].encode(GOOD) == cbor2.dumps(TREE, canonical=True)
    assert (
        CODECS["json"].encode(GOOD)
        == json.dumps({**TREE, "raw": "AP8="}, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    )
    mixed: list[Codec[dict[str, int]]] = [JsonCodec(dict[str, int]), CborCodec(dict[str, int])]
    assert all(codec.encode({"b": 1, "a": 2}) == codec.encode({"a": 2, "b": 1}) for codec in mixed)


@pytest.mark.parametrize("form", CODECS)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"text": 5}, "text is 5, not text"),
        ({"number": "5"}, "number is '5', not an integer"),
        ({"number": True}, "number is True, not an integer"),
        ({"number": 5.0}, "number is 5.0, not an integer"),
        ({"ratio": "x"}, "ratio is 'x', not a number"),
        ({"truth": 1}, "truth is 1, not true or false"),
        ({"raw": "text that is no base64"}, "raw is"),
        ({"maybe": 5}, "maybe is 5, not text"),
        ({"items": {}}, "items is a map of 0, not a list"),
        ({"items": [{"owner": "a"}, {"owner": 1}]}, "items[1].owner is 1, not text"),
        ({"items": [{"owner": "a", "amount": -1}]}, "items[0] amount is -1, below 0"),
        ({"items": [{"amount": 1}]}, "items[0].owner is missing"),
        ({"items": [{"owner": "a", "other": 1}]}, "items[0] has the unknown keys 'other'; known are 'amount', 'owner'"),
        ({"names": ["n", None]}, "names[1] is None, not text"),
        ({"counts": {"a": 1, "b": "x"}}, "counts['b'] is 'x', not an integer"),
        ({"verb": "dec"}, "verb is 'dec', not one of 'set', 'inc'"),
        ({"verb": ["dec"]}, "verb is a list of 1, not one of"),
        ({"colour": "green"}, "colour is 'green', not one of 'red', 'blue'"),
        ({"more": 1}, "unknown keys 'more'"),
        ({"text": "x" * 1000}, ""),
    ],
)
def test_what_does_not_fit_is_named(form: str, change: dict[str, Any], said: str) -> None:
    data = tree_bytes(form, {**TREE, **change})
    if not said:
        assert CODECS[form].decode(data)
        return
    with pytest.raises(NotDecodable) as caught:
        CODECS[form].decode(data)
    assert said in str(caught.value)


@pytest.mark.parametrize("form", CODECS)
def test_what_has_a_default_may_be_missing(form: str) -> None:
    for key in TREE:
        with pytest.raises(NotDecodable, match=f"{key} is missing"):
            CODECS[form].decode(tree_bytes(form, {name: value for name, value in TREE.items() if name != key}))
    assert JsonCodec(Item).decode(b'{"owner": "a"}') == Item("a", 1)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not JSON"),
        (b"\xff", "byte 0 is not UTF-8"),
        (b'{"owner": "a"} x', "not JSON: Extra data at character 15"),
        (b'{"owner": "a", "owner": "b"}', "'owner' stands there twice"),
        (b'{"owner": "a", "amount": NaN}', "NaN"),
        (b'{"owner": "a", "amount": ' + b"9" * 5000 + b"}", "an integer of 5000 characters"),
        (b'{"owner": "a", "amount": 18446744073709551616}', "not from -2^64 to 2^64-1"),
        (b'{"owner": "\\ud800"}', "a lone surrogate"),
        (b"[" * 40 + b"]" * 40, "deeper than 32 levels"),
        pytest.param(b"[" * 1_000_000, "deeper than 32 levels", id="deep"),
        pytest.param(b'{"a":' * 200_000, "deeper than 32 levels", id="deep map"),
    ],
)
def test_bad_json_is_told(data: bytes, said: str) -> None:
    with pytest.raises(NotDecodable) as caught:
        JsonCodec(Item).decode(data)
    assert said in str(caught.value)


def test_numbers_stay_finite() -> None:
    for codec, data in (
        (JsonCodec(float), b"1e999"),
        (CborCodec(float), cbor2.dumps(math.inf)),
        (CborCodec(float), cbor2.dumps(math.nan)),
    ):
        with pytest.raises(NotDecodable, match="not a finite number"):
            codec.decode(data)
    assert JsonCodec(float).decode(b"3") == CborCodec(float).decode(cbor2.dumps(3)) == 3.0


@pytest.mark.parametrize(
    "change",
    [
        {"text": 5}, {"number": 2**64}, {"ratio": math.nan}, {"raw": "text"}, {"items": [Item("a")]},
        {"names": ("n",)}, {"counts": {1: 1}}, {"verb": "dec"}, {"colour": "red"}, {"verb": []}, {"text": "\ud800"},
    ],
)  # fmt: skip
def test_what_does_not_fit_is_not_encoded(change: dict[str, Any]) -> None:
    value = replace(GOOD, **change)
    for codec in CODECS.values():
        with pytest.raises(ValueError, match=rf"^{next(iter(change))}"):
            codec.encode(value)


@dataclass
class Itself:
    inner: "Itself | None"


@dataclass
class Unknown:
    inner: "NoSuchType"  # type: ignore[name-defined]  # noqa: F821


@dataclass
class Twice:
    a: int = field(metadata={"key": "x"})
    b: int = field(metadata={"key": "x"})


@pytest.mark.parametrize("kind", [object, set[str], int | str, dict[int, str], tuple[int, str], Itself, Unknown, Twice])
def test_a_type_that_cannot_be_carried_is_refused_at_once(kind: Any) -> None:
    for codec in (CborCodec, JsonCodec):
        with pytest.raises(TypeError):
            codec(kind)


@given(st.one_of(st.binary(max_size=200), st.text(max_size=80).map(str.encode)))
def test_any_bytes_fit_or_are_refused(data: bytes) -> None:
    codecs: list[Codec[Any]] = [*CODECS.values(), JsonCodec(dict[str, float]), CborCodec(dict[str, float])]
    for codec in codecs:
        try:
            value: Any = codec.decode(data)
        except NotDecodable:
            continue
        assert codec.decode(codec.encode(value)) == value


trees = st.recursive(
    st.one_of(st.integers(-(2**64), 2**64 - 1), st.text(max_size=30), st.binary(max_size=30), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=12,
)


@given(trees)
def test_cbor2_decodes_accepted_bytes_to_the_same_value(tree: Any) -> None:
    data = cbor2.dumps({"tree": tree})
    for kind in (dict[str, list[int]], dict[str, dict[str, str]], dict[str, bytes], dict[str, str | None]):
        try:
            value: object = CborCodec(kind).decode(data)
        except NotDecodable:
            continue
        assert value == cbor2.loads(data)


def test_raw_bytes() -> None:
    assert RawCodec().decode(RawCodec().encode(b"x")) == b"x"
    with pytest.raises(ValueError, match="not bytes"):
        RawCodec().encode("x")  # type: ignore[arg-type]


class UpperCodec:
    """A custom codec, which encodes text in upper case."""

    def decode(self, data: bytes) -> str:
        return data.decode("ascii").lower()

    def encode(self, value: str) -> bytes:
        return value.upper().encode("ascii")


def transaction_of(payload: bytes, payload_encoding: str) -> Transaction:
    header_bytes = transaction_pb2.TransactionHeader(
        family_name="script", family_version="1.0", payload_encoding=payload_encoding
    ).SerializeToString()
    return Transaction(TransactionId("ab" * 64), decode_header(header_bytes), header_bytes, payload)


def test_the_encoding_that_is_named_decides() -> None:
    encodings: dict[str, Codec[Any]] = {"text/upper": UpperCodec(), "text/plain": RawCodec()}
    assert with_payload(transaction_of(b"HI", payload_encoding="text/upper"), encodings).payload == "hi"
    assert with_payload(transaction_of(b"HI", payload_encoding="text/plain"), encodings).payload == b"HI"
    assert with_payload(transaction_of(b"HI", payload_encoding=""), encodings).payload == "hi"
    assert with_payload(transaction_of(b"HI", payload_encoding="anything"), {}).payload == b"HI"
    with pytest.raises(InvalidTransaction, match=r"payload_encoding is 'x'; script 1\.0 knows text/upper, text/plain"):
        with_payload(transaction_of(b"HI", payload_encoding="x"), encodings)
    with pytest.raises(InvalidTransaction, match=r"the payload \(text/upper\) does not fit: .*ascii"):
        with_payload(transaction_of(b"\xff", payload_encoding="text/upper"), encodings)
