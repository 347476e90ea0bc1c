"""The part of CBOR (RFC 8949) that intkey needs: maps with text keys, text, and integers of up to 64 bits.

This module must not use a CBOR library, and does not know the meaning of the maps. It supports negative integers so
that a test can send one where none is allowed.
"""

from collections.abc import Mapping

Item = int | str | Mapping[str, "Item"]
Decoded = int | str | dict[str, "Decoded"]

_UNSIGNED, _NEGATIVE, _TEXT, _MAP = 0, 1, 3, 5
_LIMIT = 1 << 64
_MAX_DEPTH = 32


class CborError(ValueError):
    """The bytes are not one item of this subset of CBOR."""


def encode(item: Item, *, sort_keys: bool = False) -> bytes:
    """The shortest encoding; ``sort_keys`` sorts map keys by the bytes of their encoded form."""
    if isinstance(item, bool):
        raise TypeError("booleans are not part of this subset")
    if isinstance(item, int):
        return _head(_UNSIGNED, item) if item >= 0 else _head(_NEGATIVE, -1 - item)
    if isinstance(item, str):
        data = item.encode()
        return _head(_TEXT, len(data)) + data
    pairs = [(encode(key), encode(value, sort_keys=sort_keys)) for key, value in item.items()]
    if sort_keys:
        pairs.sort()
    return _head(_MAP, len(pairs)) + b"".join(key + value for key, value in pairs)


def decode(data: bytes) -> Decoded:
    """Decode the bytes as exactly one item."""
    item, end = _decode(data, 0, 0)
    if end != len(data):
        raise CborError("bytes follow the item")
    return item


def decode_map(data: bytes) -> dict[str, Decoded]:
    """Decode one item that must be a map."""
    item = decode(data)
    if not isinstance(item, dict):
        raise CborError("the item is no map")
    return item


def _head(major: int, argument: int) -> bytes:
    if argument < 24:
        return bytes([major << 5 | argument])
    for code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if argument < 1 << (8 * size):
            return bytes([major << 5 | code]) + argument.to_bytes(size)
    raise ValueError(f"{argument} is over 64 bits")


def _take(data: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(data):
        raise CborError("the item runs past the end")
    return data[offset : offset + size]


def _decode(data: bytes, offset: int, depth: int) -> tuple[Decoded, int]:
    if depth > _MAX_DEPTH:
        raise CborError("the item nests too deeply")
    initial = _take(data, offset, 1)[0]
    offset += 1
    major, argument = initial >> 5, initial & 31
    if argument > 27:
        raise CborError("indefinite and reserved lengths are not part of this subset")
    if argument > 23:
        size = 1 << (argument - 24)
        argument = int.from_bytes(_take(data, offset, size))
        offset += size
    if major == _UNSIGNED:
        return argument, offset
    if major == _NEGATIVE:
        return -1 - argument, offset
    if major == _TEXT:
        try:
            return _take(data, offset, argument).decode(), offset + argument
        except UnicodeDecodeError as error:
            raise CborError("text is not UTF-8") from error
    if major == _MAP:
        return _decode_pairs(data, offset, argument, depth)
    raise CborError(f"major type {major} is not part of this subset")


def _decode_pairs(data: bytes, offset: int, count: int, depth: int) -> tuple[dict[str, Decoded], int]:
    pairs: dict[str, Decoded] = {}
    for _ in range(count):
        key, offset = _decode(data, offset, depth + 1)
        if not isinstance(key, str):
            raise CborError("a map key is not text")
        if key in pairs:
            raise CborError(f"the map has two of {key!r}")
        pairs[key], offset = _decode(data, offset, depth + 1)
    return pairs, offset
