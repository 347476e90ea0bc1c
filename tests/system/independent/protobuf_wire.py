"""A hand-written proto3 wire codec: varints, length-delimited fields, nesting and repetition by field number.

Message names, schemas and protobuf libraries do not belong here, so that this module cannot share an error with the
project's generated code.
"""

from collections.abc import Iterable, Mapping

Value = int | bytes | str
Fields = dict[int, list[int | bytes]]

VARINT, FIXED64, LENGTH_DELIMITED, GROUP_START, GROUP_END, FIXED32 = range(6)
_U64 = (1 << 64) - 1
_MAX_FIELD_NUMBER = (1 << 29) - 1


class WireError(ValueError):
    """The bytes are not a proto3 message."""


def encode_varint(value: int) -> bytes:
    """Encode an integer; a negative one as its 64-bit two's complement, in ten bytes."""
    if not -(1 << 63) <= value <= _U64:
        raise ValueError(f"{value} does not fit into 64 bits")
    value &= _U64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_varint(data: bytes, offset: int = 0) -> tuple[int, int]:
    """The value at ``offset`` and the offset behind the value."""
    value = 0
    for index in range(10):
        if offset + index >= len(data):
            raise WireError("varint runs past the end")
        byte = data[offset + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value > _U64:
                raise WireError("varint is over 64 bits")
            return value, offset + index + 1
    raise WireError("varint is longer than ten bytes")


def encode(fields: Iterable[tuple[int, Value]]) -> bytes:
    """Write the fields exactly as given, in the order given, including zero and empty values."""
    out = bytearray()
    for number, value in fields:
        if not 1 <= number <= _MAX_FIELD_NUMBER:
            raise ValueError(f"{number} is not a field number")
        if isinstance(value, int):
            out += encode_varint(number << 3 | VARINT)
            out += encode_varint(value)
        else:
            data = value.encode() if isinstance(value, str) else bytes(value)
            out += encode_varint(number << 3 | LENGTH_DELIMITED)
            out += encode_varint(len(data))
            out += data
    return bytes(out)


def present(fields: Iterable[tuple[int, Value | None]]) -> list[tuple[int, Value]]:
    """Drop None, zero and empty values, as a proto3 encoder does for singular fields."""
    return [(number, value) for number, value in fields if value]


def repeated(number: int, values: Iterable[Value]) -> list[tuple[int, Value]]:
    """One field for each value, including empty values."""
    return [(number, value) for value in values]


def decode_fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """Every field in the order of the wire. Groups are skipped; fixed-width values become unsigned integers."""
    found: list[tuple[int, int | bytes]] = []
    offset = 0
    while offset < len(data):
        number, wire_type, offset = _decode_tag(data, offset)
        if wire_type == GROUP_START:
            offset = _skip_group(data, offset, number, 1)
            continue
        if wire_type == GROUP_END:
            raise WireError("a group ends that did not begin")
        value, offset = _decode_value(data, offset, wire_type)
        found.append((number, value))
    return found


def decode(data: bytes) -> Fields:
    """Collect the values of each field number, in order."""
    collected: Fields = {}
    for number, value in decode_fields(data):
        collected.setdefault(number, []).append(value)
    return collected


def get_int(fields: Mapping[int, list[int | bytes]], number: int) -> int:
    """The last value of a singular integer field; 0 if absent."""
    values = fields.get(number)
    if not values:
        return 0
    value = values[-1]
    if not isinstance(value, int):
        raise WireError(f"field {number} is not an integer")
    return value


def get_bytes(fields: Mapping[int, list[int | bytes]], number: int) -> bytes:
    """The last value of a singular bytes field; empty if absent."""
    values = get_all_bytes(fields, number)
    return values[-1] if values else b""


def get_text(fields: Mapping[int, list[int | bytes]], number: int) -> str:
    """The last value of a singular string field; empty if absent."""
    return _text(get_bytes(fields, number), number)


def get_all_bytes(fields: Mapping[int, list[int | bytes]], number: int) -> list[bytes]:
    """All values of a repeated bytes or message field."""
    values = []
    for value in fields.get(number, []):
        if isinstance(value, int):
            raise WireError(f"field {number} is not length-delimited")
        values.append(value)
    return values


def get_all_text(fields: Mapping[int, list[int | bytes]], number: int) -> list[str]:
    """All values of a repeated string field."""
    return [_text(value, number) for value in get_all_bytes(fields, number)]


def _text(data: bytes, number: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise WireError(f"field {number} is not UTF-8") from error


def _decode_tag(data: bytes, offset: int) -> tuple[int, int, int]:
    tag, offset = decode_varint(data, offset)
    number, wire_type = tag >> 3, tag & 7
    if not 1 <= number <= _MAX_FIELD_NUMBER:
        raise WireError(f"{number} is not a field number")
    return number, wire_type, offset


def _decode_value(data: bytes, offset: int, wire_type: int) -> tuple[int | bytes, int]:
    if wire_type == VARINT:
        return decode_varint(data, offset)
    if wire_type == LENGTH_DELIMITED:
        length, offset = decode_varint(data, offset)
        return _take(data, offset, length), offset + length
    if wire_type in (FIXED32, FIXED64):
        length = 4 if wire_type == FIXED32 else 8
        return int.from_bytes(_take(data, offset, length), "little"), offset + length
    raise WireError(f"{wire_type} is not a wire type")


def _take(data: bytes, offset: int, length: int) -> bytes:
    if offset + length > len(data):
        raise WireError("field runs past the end")
    return data[offset : offset + length]


def _skip_group(data: bytes, offset: int, group: int, depth: int) -> int:
    if depth > 100:
        raise WireError("groups nest too deeply")
    while True:
        number, wire_type, offset = _decode_tag(data, offset)
        if wire_type == GROUP_END:
            if number != group:
                raise WireError("a group ends under another number")
            return offset
        if wire_type == GROUP_START:
            offset = _skip_group(data, offset, number, depth + 1)
        else:
            _, offset = _decode_value(data, offset, wire_type)
