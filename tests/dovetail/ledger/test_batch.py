"""Verification of batches: forgeries are refused by their rule, unusual valid batches pass, no bytes raise errors."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.ledger.batch import decode_batch_list, verify_batch
from dovetail.ledger.building import build_transaction
from dovetail.ledger.errors import NotDecodable, RefusedBatch
from dovetail.ledger.signing import Signer
from dovetail.ledger.transaction import DECLARED_ADDRESSES_MAX, decode_transaction
from protos import client_block_pb2
from tests.system.independent import client, secp256k1
from tests.system.independent import protobuf_wire as wire
from tests.system.independent.batch_rules import broken_rules

SAMPLE = client.make_sample("verify")
BATCHER = SAMPLE.batch.header.signer_pubkey
FORGERIES = list(client.mutations(SAMPLE.batch, batch_key=SAMPLE.batch_key, transaction_keys=SAMPLE.transaction_keys))
VARIANTS = list(client.variants(SAMPLE.batch, batch_key=SAMPLE.batch_key, transaction_keys=SAMPLE.transaction_keys))

RULES = {
    client.RULE_TRANSACTION_SIGNATURE: {"signature_mismatch"},
    client.RULE_BATCH_SIGNATURE: {"signature_mismatch"},
    client.RULE_BATCHER_KEY: {"batcher_key_mismatch"},
    client.RULE_PAYLOAD_HASH: {"payload_hash_mismatch"},
    client.RULE_TRANSACTION_IDS: {"transaction_ids_mismatch"},
    client.RULE_EMPTY_BATCH: {"empty_batch"},
    client.RULE_DUPLICATE: {"duplicate_transaction"},
    client.RULE_ID_FORM: {"batch_id_malformed", "transaction_id_malformed"},
    client.RULE_KEY_FORM: {"public_key_malformed"},
    client.RULE_LOW_S: {"signature_high_s"},
    client.RULE_TRANSACTION_HEADER: {"header_not_decodable"},
    client.RULE_BATCH_HEADER: {"header_not_decodable"},
}


def refusal_of(batch_list: bytes) -> RefusedBatch:
    (raw,) = decode_batch_list(batch_list)
    with pytest.raises(RefusedBatch) as caught:
        verify_batch(raw)
    return caught.value


def signed(*transactions: client.Transaction) -> bytes:
    return client.make_batch_list([client.make_batch(SAMPLE.batch_key, transactions)])


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.name)
def test_forgeries_are_refused(forgery: client.Mutation) -> None:
    assert refusal_of(forgery.batch_list).rule in RULES[forgery.rule]


def test_there_is_a_forgery_for_every_rule() -> None:
    assert {forgery.rule for forgery in FORGERIES} == set(RULES)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_unusual_good_batches_pass(variant: client.Mutation) -> None:
    (raw,) = decode_batch_list(variant.batch_list)
    assert verify_batch(raw).raw == raw


_UNSIGNED = wire.encode([(4, 1), (1000, b"junk" * 1_000)])
"""Field 4, in which some 1.x clients ask for tracing, and a field that nobody knows."""


def _with_unsigned(batch: client.Batch, place: str) -> bytes:
    """The batch in another encoding of the same signed bytes."""
    first, second = (transaction.to_bytes() for transaction in batch.transactions)
    header, signature = (1, batch.header_bytes), (2, batch.id)
    if place == "batch":
        return batch.to_bytes() + _UNSIGNED
    if place == "transaction":
        return wire.encode([header, signature, (3, first + _UNSIGNED), (3, second)])
    if place == "order":
        return wire.encode([(3, first), signature, (3, second), header])
    if place == "repeated":
        return wire.encode([(1, b"another header"), (2, "00"), header, signature, (3, first), (3, second)])
    payload = wire.encode([(3, b"another payload")])
    return wire.encode([header, signature, (3, payload + first), (3, second)])


@pytest.mark.parametrize("place", ["batch", "transaction", "order", "repeated", "payload"])
def test_what_is_not_signed_is_dropped(place: str) -> None:
    raw = _with_unsigned(SAMPLE.batch, place)
    canonical = SAMPLE.batch.to_bytes()
    assert raw != canonical
    verified = verify_batch(raw)
    assert verified.raw == canonical
    assert [item.raw for item in verified.transactions] == [item.to_bytes() for item in SAMPLE.batch.transactions]


def test_a_refusal_names_batch_and_transaction() -> None:
    first, second = SAMPLE.batch.transactions
    batch = replace(SAMPLE.batch, transactions=(first, replace(second, payload=b"other")))
    refusal = refusal_of(client.make_batch_list([batch]))
    assert refusal.rule == "payload_hash_mismatch"
    for part in (second.id, batch.id, second.header.payload_sha512):
        assert part in refusal.message


@pytest.mark.parametrize("address", ["0", "1cf12", "1CF126", "g0", "0" * 72, "0" * 69, " ", "1cf126\n"])
@pytest.mark.parametrize("field", ["inputs", "outputs"])
def test_declared_addresses_are_prefixes(field: str, address: str) -> None:
    transaction = client.make_transaction(
        SAMPLE.transaction_keys[0], BATCHER, "f", "1", *(([address], []) if field == "inputs" else ([], [address])), b""
    )
    refusal = refusal_of(signed(transaction))
    assert refusal.rule == "address_malformed"
    assert repr(address[:80]) in refusal.message


@pytest.mark.parametrize("dependency", ["", "zz", "ab", "AB" * 64, "ab" * 300, "ab" * 63 + "a "], ids=len)
def test_dependencies_are_ids(dependency: str) -> None:
    good = "ab" * 64
    transaction = client.make_transaction(
        SAMPLE.transaction_keys[0], BATCHER, "f", "1", [], [], b"", dependencies=[good, dependency]
    )
    refusal = refusal_of(signed(transaction))
    assert refusal.rule == "dependency_malformed"
    assert repr(dependency[:140]) in refusal.message


@pytest.mark.parametrize("family", [("", "1"), ("f", ""), ("f" * 257, "1"), ("f", "1" * 1_000_000)])
def test_families_have_a_name_and_a_version_of_bounded_length(family: tuple[str, str]) -> None:
    name, version = family
    refusal = refusal_of(
        signed(client.make_transaction(SAMPLE.transaction_keys[0], BATCHER, name, version, [], [], b""))
    )
    assert refusal.rule == "family_malformed"
    assert len(refusal.message) < 2_000


def test_declared_addresses_are_bounded_over_the_batch() -> None:
    half = [f"{number:06x}" for number in range(DECLARED_ADDRESSES_MAX // 2)]
    for more, good in (([], True), (["00"], False)):
        transactions = [
            client.make_transaction(SAMPLE.transaction_keys[0], BATCHER, "f", "1", inputs, outputs, b"", nonce="n")
            for inputs, outputs in ((half, []), (more, half))
        ]
        if good:
            assert accepted(signed(*transactions))
        else:
            assert refusal_of(signed(*transactions)).rule == "too_many_addresses"


@pytest.mark.parametrize("depth", [1, 50, 85, 90, 95, 96, 97, 98, 99, 100, 200])
def test_what_is_accepted_can_be_read_inside_every_answer(depth: int) -> None:
    """Unknown fields nested as groups: field 2000, opened and closed ``depth`` times."""
    nested = wire.encode_varint(2000 << 3 | 3) * depth + wire.encode_varint(2000 << 3 | 4) * depth
    raw = SAMPLE.batch.to_bytes() + nested
    if accepted(wire.encode([(1, raw)])):
        block = wire.encode([(1, b""), (2, ""), (3, verify_batch(raw).raw)])
        answer = client_block_pb2.ClientBlockListResponse.FromString(wire.encode([(1, 1), (2, block)]))
        assert answer.blocks[0].batches[0].header_signature == SAMPLE.batch.id
    else:
        assert depth > 50


def test_bytes_that_are_no_messages() -> None:
    with pytest.raises(NotDecodable):
        decode_batch_list(b"\x0a\xff")
    assert refusal_of(wire.encode([(1, b"\x0a\xff")])).rule == "batch_not_decodable"
    header = client.BatchHeader(BATCHER, ()).encode()
    batch = wire.encode([(1, header), (2, secp256k1.sign(SAMPLE.batch_key, header)), (3, b"\x0a\xff")])
    assert refusal_of(wire.encode([(1, batch)])).rule == "transaction_not_decodable"
    with pytest.raises(NotDecodable, match="no Transaction"):
        decode_transaction(b"\x0a\xff")
    with pytest.raises(NotDecodable, match="no TransactionHeader"):
        decode_transaction(wire.encode([(1, b"\x0a\xff")]))


def test_a_list_of_nothing_holds_nothing() -> None:
    assert decode_batch_list(b"") == []
    assert refusal_of(wire.encode([(1, b"")])).rule == "batch_id_malformed"


def test_lists_joined_are_one_list() -> None:
    others = client.make_sample("other")
    joined = decode_batch_list(SAMPLE.batch_list + others.batch_list)
    assert joined == [SAMPLE.batch.to_bytes(), others.batch.to_bytes()]


def test_built_transactions_pass_for_a_second_implementation() -> None:
    signer = Signer(SAMPLE.batch_key)
    built = build_transaction(
        signer,
        batcher_pubkey=signer.public_key,
        family_name="intkey",
        family_version="1.0",
        inputs=("1cf126",),
        outputs=("1cf126",),
        payload=b"payload",
        payload_encoding="application/cbor",
        nonce="n",
    )
    batch = client.make_batch(SAMPLE.batch_key, [client.Transaction.from_bytes(built.raw)])
    assert broken_rules(client.make_batch_list([batch])) == set()
    assert verify_batch(batch.to_bytes()).transactions[0].id == built.id


def accepted(batch_list: bytes) -> bool:
    """Whether the list decodes and every batch in it is verified. Any exception other than a refusal is a bug."""
    refusal: NotDecodable | RefusedBatch | None = None
    try:
        for raw in decode_batch_list(batch_list):
            verify_batch(raw)
    except (NotDecodable, RefusedBatch) as error:
        refusal = error
    if isinstance(refusal, RefusedBatch):
        assert refusal.rule.isidentifier()
        assert len(refusal.message) < 2_000
    return refusal is None


@given(st.binary(max_size=400))
def test_any_bytes_as_a_list(content: bytes) -> None:
    assert accepted(content) == (decode_batch_list(content) == [] if _decodes(content) else False)


def _decodes(content: bytes) -> bool:
    try:
        decode_batch_list(content)
    except NotDecodable:
        return False
    return True


@given(st.binary(max_size=200), st.text(max_size=140), st.lists(st.binary(max_size=100), max_size=3))
def test_any_fields_as_a_batch(header: bytes, signature: str, transactions: list[bytes]) -> None:
    batch = wire.encode([(1, header), (2, signature), *wire.repeated(3, transactions)])
    assert not accepted(wire.encode([(1, batch)]))


_text = st.text(max_size=20)


@given(
    header=st.builds(
        client.TransactionHeader,
        batcher_pubkey=st.one_of(st.just(BATCHER), _text),
        family_name=_text,
        inputs=st.lists(st.one_of(_text, st.just("1cf126")), max_size=3).map(tuple),
        outputs=st.lists(st.one_of(_text, st.just("1cf126")), max_size=3).map(tuple),
        payload_sha512=_text,
        signer_pubkey=st.one_of(st.just(BATCHER), _text),
    ),
    payload=st.binary(max_size=20),
)
@settings(max_examples=40)
def test_any_signed_header(header: client.TransactionHeader, payload: bytes) -> None:
    transaction = client.Transaction(b"", "", payload).resigned(SAMPLE.batch_key, header.encode())
    assert not accepted(signed(transaction))


@given(position=st.integers(0, len(SAMPLE.batch_list) - 1), bit=st.integers(0, 7), cut=st.booleans())
@settings(max_examples=150)
def test_one_changed_bit_or_a_missing_end_is_refused(position: int, bit: int, cut: bool) -> None:
    content = bytearray(SAMPLE.batch_list)
    if cut:
        del content[position:]
        assert accepted(bytes(content)) is (position == 0)
        return
    content[position] ^= 1 << bit
    try:
        good = not broken_rules(bytes(content))
    except wire.WireError:
        good = False
    assert accepted(bytes(content)) == good
