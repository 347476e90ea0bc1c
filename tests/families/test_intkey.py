"""intkey, both versions on one state: verbs and ranges, strict payloads, leaves, and entries of the other version."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.ledger.signing import Signer
from dovetail.ledger.transaction import decode_transaction
from families.intkey import handler as v1
from families.intkey.client import LEAF, VERSIONS, intkey_address, intkey_transaction
from families.intkey.payload import Verb
from families.intkey.v2 import handler as v2
from processor_sdk import TransactionHandler
from processor_sdk.testing import Ledger, Result

TOPS = {"1.0": 2**32 - 1, "2.0": 2**64 - 1}
GOOD = {"Verb": "set", "Name": "n", "Value": 1}


SIGNER = Signer("11" * 32)


@pytest.fixture(params=TOPS)
def version(request: pytest.FixtureRequest) -> str:
    """Each version. Tests that use this fixture hold for both."""
    return str(request.param)


@pytest.fixture
def handlers() -> list[TransactionHandler[Any]]:
    return [v1.IntkeyHandler(), v2.IntkeyHandler()]


def do(ledger: Ledger, version: str, verb: Verb, name: str, value: int, encoding: str | None = None) -> Result:
    nonce = str(len(ledger.receipts))
    return ledger.apply(
        intkey_transaction(SIGNER, SIGNER.public_key, verb, name, value, nonce, encoding, family_version=version)
    )


def do_raw(ledger: Ledger, version: str, payload: bytes, name: str, encoding: str = "") -> Result:
    addresses = [intkey_address(name)]
    return ledger.apply(
        ledger.transaction(payload, version=version, encoding=encoding, inputs=addresses, outputs=addresses)
    )


def value_of(ledger: Ledger, name: str) -> int:
    return LEAF.decode(ledger.state[intkey_address(name)])[name]


def test_addresses() -> None:
    assert intkey_address("a") == "1cf126" + hashlib.sha512(b"a").hexdigest()[64:]


def test_set_inc_dec(ledger: Ledger, version: str) -> None:
    assert do(ledger, version, "set", "n", 5)
    assert do(ledger, version, "inc", "n", 10)
    assert do(ledger, version, "dec", "n", 15)
    assert value_of(ledger, "n") == 0
    assert ledger.state == {intkey_address("n"): cbor2.dumps({"n": 0})}


TOP = -1
"""Stands for the version's largest value. TOP - 1 stands for the value below it."""


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
def test_the_edges(
    ledger: Ledger, version: str, start: int | None, verb: Verb, value: int, valid: bool, left: int | None
) -> None:
    def meant(number: int) -> int:
        return number if number >= 0 else TOPS[version] + 1 + number

    if start is not None:
        assert do(ledger, version, "set", "n", meant(start))
    assert bool(do(ledger, version, verb, "n", meant(value))) == valid
    if left is None:
        assert not ledger.state
    else:
        assert value_of(ledger, "n") == meant(left)


def test_names_that_collide_share_a_leaf(ledger: Ledger, version: str) -> None:
    address = intkey_address("n")
    ledger.state[address] = cbor2.dumps({"other": 7, "longer name": 8})
    assert do(ledger, version, "set", "n", 1)
    assert LEAF.decode(ledger.state[address]) == {"n": 1, "other": 7, "longer name": 8}
    assert ledger.state[address] == cbor2.dumps({"n": 1, "other": 7, "longer name": 8}, canonical=True)


@pytest.mark.parametrize(
    "leaf", [b"\xff", b"\xa1", cbor2.dumps({"n": -1}), cbor2.dumps({"n": 2**64}), cbor2.dumps({"n": "1"}), b"\x80"]
)
def test_a_damaged_leaf_is_told(ledger: Ledger, version: str, leaf: bytes) -> None:
    ledger.state[intkey_address("n")] = leaf
    assert f"the entry at {intkey_address('n')} " in do(ledger, version, "inc", "n", 1).message


def test_a_leaf_without_bytes_reads_as_none(ledger: Ledger, version: str) -> None:
    ledger.state[intkey_address("n")] = b""
    assert not do(ledger, version, "inc", "n", 1)
    assert do(ledger, version, "set", "n", 1)


def test_both_versions_change_the_same_names(ledger: Ledger) -> None:
    assert do(ledger, "1.0", "set", "n", 5)
    assert do(ledger, "2.0", "inc", "n", 10)
    assert "exists already" in do(ledger, "2.0", "set", "n", 1).message
    assert do(ledger, "1.0", "dec", "n", 15)
    assert ledger.state == {intkey_address("n"): cbor2.dumps({"n": 0})}


