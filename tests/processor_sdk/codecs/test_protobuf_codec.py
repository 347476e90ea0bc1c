"""Protobuf messages as payloads: one runtime for all processors, known fields only, equal bytes for equal messages."""

import pytest
from google.protobuf import descriptor_pb2, struct_pb2, wrappers_pb2
from google.protobuf.internal import api_implementation

from processor_sdk import NotDecodable, ProtobufCodec
from protos import setting_pb2, settings_pb2


def test_messages_are_carried() -> None:
    codec = ProtobufCodec(settings_pb2.SettingProposal)
    proposal = settings_pb2.SettingProposal(setting="a", value="b", nonce="c")
    assert codec.decode(codec.encode(proposal)) == proposal
    assert codec.decode(b"") == settings_pb2.SettingProposal()


def test_what_is_no_such_message_is_refused() -> None:
    codec = ProtobufCodec(settings_pb2.SettingProposal)
    with pytest.raises(NotDecodable, match="2 bytes are no serialized SettingProposal"):
        codec.decode(b"\xff\xff")
    with pytest.raises(ValueError, match="is Setting, not SettingProposal"):
        codec.encode(setting_pb2.Setting())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no generated message class"):
        ProtobufCodec(str)  # type: ignore[type-var]


@pytest.mark.parametrize("implementation", ["python", "cpp"])
def test_another_implementation_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, implementation: str) -> None:
    monkeypatch.setattr(api_implementation, "Type", lambda: implementation)
    with pytest.raises(RuntimeError, match=f"'{implementation}' here, .*install a wheel"):
        ProtobufCodec(settings_pb2.SettingProposal)


UNKNOWN = b"\x98\x06\x01"
"""An unknown field: number 99, with the value 1."""


@pytest.mark.parametrize(
    "data",
    [
        UNKNOWN,
        b"\x08\x01",  # The payload has a known field with another wire type.
        setting_pb2.Setting(entries=[setting_pb2.Setting.Entry(key="k")]).SerializeToString() + UNKNOWN,
        b"\x0a\x06\x0a\x01k" + UNKNOWN,  # The unknown field is inside a map entry.
    ],
)
def test_unknown_fields_are_refused_at_any_depth(data: bytes) -> None:
    with pytest.raises(NotDecodable, match=r"it holds \d+ bytes of fields that Setting does not have"):
        ProtobufCodec(setting_pb2.Setting).decode(data)


def test_unknown_fields_in_the_values_of_a_map_are_refused() -> None:
    value = struct_pb2.Value(bool_value=True).SerializeToString() + UNKNOWN
    entry = b"\x0a\x01k\x12" + bytes([len(value)]) + value
    with pytest.raises(NotDecodable, match="does not have"):
        ProtobufCodec(struct_pb2.Struct).decode(b"\x0a" + bytes([len(entry)]) + entry)


def test_equal_maps_make_equal_bytes() -> None:
    codec, keys = ProtobufCodec(struct_pb2.Struct), [f"key {number}" for number in range(50)]
    one, other = struct_pb2.Struct(), struct_pb2.Struct()
    for key, again in zip(keys, reversed(keys), strict=True):
        one[key] = other[again] = True
    assert one == other
    assert one.SerializeToString() != other.SerializeToString()
    assert codec.encode(one) == codec.encode(other) == codec.encode(codec.decode(codec.encode(one)))


def test_a_field_that_is_required_must_be_there() -> None:
    codec = ProtobufCodec(descriptor_pb2.UninterpretedOption)
    with pytest.raises(ValueError, match=r"missing required fields: name\[0\]"):
        codec.encode(descriptor_pb2.UninterpretedOption(name=[descriptor_pb2.UninterpretedOption.NamePart()]))
    with pytest.raises(NotDecodable, match=r"missing required fields: name\[0\]"):
        codec.decode(b"\x12\x00")


def test_minus_zero_is_a_value_of_its_own() -> None:
    codec = ProtobufCodec(wrappers_pb2.DoubleValue)
    assert codec.decode(codec.encode(wrappers_pb2.DoubleValue(value=-0.0))) != wrappers_pb2.DoubleValue()
