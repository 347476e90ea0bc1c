"""Tests of the test equipment: published vectors, round trips, and the bare processor at the bare validator.

Tests of the ledger do not belong here.
"""

import hashlib
import threading
from collections.abc import Iterator

import pytest

from tests.system.independent import cbor_map, client, messages, secp256k1
from tests.system.independent import protobuf_wire as wire
from tests.system.independent.bare_processor import (
    INTKEY_NAMESPACES,
    Apply,
    AuthorizationError,
    BareProcessor,
    Internal,
    Invalid,
    ProcessRequest,
    RegistrationError,
    StateAccess,
    StoppedError,
    intkey_apply,
)
from tests.system.independent.bare_validator import BareValidator, NoProcessorError, Style, Verdict
from tests.system.independent.batch_rules import broken_rules
from tests.system.independent.messages import ProcessStatus

WAIT = 5.0
KEY = secp256k1.private_key_from("test")
BATCHER = secp256k1.public_key(secp256k1.private_key_from("batcher"))
ONE = f"{1:064x}"
LAST = f"{secp256k1.N - 1:064x}"
TURING = "f8b8af8ce3c7cca5e300d33939540c10d45ce001b8f252bfbc57ba0342904181"


# --- protobuf -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (150, "9601"),
        (300, "ac02"),
        (16383, "ff7f"),
        (16384, "808001"),
        (2**32 - 1, "ffffffff0f"),
        (2**63, "80808080808080808001"),
        (2**64 - 1, "ffffffffffffffffff01"),
    ],
)
def test_varints(value: int, encoded: str) -> None:
    assert wire.encode_varint(value).hex() == encoded
    assert wire.decode_varint(bytes.fromhex(encoded)) == (value, len(encoded) // 2)


def test_negative_integers_take_ten_bytes() -> None:
    assert wire.encode_varint(-1) == wire.encode_varint(2**64 - 1)
    for value in (2**64, -(2**63) - 1):
        with pytest.raises(ValueError, match="64 bits"):
            wire.encode_varint(value)


def test_the_encoding_guides_examples() -> None:
    assert wire.encode([(1, 150)]).hex() == "089601"
    assert wire.encode([(2, "testing")]).hex() == "120774657374696e67"
    assert wire.encode([(3, wire.encode([(1, 150)]))]).hex() == "1a03089601"


def test_fields_round_trip_with_nesting_repetition_and_large_numbers() -> None:
    inner = wire.encode([(1, "a"), (1, ""), (1, "ü")])
    data = wire.encode([(5, 2**64 - 1), (2**29 - 1, inner), (5, 0), (3, bytes(range(256)))])
    fields = wire.decode(data)
    assert fields == {5: [2**64 - 1, 0], 2**29 - 1: [inner], 3: [bytes(range(256))]}
    assert wire.get_all_text(wire.decode(inner), 1) == ["a", "", "ü"]
    assert wire.get_int(fields, 5) == 0
    assert (wire.get_int(fields, 9), wire.get_text(fields, 9), wire.get_all_bytes(fields, 9)) == (0, "", [])
    assert wire.encode(wire.decode_fields(data)) == data


def test_unknown_groups_and_fixed_width_fields_are_passed_over() -> None:
    group = bytes.fromhex("1b080123241c")  # field 3, a group that holds field 1 and an empty group 4
    fixed = bytes.fromhex("2d01000000310200000000000000")
    data = wire.encode([(1, "kept")]) + group + fixed + wire.encode([(2, 7)])
    assert wire.decode(data) == {1: [b"kept"], 5: [1], 6: [2], 2: [7]}


@pytest.mark.parametrize(
    "data",
    [
        "08",
        "0880",
        "0a05616263",
        "00",
        "0f",
        "0e00",
        "0c",
        "0b",
        "0b14",
        "2d0100",
        "08ffffffffffffffffff7f",
        "08" + "80" * 10,
    ],
    ids=lambda data: str(data)[:12],
)
def test_broken_messages_are_refused(data: str) -> None:
    with pytest.raises(wire.WireError):
        wire.decode(bytes.fromhex(data))


def test_values_of_the_wrong_kind_are_refused() -> None:
    fields = wire.decode(wire.encode([(1, 5), (2, b"\xff")]))
    with pytest.raises(wire.WireError):
        wire.get_bytes(fields, 1)
    with pytest.raises(wire.WireError):
        wire.get_int(fields, 2)
    with pytest.raises(wire.WireError):
        wire.get_text(fields, 2)


# --- secp256k1 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("private_key", "expected"),
    [
        (1, "0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"),
        (2, "02c6047f9441ed7d6d3045406e95c07cd85c778e4b8cef3ca7abac09b95c709ee5"),
        (3, "02f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9"),
        (secp256k1.N - 1, "0379be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"),
    ],
)
def test_public_keys(private_key: int, expected: str) -> None:
    assert secp256k1.public_key(f"{private_key:064x}") == expected


