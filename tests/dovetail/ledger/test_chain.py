"""Blocks, receipts and settings: seals, canonical bytes, and undecodable values."""

import contextlib
import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.ledger import settings
from dovetail.ledger.block import BlockHeader, decode_block_header, encode_block, is_sealed, seal
from dovetail.ledger.errors import InvalidKey, NotDecodable
from dovetail.ledger.ids import NULL_BLOCK_ID, BatchId, BlockId, StateRoot, TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.permitted import Permission, decode_permitted_families, encode_permitted_families
from dovetail.ledger.receipt import Event, Receipt, decode_event, encode_event, encode_receipt
from dovetail.ledger.settings import FamilyVersion, decode_setting, encode_setting
from dovetail.ledger.signing import Signer
from protos import block_pb2, transaction_receipt_pb2
from tests.system.independent import client, secp256k1
from tests.system.independent import protobuf_wire as wire

SIGNER = Signer(secp256k1.private_key_from("node"))
SAMPLE = client.make_sample("chain")
HEADER = BlockHeader(
    block_num=3,
    previous_block_id=BlockId("ab" * 64),
    signer_pubkey=SIGNER.public_key,
    batch_ids=(BatchId(SAMPLE.batch.id),),
    consensus=b"solo",
    state_root_hash=StateRoot("cd" * 32),
)


def test_a_sealed_block_is_signed_by_its_signer() -> None:
    raw = SAMPLE.batch.to_bytes()
    sealed = seal(SIGNER, HEADER, [raw])
    assert secp256k1.verify(SIGNER.public_key, sealed.header_bytes, sealed.id)
    assert is_sealed(sealed.id, sealed.header_bytes)
    assert decode_block_header(sealed.header_bytes) == HEADER
    message = block_pb2.Block.FromString(encode_block(sealed.id, sealed.header_bytes, sealed.batches))
    assert (message.header, message.header_signature) == (sealed.header_bytes, sealed.id)
    assert [batch.header_signature for batch in message.batches] == [SAMPLE.batch.id]


def test_what_is_not_sealed() -> None:
    sealed = seal(SIGNER, HEADER, [])
    other = seal(Signer(secp256k1.private_key_from("another node")), HEADER, [])
    assert not is_sealed(other.id, sealed.header_bytes)
    assert not is_sealed(sealed.id, seal(SIGNER, HEADER._replace(block_num=4), []).header_bytes)
    assert not is_sealed(BlockId(secp256k1.to_high_s(sealed.id)), sealed.header_bytes)
    assert not is_sealed(NULL_BLOCK_ID, sealed.header_bytes)
    assert not is_sealed(BlockId("zz"), sealed.header_bytes)
    with pytest.raises(InvalidKey):
        is_sealed(sealed.id, b"")
    with pytest.raises(NotDecodable, match="no BlockHeader"):
        decode_block_header(b"\x0a")


def test_the_header_has_the_wires_field_numbers() -> None:
    assert wire.decode(seal(SIGNER, HEADER, []).header_bytes) == {
        1: [3],
        2: [HEADER.previous_block_id.encode()],
        3: [SIGNER.public_key.encode()],
        4: [SAMPLE.batch.id.encode()],
        5: [b"solo"],
        6: [HEADER.state_root_hash.encode()],
    }


_addresses = st.text("0123456789abcdef", min_size=70, max_size=70)
_changes = st.dictionaries(_addresses, st.none() | st.binary(max_size=8), max_size=6)
_events = st.builds(
    Event,
    st.text(max_size=8),
    st.lists(st.tuples(st.text(max_size=4), st.text(max_size=4)), max_size=3).map(tuple),
    st.binary(max_size=8),
)


@given(_changes, st.lists(_events, max_size=3), st.lists(st.binary(max_size=8), max_size=3))
def test_receipts_are_canonical(changes: dict[str, bytes | None], events: list[Event], data: list[bytes]) -> None:
    receipt = Receipt(TransactionId("ab" * 64), changes, tuple(events), tuple(data))
    encoded = encode_receipt(receipt)
    backwards = dict(reversed(changes.items()))
    assert encode_receipt(receipt._replace(changes=backwards)) == encoded
    message = transaction_receipt_pb2.TransactionReceipt.FromString(encoded)
    assert message.transaction_id == receipt.transaction_id
    assert [change.address for change in message.state_changes] == sorted(changes)
    deleted = transaction_receipt_pb2.StateChange.DELETE
    assert {
        change.address: None if change.type == deleted else change.value for change in message.state_changes
    } == changes
    assert tuple(map(decode_event, message.events)) == receipt.events
    assert tuple(message.data) == receipt.data


def test_receipts_have_the_wires_field_numbers() -> None:
    event = Event("kind", (("key", "value"),), b"data")
    receipt = Receipt(TransactionId("t"), {"b": None, "a": b"new"}, (event,), (b"said", b""))
    assert decode_event(encode_event(event)) == event
    attribute = wire.encode([(1, "key"), (2, "value")])
    assert wire.decode(encode_receipt(receipt)) == {
        1: [wire.encode([(1, "a"), (2, b"new"), (3, 1)]), wire.encode([(1, "b"), (3, 2)])],
        2: [wire.encode([(1, "kind"), (2, attribute), (3, b"data")])],
        3: [b"said", b""],
        4: [b"t"],
    }


