"""intkey 1.0: verbs and ranges, strict payloads, leaves."""

import hashlib
import json
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from families.intkey.client import LEAF, intkey_address, intkey_transaction
from families.intkey.handler import IntkeyHandler
from families.intkey.payload import ENCODINGS, IntkeyPayload, Verb
from ledger.signing import Signer
from processor_sdk import TransactionHandler
from processor_sdk.testing import Ledger, Result

TOP = 2**32 - 1
CBOR, JSON = ENCODINGS["application/cbor"], ENCODINGS["application/json"]
GOOD = {"Verb": "set", "Name": "n", "Value": 1}


SIGNER = Signer("11" * 32)


@pytest.fixture
def handlers() -> list[TransactionHandler[Any]]:
    return [IntkeyHandler()]


def do(ledger: Ledger, verb: Verb, name: str, value: int) -> Result:
    return ledger.apply(intkey_transaction(SIGNER, SIGNER.public_key, verb, name, value, str(len(ledger.receipts))))


def do_raw(ledger: Ledger, payload: bytes, name: str, encoding: str = "") -> Result:
    addresses = [intkey_address(name)]
    return ledger.apply(ledger.transaction(payload, encoding=encoding, inputs=addresses, outputs=addresses))


def value_of(ledger: Ledger, name: str) -> int:
    return LEAF.decode(ledger.state[intkey_address(name)])[name]


def test_addresses() -> None:
    assert intkey_address("a") == "1cf126" + hashlib.sha512(b"a").hexdigest()[64:]


def test_set_inc_dec(ledger: Ledger) -> None:
    assert do(ledger, "set", "n", 5)
    assert do(ledger, "inc", "n", 10)
    assert do(ledger, "dec", "n", 15)
    assert value_of(ledger, "n") == 0
    assert ledger.state == {intkey_address("n"): cbor2.dumps({"n": 0})}


@pytest.mark.parametrize(
    ("start", "verb", "value", "valid", "left"),
    [
        (None, "inc", 0, False, None),
        (None, "dec", 0, False, None),
        (0, "set", 0, False, 0),
        (0, "dec", 1, False, 0),
        (1, "dec", 1, True, 0),
        (TOP, "inc", 1, False, TOP),
        (TOP - 1, "inc", 1, True, TOP),
        (1, "inc", TOP, False, 1),
        (TOP, "dec", TOP, True, 0),
    ],
)
def test_the_edges(ledger: Ledger, start: int | None, verb: Verb, value: int, valid: bool, left: int | None) -> None:
    if start is not None:
        assert do(ledger, "set", "n", start)
    assert bool(do(ledger, verb, "n", value)) == valid
    if left is None:
        assert not ledger.state
    else:
        assert value_of(ledger, "n") == left


def test_names_that_collide_share_a_leaf(ledger: Ledger) -> None:
    address = intkey_address("n")
    ledger.state[address] = cbor2.dumps({"other": 7, "longer name": 8})
    assert do(ledger, "set", "n", 1)
    assert LEAF.decode(ledger.state[address]) == {"n": 1, "other": 7, "longer name": 8}
    assert ledger.state[address] == cbor2.dumps({"n": 1, "other": 7, "longer name": 8}, canonical=True)


@pytest.mark.parametrize(
    "leaf", [b"", b"\xff", b"\xa1", cbor2.dumps({"n": -1}), cbor2.dumps({"n": 2**32}), cbor2.dumps({"n": "1"}), b"\x80"]
)
def test_a_damaged_leaf_is_told(ledger: Ledger, leaf: bytes) -> None:
    ledger.state[intkey_address("n")] = leaf
    assert f"the entry at {intkey_address('n')} " in do(ledger, "inc", "n", 1).message


def changed(**fields: Any) -> bytes:
    encoded: bytes = cbor2.dumps({**GOOD, **fields})
    return encoded


INDEFINITE = b"\xbf" + b"".join(cbor2.dumps(item) for pair in GOOD.items() for item in pair) + b"\xff"
# A 16-bit length, as some encoders write for every map.
WIDE = b"\xb9\x00\x03" + cbor2.dumps(GOOD)[1:]