@pytest.mark.parametrize(
    ("private_key", "message", "nonce", "signature"),
    [
        (
            ONE,
            "Satoshi Nakamoto",
            "8f8a276c19f4149656b280621e358cce24f5f52542772691ee69063b74f15d15",
            "934b1ea10a4b3c1757e2b0c017d0b6143ce3c9a7e6a4a49860d7a6ab210ee3d8"
            "2442ce9d2b916064108014783e923ec36b49743e2ffa1c4496f01a512aafd9e5",
        ),
        (
            ONE,
            "All those moments will be lost in time, like tears in rain. Time to die...",
            "38aa22d72376b4dbc472e06c3ba403ee0a394da63fc58d88686c611aba98d6b3",
            "8600dbd41e348fe5c9465ab92d23e3db8b98b873beecd930736488696438cb6b"
            "547fe64427496db33bf66019dacbf0039c04199abb0122918601db38a72cfc21",
        ),
        (
            LAST,
            "Satoshi Nakamoto",
            "33a19b60e25fb6f4435af53a3d42d493644827367e6453928554f43e49aa6f90",
            "fd567d121db66e382991534ada77a6bd3106f0a1098c231e47993447cd6af2d0"
            "6b39cd0eb1bc8603e159ef5c20a5c8ad685a45b06ce9bebed3f153d10d93bed5",
        ),
        (
            TURING,
            "Alan Turing",
            "525a82b70e67874398067543fd84c83d30c175fdc45fdeee082fe13b1d7cfdf1",
            "7063ae83e7f62bbb171798131b4a0564b956930092b33b07b395615d9ec7e15c"
            "58dfcc1e00a35e1572f366ffe34ba0fc47db1e7189759b9fb233c5b05ab388ea",
        ),
    ],
)
def test_published_rfc6979_vectors(private_key: str, message: str, nonce: str, signature: str) -> None:
    assert f"{secp256k1.rfc6979_nonce(private_key, message.encode()):064x}" == nonce
    assert secp256k1.sign(private_key, message.encode()) == signature
    assert secp256k1.verify(secp256k1.public_key(private_key), message.encode(), signature)


def test_verification_refuses_what_is_not_exactly_right() -> None:
    public, message = secp256k1.public_key(KEY), b"message"
    signature = secp256k1.sign(KEY, message)
    high = secp256k1.to_high_s(signature)
    assert secp256k1.verify(public, message, signature)
    assert secp256k1.verify(public, message, high, require_low_s=False)
    zero, order = f"{0:064x}", f"{secp256k1.N:064x}"
    for bad in (
        high,
        signature.upper(),
        signature[:-1],
        signature + "00",
        zero + signature[64:],
        order + signature[64:],
    ):
        assert not secp256k1.verify(public, message, bad)
    assert not secp256k1.verify(public, message + b"!", signature)
    assert not secp256k1.verify(secp256k1.public_key(ONE), message, signature)
    for bad_key in ("", "04" + public[2:], public.upper(), "02" + f"{5:064x}", "02" + f"{secp256k1.P + 1:064x}"):
        assert secp256k1.decode_public_key(bad_key) is None
        assert not secp256k1.verify(bad_key, message, signature)


