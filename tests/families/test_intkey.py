"""intkey 1.0: verbs and ranges, strict payloads, leaves."""

import hashlib
from typing import Any

import cbor2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from families.intkey import payload
from families.intkey.client import decode_leaf, intkey_address, intkey_transaction
from families.intkey.handler import IntkeyHandler
from families.intkey.payload import IntkeyPayload, Malformed
from tests.families.runner import INVALID, OK, SIGNER, Ledger

TOP = 2**32 - 1
GOOD = {"Verb": "set", "Name": "n", "Value": 1}


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(IntkeyHandler())


def do(ledger: Ledger, verb: str, name: str, value: int) -> int:
    return ledger.submit(intkey_transaction(SIGNER, SIGNER.public_key, verb, name, value, "nonce"))


def value_of(ledger: Ledger, name: str) -> int:
    return decode_leaf(ledger.state[intkey_address(name)])[name]


def test_addresses() -> None:
    assert intkey_address("a") == "1cf126" + hashlib.sha512(b"a").hexdigest()[64:]


def test_set_inc_dec(ledger: Ledger) -> None:
    assert do(ledger, "set", "n", 5) == OK
    assert do(ledger, "inc", "n", 10) == OK
    assert do(ledger, "dec", "n", 15) == OK
    assert value_of(ledger, "n") == 0
    assert ledger.state == {intkey_address("n"): cbor2.dumps({"n": 0})}


@pytest.mark.parametrize(
    ("start", "verb", "value", "status", "left"),
    [
        (None, "inc", 0, INVALID, None),
        (None, "dec", 0, INVALID, None),
        (0, "set", 0, INVALID, 0),
        (0, "dec", 1, INVALID, 0),
        (1, "dec", 1, OK, 0),
        (TOP, "inc", 1, INVALID, TOP),
        (TOP - 1, "inc", 1, OK, TOP),
        (1, "inc", TOP, INVALID, 1),
        (TOP, "dec", TOP, OK, 0),
    ],
)
def test_the_edges(ledger: Ledger, start: int | None, verb: str, value: int, status: int, left: int | None) -> None:
    if start is not None:
        assert do(ledger, "set", "n", start) == OK
    assert do(ledger, verb, "n", value) == status
    assert (status == OK) == (ledger.message == "")
    if left is None:
        assert not ledger.state
    else:
        assert value_of(ledger, "n") == left


def test_names_that_collide_share_a_leaf(ledger: Ledger) -> None:
    address = intkey_address("n")
    ledger.state[address] = cbor2.dumps({"other": 7, "longer name": 8})
    assert do(ledger, "set", "n", 1) == OK
    assert decode_leaf(ledger.state[address]) == {"n": 1, "other": 7, "longer name": 8}
    assert ledger.state[address] == cbor2.dumps({"n": 1, "other": 7, "longer name": 8}, canonical=True)


@pytest.mark.parametrize(
    "leaf", [b"", b"\xff", b"\xa1", cbor2.dumps({"n": -1}), cbor2.dumps({"n": 2**32}), cbor2.dumps({"n": "1"}), b"\x80"]
)
def test_a_damaged_leaf_is_told(ledger: Ledger, leaf: bytes) -> None:
    ledger.state[intkey_address("n")] = leaf
    assert do(ledger, "inc", "n", 1) == INVALID
    assert "is damaged" in ledger.message


def changed(**fields: Any) -> bytes:
    encoded: bytes = cbor2.dumps({**GOOD, **fields})
    return encoded


INDEFINITE = b"\xbf" + b"".join(cbor2.dumps(item) for pair in GOOD.items() for item in pair) + b"\xff"
# A 16-bit length, as some encoders write for every map.
WIDE = b"\xb9\x00\x03" + cbor2.dumps(GOOD)[1:]