def test_1_0_refuses_entries_with_wider_values(ledger: Ledger) -> None:
    """Version 1.0 refuses the entry even if the wide value belongs to another name at the address."""
    address = intkey_address("n")
    assert do(ledger, "2.0", "set", "n", 2**32)
    before = dict(ledger.state)
    for verb in ("set", "inc", "dec"):
        refused = do(ledger, "1.0", verb, "n", 1)
        assert refused.message == f"the entry at {address} holds the value 4294967296; intkey 1.0 knows 0 to 4294967295"
    assert ledger.state == before
    assert do(ledger, "2.0", "dec", "n", 1)
    assert do(ledger, "1.0", "dec", "n", 1)
    ledger.state[address] = cbor2.dumps({"other": 2**32, "n": 1})
    assert not do(ledger, "1.0", "inc", "n", 1)
    assert do(ledger, "2.0", "inc", "n", 1)


def test_a_transaction_of_1_0_that_names_cbor_means_the_same_in_2_0(ledger: Ledger) -> None:
    payload = VERSIONS["1.0"].encodings["application/cbor"].encode(VERSIONS["1.0"].payload("set", "n", TOPS["1.0"]))
    assert do_raw(ledger, "2.0", payload, "n", "application/cbor")
    assert value_of(ledger, "n") == TOPS["1.0"]


def changed(**fields: Any) -> bytes:
    encoded: bytes = cbor2.dumps({**GOOD, **fields})
    return encoded


INDEFINITE = b"\xbf" + b"".join(cbor2.dumps(item) for pair in GOOD.items() for item in pair) + b"\xff"
# The map has a 16-bit length, which some encoders write for every map.
WIDE = b"\xb9\x00\x03" + cbor2.dumps(GOOD)[1:]


@pytest.mark.parametrize("data", [cbor2.dumps(GOOD), cbor2.dumps(GOOD, canonical=True), INDEFINITE, WIDE])
def test_every_form_of_a_valid_payload_is_accepted(version: str, data: bytes) -> None:
    known = VERSIONS[version]
    assert known.encodings["application/cbor"].decode(data) == known.payload("set", "n", 1)


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
def test_what_is_wrong_with_a_payload_is_said(ledger: Ledger, version: str, data: bytes, said: str) -> None:
    assert said in do_raw(ledger, version, data, "n", "application/cbor").message
    assert not ledger.state


@pytest.mark.parametrize(
    ("version", "said"),
    [("1.0", "Value is 4294967296, not from 0 to 4294967295"), ("2.0", "Value is an integer of 65 bits")],
)
def test_a_value_beyond_the_range_is_refused(ledger: Ledger, version: str, said: str) -> None:
    wide = {**GOOD, "Value": TOPS[version] + 1}
    refused = do_raw(ledger, version, json.dumps(wide).encode(), "n", "application/json")
    assert said in refused.message
    assert not do_raw(ledger, version, cbor2.dumps(wide), "n", "application/cbor")
    assert not ledger.state


@pytest.mark.parametrize(
    ("version", "known", "unnamed"),
    [
        ("1.0", "application/cbor, application/json", cbor2.dumps),
        ("2.0", "application/json, application/cbor", json.dumps),
    ],
)
def test_the_payload_encoding(ledger: Ledger, version: str, known: str, unnamed: Callable[[Any], Any]) -> None:
    refused = do_raw(ledger, version, cbor2.dumps(GOOD), "n", "text/plain")
    assert refused.message == f"payload_encoding is 'text/plain'; intkey {version} knows {known}"
    assert do_raw(ledger, version, json.dumps(GOOD).encode(), "n", "application/json")
    assert value_of(ledger, "n") == 1
    assert do_raw(ledger, version, cbor2.dumps({**GOOD, "Name": "o"}), "o", "application/cbor")
    payload = unnamed({**GOOD, "Name": "m"})
    assert do_raw(ledger, version, payload if isinstance(payload, bytes) else payload.encode(), "m")
    built = intkey_transaction(SIGNER, SIGNER.public_key, "set", "p", 1, "nonce", family_version=version)
    assert decode_transaction(built.raw).header.payload_encoding == known.partition(",")[0]


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
def test_a_client_builds_no_transaction_that_can_never_be_valid(version: str, verb: str, name: str, value: int) -> None:
    for encoding in VERSIONS[version].encodings:
        with pytest.raises(ValueError, match=r"Verb|Name|Value|4300"):
            intkey_transaction(SIGNER, SIGNER.public_key, verb, name, value, "nonce", encoding, version)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", TOPS)
@given(st.sampled_from(("set", "inc", "dec")), st.text(min_size=1, max_size=20), st.data())
def test_payloads_survive_their_encoding(version: str, verb: Verb, name: str, data: st.DataObject) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    known = VERSIONS[version]
    meant = known.payload(verb, name, data.draw(st.integers(0, TOPS[version])))
    for codec in known.encodings.values():
        assert codec.decode(codec.encode(meant)) == meant