def test_signatures_are_deterministic_and_low_s() -> None:
    for index in range(20):
        message = index.to_bytes(4)
        signature = secp256k1.sign(KEY, message)
        assert signature == secp256k1.sign(KEY, message)
        assert int(signature[64:], 16) <= secp256k1.HALF_N
        assert secp256k1.verify(secp256k1.public_key(KEY), message, signature)


@pytest.mark.parametrize("private_key", [f"{0:064x}", f"{secp256k1.N:064x}", "01"])
def test_private_keys_out_of_range_are_refused(private_key: str) -> None:
    with pytest.raises(ValueError, match="private key"):
        secp256k1.sign(private_key, b"")


# --- CBOR -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "encoded"),
    [
        (0, "00"),
        (23, "17"),
        (24, "1818"),
        (100, "1864"),
        (1000, "1903e8"),
        (1000000, "1a000f4240"),
        (1000000000000, "1b000000e8d4a51000"),
        (18446744073709551615, "1bffffffffffffffff"),
        (-1, "20"),
        (-100, "3863"),
        (-18446744073709551616, "3bffffffffffffffff"),
        ("", "60"),
        ("IETF", "6449455446"),
        ('"\\', "62225c"),
        ("ü", "62c3bc"),
        ("水", "63e6b0b4"),
        ({}, "a0"),
        ({"a": "A", "b": "B", "c": "C", "d": "D", "e": "E"}, "a56161614161626142616361436164614461656145"),
    ],
)
def test_rfc8949_vectors(item: cbor_map.Decoded, encoded: str) -> None:
    assert cbor_map.encode(item).hex() == encoded
    assert cbor_map.decode(bytes.fromhex(encoded)) == item


@pytest.mark.parametrize(
    "data", ["", "18", "6161ff", "62c3", "61ff", "a161", "a10102", "a2616101616102", "f5", "5f", "80"]
)
def test_broken_or_foreign_cbor_is_refused(data: str) -> None:
    with pytest.raises(cbor_map.CborError):
        cbor_map.decode(bytes.fromhex(data))


def test_map_keys_sort_by_their_encoded_form() -> None:
    assert cbor_map.encode({"bb": 1, "c": 2, "a": 3}, sort_keys=True) == cbor_map.encode({"a": 3, "c": 2, "bb": 1})


# --- transactions and batches ---------------------------------------------------------------------------------------


def test_headers_and_lists_read_back_as_they_were_made() -> None:
    sample = client.make_sample("round trip")
    assert client.make_sample("round trip") == sample
    assert client.read_batch_list(sample.batch_list) == [sample.batch]
    first = sample.batch.transactions[0]
    assert first.header.encode() == first.header_bytes
    assert first.header.payload_sha512 == hashlib.sha512(first.payload).hexdigest()
    assert first.header.payload_encoding == client.INTKEY_ENCODING
    assert sample.batch.header.transaction_ids == tuple(item.id for item in sample.batch.transactions)
    assert broken_rules(sample.batch_list) == set()


def test_transactions_differ_by_their_nonce() -> None:
    one, other = (client.make_intkey_transaction(KEY, BATCHER, "set", "same", 1) for _ in range(2))
    assert one.id != other.id


def test_intkey_addresses() -> None:
    assert client.INTKEY_NAMESPACE == "1cf126"
    address = client.intkey_address("name")
    assert len(address) == 70
    assert address == "1cf126" + hashlib.sha512(b"name").hexdigest()[64:]


def test_each_mutation_breaks_its_rule_and_bears_its_own_name() -> None:
    sample = client.make_sample("mutations")
    found = list(client.mutations(sample.batch, batch_key=sample.batch_key, transaction_keys=sample.transaction_keys))
    assert len({mutation.name for mutation in found}) == len(found) > 25
    as_sent = {"transaction_id_bit", "batch_header_bit"}
    for mutation in found:
        expected = {mutation.rule} | ({client.RULE_TRANSACTION_IDS} if mutation.name in as_sent else set())
        assert broken_rules(mutation.batch_list) == expected, mutation.name