@pytest.mark.parametrize("data", [cbor2.dumps(GOOD), cbor2.dumps(GOOD, canonical=True), INDEFINITE, WIDE])
def test_every_form_of_a_valid_payload_is_accepted(data: bytes) -> None:
    assert payload.decode_payload(data) == IntkeyPayload("set", "n", 1)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "ends after 0 bytes"),
        (cbor2.dumps(GOOD) + b"\x00", "1 bytes behind"),
        (INDEFINITE[:-1], "ends after"),
        (cbor2.dumps(GOOD)[:-1], "ends after"),
        (b"\xa4" + cbor2.dumps(GOOD)[1:] + cbor2.dumps("Verb") + cbor2.dumps("inc"), "twice"),
        (cbor2.dumps([GOOD]), "an array, not a map"),
        (cbor2.dumps("text"), "a text string, not a map"),
        (changed(More=1), "not exactly Verb, Name and Value"),
        (cbor2.dumps({"Verb": "set", "Name": "n"}), "not exactly"),
        (cbor2.dumps({"verb": "set", "Name": "n", "Value": 1}), "not exactly"),
        (changed(Verb="delete"), "Verb is 'delete'"),
        (changed(Verb=1), "Verb is 1"),
        (changed(Name=""), "0 characters"),
        (changed(Name="x" * 21), "21 characters"),
        (changed(Name=5), "Name is 5"),
        (changed(Name=b"n"), "a byte string"),
        (changed(Value=TOP + 1), "4294967296"),
        (changed(Value=2**64), "a tagged item"),
        (changed(Value=-1), "a negative integer"),
        (changed(Value=True), "a float or simple value"),
        (changed(Value=1.0), "a float or simple value"),
        (changed(Value=None), "a float or simple value"),
        (changed(Value="1"), "Value is '1'"),
        (changed(Value={}), "a map"),
        (b"\xa1\x01\x01", "key 1, not a text string"),
        (b"\xa1\x61\xff\x01", "not UTF-8"),
        (b"\xa1\x7f\x61a\xff\x01", "of indefinite length"),
        (b"\xa1\x1c", "not CBOR"),
        (b"\xbb" + b"\xff" * 8, "ends after"),
        (b"\xa1\x7b" + b"\xff" * 8, "ends after"),
        pytest.param(b"\x81" * 1_000_000, "an array, not a map", id="deep"),
        pytest.param(b"\xa1\x61a" + b"\x81" * 1_000_000, "an array", id="deep inside"),
    ],
)
def test_what_is_wrong_with_a_payload_is_said(ledger: Ledger, data: bytes, said: str) -> None:
    assert ledger.submit_raw(data, [intkey_address("n")]) == INVALID
    assert said in ledger.message
    assert not ledger.state


def test_the_payload_encoding(ledger: Ledger) -> None:
    addresses = [intkey_address("n")]
    assert ledger.submit_raw(cbor2.dumps(GOOD), addresses, "application/json") == INVALID
    assert ledger.message == "payload_encoding is 'application/json', not application/cbor"
    assert ledger.submit_raw(cbor2.dumps(GOOD), addresses, "") == OK


@pytest.mark.parametrize(
    ("verb", "name", "value"),
    [
        ("put", "n", 1),
        ("set", "", 1),
        ("set", "n" * 21, 1),
        ("set", "n", -1),
        pytest.param("set", "n", 10**5000, id="huge"),
        ("set", "n", True),
    ],
)
def test_a_client_builds_no_transaction_that_can_never_be_valid(verb: str, name: str, value: int) -> None:
    with pytest.raises(Malformed):
        intkey_transaction(SIGNER, SIGNER.public_key, verb, name, value, "nonce")


@given(st.sampled_from(payload.VERBS), st.text(min_size=1, max_size=20), st.integers(0, TOP))
def test_payloads_survive_their_encoding(verb: str, name: str, value: int) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    meant = IntkeyPayload(verb, name, value)
    assert payload.decode_payload(payload.encode_payload(meant)) == meant


items = st.recursive(
    st.one_of(
        st.integers(-10, 2**70), st.text(max_size=5), st.binary(max_size=5), st.booleans(), st.none(), st.floats()
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)


@given(st.one_of(st.binary(max_size=60), items.map(cbor2.dumps), st.binary(max_size=40).map(b"\xa3\x64Verb".__add__)))
@example(b"\xbf\xff")
def test_any_bytes_are_a_payload_or_malformed(data: bytes) -> None:
    for decode in (payload.decode_payload, payload.decode_leaf):
        try:
            decoded: object = decode(data)
        except Malformed:
            continue
        # What we accept, the library reads alike.
        library = cbor2.loads(data)
        assert decoded == (
            IntkeyPayload(library["Verb"], library["Name"], library["Value"])
            if decode is payload.decode_payload
            else library
        )