@pytest.mark.parametrize("data", [cbor2.dumps(GOOD), cbor2.dumps(GOOD, canonical=True), INDEFINITE, WIDE])
def test_every_form_of_a_valid_payload_is_accepted(data: bytes) -> None:
    assert CBOR.decode(data) == IntkeyPayload("set", "n", 1)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "ends after 0 bytes"),
        (cbor2.dumps(GOOD) + b"\x00", "1 bytes behind"),
        (INDEFINITE[:-1], "ends after"),
        (cbor2.dumps(GOOD)[:-1], "ends after"),
        (b"\xa4" + cbor2.dumps(GOOD)[1:] + cbor2.dumps("Verb") + cbor2.dumps("inc"), "twice"),
        (cbor2.dumps([GOOD]), "a list of 1, not a map"),
        (cbor2.dumps("text"), "'text', not a map"),
        (changed(More=1), "the unknown keys 'More'; known are 'Name', 'Value', 'Verb'"),
        (cbor2.dumps({"Verb": "set", "Name": "n"}), "Value is missing"),
        (cbor2.dumps({"verb": "set", "Name": "n", "Value": 1}), "the unknown keys 'verb'"),
        (changed(Verb="delete"), "Verb is 'delete'"),
        (changed(Verb=1), "Verb is 1"),
        (changed(Name=""), "0 characters"),
        (changed(Name="x" * 21), "21 characters"),
        (changed(Name=5), "Name is 5"),
        (changed(Name=b"n"), "Name is b'n', not text"),
        (changed(Value=TOP + 1), "4294967296"),
        (changed(Value=2**64), "a tagged item"),
        (changed(Value=-1), "Value is -1"),
        (changed(Value=True), "Value is True, not an integer"),
        (changed(Value=1.0), "Value is 1.0, not an integer"),
        (changed(Value=None), "Value is None, not an integer"),
        (changed(Value="1"), "Value is '1'"),
        (changed(Value={}), "Value is a map of 0, not an integer"),
        (b"\xa1\x01\x01", "key 1, not a text string"),
        (b"\xa1\x61\xff\x01", "not UTF-8"),
        (b"\xa1\x7f\x61a\xff\x01", "of indefinite length"),
        (b"\xa1\x1c", "not CBOR"),
        (b"\xbb" + b"\xff" * 8, "ends after"),
        (b"\xa1\x7b" + b"\xff" * 8, "ends after"),
        pytest.param(b"\x81" * 1_000_000, "deeper than 32 levels", id="deep"),
        pytest.param(b"\xa1\x61a" + b"\x81" * 1_000_000, "deeper than 32 levels", id="deep inside"),
    ],
)
def test_what_is_wrong_with_a_payload_is_said(ledger: Ledger, data: bytes, said: str) -> None:
    assert said in do_raw(ledger, data, "n").message
    assert not ledger.state


def test_the_payload_encoding(ledger: Ledger) -> None:
    refused = do_raw(ledger, cbor2.dumps(GOOD), "n", "text/plain")
    assert refused.message == "payload_encoding is 'text/plain'; intkey 1.0 knows application/cbor, application/json"
    assert do_raw(ledger, json.dumps(GOOD).encode(), "n", "application/json")
    assert value_of(ledger, "n") == 1
    assert do_raw(ledger, cbor2.dumps({**GOOD, "Name": "m"}), "m")


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
    for encoding in ENCODINGS:
        with pytest.raises(ValueError, match=r"Verb|Name|Value|4300"):
            intkey_transaction(SIGNER, SIGNER.public_key, verb, name, value, "nonce", encoding)  # type: ignore[arg-type]


@given(st.sampled_from(("set", "inc", "dec")), st.text(min_size=1, max_size=20), st.integers(0, TOP))
def test_payloads_survive_their_encoding(verb: Verb, name: str, value: int) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    meant = IntkeyPayload(verb, name, value)
    for codec in (CBOR, JSON):
        assert codec.decode(codec.encode(meant)) == meant