def test_bit_flips_touch_one_bit() -> None:
    sample = client.make_sample("bits")
    good = sample.batch_list
    by_name = {
        mutation.name: mutation.batch_list
        for mutation in client.mutations(
            sample.batch, batch_key=sample.batch_key, transaction_keys=sample.transaction_keys
        )
    }
    for name in ("transaction_header_bit", "payload_bit", "batch_header_bit"):
        assert len(by_name[name]) == len(good)
        assert (int.from_bytes(by_name[name]) ^ int.from_bytes(good)).bit_count() == 1


def test_unusual_variants_break_no_rule() -> None:
    sample = client.make_sample("variants")
    found = list(client.variants(sample.batch, batch_key=sample.batch_key, transaction_keys=sample.transaction_keys))
    assert len(found) == 4
    for variant in found:
        assert variant.batch_list != sample.batch_list
        assert broken_rules(variant.batch_list) == set(), variant.name


# --- the bare peers -------------------------------------------------------------------------------------------------


@pytest.fixture
def validator() -> Iterator[BareValidator]:
    with BareValidator() as running:
        yield running


def serve(validator: BareValidator, apply: Apply = intkey_apply, **options: object) -> BareProcessor:
    return BareProcessor(validator.url, "intkey", "1.0", INTKEY_NAMESPACES, apply, **options)  # type: ignore[arg-type]


def run(
    validator: BareValidator,
    state: dict[str, bytes],
    verb: str,
    name: str,
    value: int,
    *,
    inputs: list[str] | None = None,
    outputs: list[str] | None = None,
    style: Style | None = None,
) -> Verdict:
    made = client.make_intkey_transaction(
        KEY, BATCHER, verb, name, value, nonce=f"{verb} {name} {value}", inputs=inputs, outputs=outputs
    )
    return validator.process(made.header_bytes, made.payload, made.signature, state, style)


def test_intkey_set_inc_and_dec(validator: BareValidator) -> None:
    state: dict[str, bytes] = {}
    with serve(validator) as processor:
        for verb, value, expected in (("set", 7, 7), ("inc", 5, 12), ("dec", 12, 0), ("inc", 2**32 - 1, 2**32 - 1)):
            verdict = run(validator, state, verb, "counter", value)
            assert verdict.ok, verdict
            assert state == {client.intkey_address("counter"): cbor_map.encode({"counter": expected})}
            assert verdict.sets == state
            assert [access.kind for access in verdict.accesses] == ["get", "set"]
        assert len(processor.requests) == 4
    assert not processor.failures
    assert not validator.unknown
    assert not validator.malformed
    assert not processor.malformed


@pytest.mark.parametrize(
    ("verb", "name", "value", "message"),
    [
        ("set", "taken", 1, "set already"),
        ("inc", "missing", 1, "not set"),
        ("dec", "missing", 1, "not set"),
        ("inc", "taken", 2**32 - 1, "out of the range"),
        ("dec", "taken", 8, "out of the range"),
        ("mul", "taken", 1, "Verb"),
        ("set", "", 1, "Name"),
        ("set", "n" * 21, 1, "Name"),
        ("set", "free", 2**32, "Value"),
        ("set", "free", -1, "Value"),
    ],
)
def test_intkey_refusals_leave_state_alone(
    validator: BareValidator, verb: str, name: str, value: int, message: str
) -> None:
    before = {client.intkey_address("taken"): cbor_map.encode({"taken": 7})}
    state = dict(before)
    with serve(validator):
        verdict = run(validator, state, verb, name, value)
    assert verdict.status == ProcessStatus.INVALID_TRANSACTION
    assert message in verdict.message
    assert state == before


def test_names_that_collide_share_an_address(validator: BareValidator) -> None:
    address = client.intkey_address("mine")
    state = {address: cbor_map.encode({"theirs": 3})}
    with serve(validator):
        assert run(validator, state, "set", "mine", 1).ok
    assert cbor_map.decode(state[address]) == {"mine": 1, "theirs": 3}


