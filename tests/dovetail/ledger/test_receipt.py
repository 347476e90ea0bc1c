"""Receipts: one canonical encoding, as on the wire."""

from hypothesis import given
from hypothesis import strategies as st

from dovetail.ledger.ids import TransactionId
from dovetail.ledger.receipt import Event, Receipt, decode_event, encode_event, encode_receipt
from protos import transaction_receipt_pb2
from tests.system.independent import protobuf_wire as wire

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