@given(st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=5))
def test_settings_round_trip_in_one_form(entries: dict[str, str]) -> None:
    encoded = encode_setting(entries)
    assert decode_setting(encoded) == entries
    assert encode_setting(dict(reversed(entries.items()))) == encoded
    assert encoded == wire.encode(
        [(1, wire.encode(wire.present([(1, key), (2, entries[key])]))) for key in sorted(entries)]
    )


def test_a_setting_that_is_none() -> None:
    assert decode_setting(None) == decode_setting(b"") == {}
    with pytest.raises(NotDecodable, match="no Setting"):
        decode_setting(b"\x0a\xff")


def test_permitted_families() -> None:
    value = json.dumps([{"family": "intkey", "version": "1.0", "other": 3}, {"family": "", "version": ""}])
    assert decode_permitted_families(value) == (
        Permission(FamilyVersion("intkey", "1.0")),
        Permission(FamilyVersion("", "")),
    )
    assert decode_permitted_families(" [ ] ") == ()
    # Two halves of a surrogate pair form one character.
    value = r'[{"family": "\ud83d\ude00", "version": "1"}]'
    assert decode_permitted_families(value) == (Permission(FamilyVersion("\U0001f600", "1")),)
    brackets = json.dumps([{"family": '[{"\\' * 50, "version": "1"}])
    assert len(decode_permitted_families(brackets)) == 1


MALFORMED: list[dict[str, object]] = [
    {"from_block": -1}, {"from_block": 2**63}, {"from_block": "7"}, {"from_block": 1.0}, {"from_block": True},
    {"from_block": None}, {"until_block": 1.5}, {"until_block": -1}, {"from_block": 5, "until_block": 4},
    {"migrate": "1cf126"}, {"migrate": None}, {"migrate": [1]}, {"migrate": ["1cf1"]}, {"migrate": [""]},
    {"migrate": ["1cf12"]}, {"migrate": ["1CF126"]}, {"migrate": ["1cf126" + "00" * 33]},
    {"migrate": ["1cf126", "1cf126"]}, {"migrate": ["1cf12600", "1cf126"]},
    {"migrate": [f"{number:06x}" for number in range(17)]},
]  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        "",
        "intkey",
        "{}",
        "null",
        "3",
        '"[]"',
        "[",
        "[1]",
        "[null]",
        "[[]]",
        "[{}]",
        '[{"family": "intkey"}]',
        '[{"family": "intkey", "version": 1}]',
        '[{"family": ["intkey"], "version": "1.0"}]',
        '[{"family": null, "version": "1.0"}]',
        "[" + "9" * 5_000 + "]",
        "[NaN]",
        "\ufeff[]",
        '[{"family": "\\ud800", "version": "1.0"}]',
        '[{"family": "f", "version": "\\udfff\\ud800"}]',
        *(json.dumps([{"family": "f", "version": "1", **members}]) for members in MALFORMED),
    ],
    ids=lambda value: value[:30],
)
def test_permitted_families_that_cannot_be_understood(value: str) -> None:
    with pytest.raises(NotDecodable, match=settings.TRANSACTION_FAMILIES):
        decode_permitted_families(value)


@pytest.mark.parametrize(("entries", "migrating"), [(1_000, 0), (1_000, 100)])
def test_as_many_entries_as_may_be(entries: int, migrating: int) -> None:
    plan = [
        {"family": f"f{number}", "version": "1", "migrate": ["abcdef"] if number < migrating else []}
        for number in range(entries)
    ]
    assert len(decode_permitted_families(json.dumps(plan))) == entries
    more = {"family": "f", "version": "1", "migrate": ["abcdef"] if migrating else []}
    with pytest.raises(NotDecodable, match="at most"):
        decode_permitted_families(json.dumps([*(plan[:-1] if migrating else plan), more]))


PERMISSIONS = st.builds(
    lambda family, first, length, migrate: Permission(
        family, first, None if length is None else first + length, tuple(sorted(migrate))
    ),
    st.builds(FamilyVersion, st.text(max_size=5), st.text(max_size=5)),
    st.integers(0, 2**62),
    st.none() | st.integers(0, 2**62),
    st.sets(st.integers(0, 2**24 - 1).map("{:06x}".format), max_size=16),
)


@given(st.lists(PERMISSIONS, max_size=5))
def test_permitted_families_as_text_and_back(permitted: list[Permission]) -> None:
    assert decode_permitted_families(encode_permitted_families(permitted)) == tuple(permitted)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_permitted_families_in_deep_nesting(opening: str) -> None:
    for depth in (*range(10, 1_010, 10), 100_000):
        with pytest.raises(NotDecodable):
            decode_permitted_families("[" + opening * depth + "1" + ("]" if opening == "[" else "}") * depth + "]")


@given(st.text(max_size=40))
def test_any_text_as_permitted_families(value: str) -> None:
    with contextlib.suppress(NotDecodable):
        assert isinstance(decode_permitted_families(value), tuple)


def test_every_limit_is_a_positive_number() -> None:
    limits = Limits()
    for field in fields(limits):
        assert getattr(limits, field.name) > 0
    assert limits.message_bytes_max > limits.body_bytes_max
    assert limits.page_items_max >= limits.page_items_default