def test_a_prefix_covers_the_addresses_below_it(validator: BareValidator) -> None:
    for prefix in ("", "1cf1", client.intkey_address("name")[:68]):
        with serve(validator) as processor:
            assert run(validator, {}, "set", "name", 1, inputs=[prefix], outputs=[prefix]).ok
            processor.unregister()


@pytest.mark.parametrize("outside", ["inputs", "outputs"])
def test_outside_inputs_and_outputs_is_refused(validator: BareValidator, outside: str) -> None:
    state: dict[str, bytes] = {}
    with serve(validator):
        if outside == "inputs":
            verdict = run(validator, state, "set", "name", 1, inputs=[client.intkey_address("other")])
        else:
            verdict = run(validator, state, "set", "name", 1, outputs=[])
    assert verdict.status == ProcessStatus.INVALID_TRANSACTION
    assert "refused" in verdict.message
    assert not verdict.accesses[-1].granted
    assert state == {}


def test_a_refused_request_writes_nothing_and_apply_may_go_on(validator: BareValidator) -> None:
    inside, outside, foreign = client.intkey_address("in"), client.intkey_address("out"), "ab" * 35
    caught: list[AuthorizationError] = []

    def apply(_request: ProcessRequest, state: StateAccess) -> None:
        for attempt in (
            lambda: state.set({inside: b"1", outside: b"2"}),
            lambda: state.set({foreign: b"3"}),
            lambda: state.delete([inside, outside]),
            lambda: state.get([inside, outside]),
        ):
            try:
                attempt()
            except AuthorizationError as error:
                caught.append(error)
        assert state.get([inside]) == {}

    with serve(validator, apply) as processor:
        verdict = run(validator, {}, "set", "in", 1, inputs=[inside], outputs=[inside, foreign])
    assert verdict.ok, processor.failures
    assert len(caught) == 4
    assert verdict.sets == {}


def test_state_receipts_and_events_of_one_transaction(validator: BareValidator) -> None:
    one, two = client.intkey_address("one"), client.intkey_address("two")
    seen: list[object] = []

    def apply(_request: ProcessRequest, state: StateAccess) -> None:
        seen.extend([state.get([one, two]), state.set({two: b"new"}), state.get([one, two])])
        seen.extend([state.delete([one]), state.delete([one]), state.get([one, two])])
        state.add_receipt_data(b"first")
        state.add_receipt_data(b"")
        state.add_event("intkey/changed", [("name", "two"), ("name", "again")], b"data")
        state.add_event("intkey/bare")

    store = {one: b"old"}
    with serve(validator, apply) as processor:
        verdict = run(validator, store, "set", "x", 1, inputs=["1cf126"], outputs=["1cf126"])
    assert verdict.ok, processor.failures
    assert seen == [{one: b"old"}, [two], {one: b"old", two: b"new"}, [one], [one], {two: b"new"}]
    assert (verdict.sets, verdict.deletes, store) == ({two: b"new"}, frozenset({one}), {two: b"new"})
    assert verdict.receipt_data == (b"first", b"")
    assert verdict.events == (
        messages.Event("intkey/changed", (("name", "two"), ("name", "again")), b"data"),
        messages.Event("intkey/bare"),
    )


def test_verdicts_carry_their_message_and_data(validator: BareValidator) -> None:
    raised: list[Exception] = [Invalid("no", b"\x00why"), Internal("later"), KeyError("bug")]

    def apply(_request: ProcessRequest, state: StateAccess) -> None:
        state.set({client.intkey_address("x"): b"never"})
        raise raised[len(processor.requests) - 1]

    store: dict[str, bytes] = {}
    with serve(validator, apply) as processor:
        verdicts = [run(validator, store, "set", "x", value) for value in range(3)]
    assert [(verdict.status, verdict.message, verdict.extended_data) for verdict in verdicts] == [
        (ProcessStatus.INVALID_TRANSACTION, "no", b"\x00why"),
        (ProcessStatus.INTERNAL_ERROR, "later", b""),
        (ProcessStatus.INTERNAL_ERROR, "KeyError('bug')", b""),
    ]
    assert processor.failures == raised[2:]
    assert store == {}


def test_pings_are_answered_while_an_apply_runs(validator: BareValidator) -> None:
    started, released = threading.Event(), threading.Event()

    def apply(request: ProcessRequest, state: StateAccess) -> None:
        started.set()
        assert released.wait(WAIT)
        intkey_apply(request, state)

    made = client.make_intkey_transaction(KEY, BATCHER, "set", "slow", 1, nonce="slow")
    with serve(validator, apply) as processor:
        verdict = validator.submit(made.header_bytes, made.payload, made.signature, {})
        assert started.wait(WAIT)
        answered = validator.ping(processor.identity)
        assert answered.running == (processor.requests[0].context_id,)
        assert not verdict.done()
        processor.ping()
        released.set()
        assert verdict.result(WAIT).ok
        assert validator.ping(processor.identity).running == ()
    assert validator.pings[0] == answered
    assert processor.pings_answered == 2


def test_a_processor_can_play_dead(validator: BareValidator) -> None:
    with serve(validator) as processor:
        processor.answer_pings = False
        with pytest.raises(TimeoutError):
            validator.ping(processor.identity, timeout=0.05)
    assert validator.pings == []


def test_unregistering_stops_new_work_and_finishes_old(validator: BareValidator) -> None:
    released = threading.Event()

    def apply(request: ProcessRequest, state: StateAccess) -> None:
        assert released.wait(WAIT)
        intkey_apply(request, state)

    made = client.make_intkey_transaction(KEY, BATCHER, "set", "last", 1, nonce="last")
    with serve(validator, apply) as processor:
        verdict = validator.submit(made.header_bytes, made.payload, made.signature, {})
        processor.wait_for_requests(1)
        assert processor.unregister() == messages.Status.OK
        validator.wait_for_unregistration()
        with pytest.raises(NoProcessorError):
            validator.submit(made.header_bytes, made.payload, made.signature, {})
        released.set()
        assert verdict.result(WAIT).ok
        processor.register()
        assert validator.process(made.header_bytes, made.payload, made.signature, {}).ok
        processor.wait_for_responses(2)


def test_registration_is_recorded_and_its_protocol_version_echoed(validator: BareValidator) -> None:
    with serve(validator, max_occupancy=3, protocol_version=2, header_style="RAW") as processor:
        registered = validator.wait_for_registration("intkey", "1.0")
        assert processor.registration is not None
        assert processor.registration.protocol_version == 2
    assert (registered.namespaces, registered.max_occupancy, registered.header_style) == (INTKEY_NAMESPACES, 3, 2)
    with serve(validator, protocol_version=None) as plain:
        registered = validator.registrations[-1]
        assert plain.registration is not None
        assert plain.registration.protocol_version == 0
    assert (registered.max_occupancy, registered.protocol_version, registered.header_style) == (0, 0, 0)


def test_unknown_registration_fields_and_messages_do_not_disturb_the_validator(validator: BareValidator) -> None:
    with serve(validator) as processor:
        newer: list[tuple[int, wire.Value]] = [
            (1, "intkey"),
            (2, "1.0"),
            (4, "1cf126"),
            (6, 1),
            (1000, "packed"),
            (8, 99),
        ]
        answer = processor.request(messages.MessageType.TP_REGISTER_REQUEST, wire.encode(newer))
        assert wire.decode(answer.content) == {1: [1], 2: [1]}
        processor.send(messages.Message(1000, "newer", b"anything"))
        assert run(validator, {}, "set", "still", 1).ok
    assert [(message.message_type, message.correlation_id) for message in validator.unknown] == [(1000, "newer")]


@pytest.mark.parametrize("style", ["RAW", "EXPANDED", "BOTH"])
def test_header_styles(validator: BareValidator, style: Style) -> None:
    with serve(validator) as processor:
        assert run(validator, {}, "set", "styled", 1, style=style).ok
    request = processor.requests[0]
    assert bool(request.header_bytes) == (style != "EXPANDED")
    assert bool(request.expanded_header) == (style != "RAW")
    assert request.header.family_name == "intkey"


def test_a_processor_gets_the_header_style_it_asked_for(validator: BareValidator) -> None:
    with serve(validator, header_style="RAW") as processor:
        assert run(validator, {}, "set", "raw", 1).ok
    assert processor.requests[0].header_bytes
    assert not processor.requests[0].expanded_header


def test_a_foreign_context_is_refused(validator: BareValidator) -> None:
    released = threading.Event()

    def apply(_request: ProcessRequest, _state: StateAccess) -> None:
        assert released.wait(WAIT)

    made = client.make_intkey_transaction(KEY, BATCHER, "set", "mine", 1, nonce="mine")
    with serve(validator, apply) as owner, serve(validator) as stranger:
        verdict = validator.submit(made.header_bytes, made.payload, made.signature, {}, identity=owner.identity)
        owner.wait_for_requests(1)
        context = owner.requests[0].context_id
        for state in (StateAccess(stranger, context), StateAccess(owner, "no such context")):
            with pytest.raises(AuthorizationError):
                state.get([client.intkey_address("mine")])
            with pytest.raises(AuthorizationError):
                state.add_receipt_data(b"data")
        assert StateAccess(owner, context).get([client.intkey_address("mine")]) == {}
        released.set()
        assert verdict.result(WAIT).ok
        with pytest.raises(AuthorizationError):
            StateAccess(owner, context).get([client.intkey_address("mine")])


def test_several_workers_apply_at_once(validator: BareValidator) -> None:
    together = threading.Barrier(3)

    def apply(request: ProcessRequest, state: StateAccess) -> None:
        together.wait(WAIT)
        intkey_apply(request, state)

    with serve(validator, apply, workers=3) as processor:
        made = [client.make_intkey_transaction(KEY, BATCHER, "set", f"n{n}", n, nonce="") for n in range(3)]
        verdicts = [validator.submit(item.header_bytes, item.payload, item.signature, {}) for item in made]
        assert all(verdict.result(WAIT).ok for verdict in verdicts), processor.failures


@pytest.mark.parametrize(("status", "protocol_version", "unregisters"), [(2, 1, False), (0, 1, False), (1, 2, True)])
def test_a_registration_without_agreement_fails(status: int, protocol_version: int, unregisters: bool) -> None:
    with BareValidator() as refusing:
        refusing.refusals.append(wire.encode(wire.present([(1, status), (2, protocol_version)])))
        processor = serve(refusing)
        with pytest.raises(RegistrationError):
            processor.start()
        assert processor.registration is not None
        assert (processor.registration.status, processor.registration.protocol_version) == (status, protocol_version)
        assert bool(refusing.unregistered) == unregisters
        processor.stop()


def test_stopping_ends_what_is_open() -> None:
    started, released = threading.Event(), threading.Event()

    def apply(_request: ProcessRequest, state: StateAccess) -> None:
        started.set()
        assert released.wait(WAIT)
        state.get([client.intkey_address("open")])

    made = client.make_intkey_transaction(KEY, BATCHER, "set", "open", 1, nonce="open")
    validator = BareValidator()
    validator.start()
    with serve(validator, apply) as processor:
        verdict = validator.submit(made.header_bytes, made.payload, made.signature, {})
        assert started.wait(WAIT)
        validator.stop()
        with pytest.raises(ConnectionError):
            verdict.result(WAIT)
        stopper = threading.Thread(target=processor.stop)
        stopper.start()
        with pytest.raises(StoppedError):
            processor.wait_for_responses(1)
        released.set()
        stopper.join(WAIT)
    assert [type(error) for error in processor.failures] == [StoppedError]
    with pytest.raises(StoppedError):
        processor.ping()


def test_garbage_on_the_socket_is_recorded_and_passed_over(validator: BareValidator) -> None:
    with serve(validator) as processor:
        processor.owner.send_raw(b"\xff")
        processor.ping()
        validator.send(processor.identity, messages.Message(2000, "newer"))
        assert run(validator, {}, "set", "after", 1).ok
    assert validator.malformed == [b"\xff"]
    assert [message.message_type for message in processor.unexpected] == [2000]
