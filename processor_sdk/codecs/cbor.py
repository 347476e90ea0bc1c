"""The CBOR codec (RFC 8949): bytes to plain trees and back. ``shapes`` and ``trees`` make typed values of the trees.

cbor2 encodes, in its deterministic form. This module decodes itself, because verdicts must not depend on a library's
release, and because no input may recurse deeply or allocate more than its length justifies.
"""

import struct
from typing import Any, Final, Generic, TypeVar

import cbor2

from dovetail.ledger.errors import NotDecodable
from processor_sdk.codecs.shapes import shape_of
from processor_sdk.codecs.trees import DEPTH_MAX, ITEMS_MAX, Misfit, check_items, shown, too_deep, too_many_items

T = TypeVar("T")

_UNSIGNED: Final = 0
_NEGATIVE: Final = 1
_BYTES: Final = 2
_TEXT: Final = 3
_ARRAY: Final = 4
_MAP: Final = 5
_SIMPLE: Final = 7
_MAJOR_TYPES: Final = (
    "an unsigned integer", "a negative integer", "a byte string", "a text string", "an array", "a map", "a tagged item",
    "a simple value",
)  # fmt: skip
_SIMPLE_VALUES: Final = {0xF4: False, 0xF5: True, 0xF6: None}
_FLOATS: Final = {0xF9: (">e", 2), 0xFA: (">f", 4), 0xFB: (">d", 8)}
_INDEFINITE: Final = 31
_BREAK: Final = 0xFF


class CborCodec(Generic[T]):
    """A dataclass as a CBOR map with text keys. Strict: each key once, no tags, no bytes after the value."""

    def __init__(self, kind: type[T]) -> None:
        """``kind``: a dataclass, or a type that its fields may have (``processor_sdk.codecs.shapes``).

        Raises TypeError that names the field if the type is not supported.
        """
        self.kind = kind
        self._shape = shape_of(kind, bytes_as_text=False)

    def decode(self, data: bytes) -> T:
        """The value in ``data``; any CBOR form is accepted. Raises NotDecodable that names the field."""
        try:
            tree, end = _Reader(data).item(0, 1)
            if end != len(data):
                raise Misfit(f"it goes on for {len(data) - end} bytes behind its value")
            value: T = self._shape.read(tree)
        except Misfit as misfit:
            raise NotDecodable(str(misfit)) from None
        return value

    def encode(self, value: T) -> bytes:
        """The deterministic form: shortest forms, ordered keys. Raises ValueError that names the field."""
        tree = self._shape.write(value)
        encoded: bytes = cbor2.dumps(tree, canonical=True)
        check_items(tree, encoded)
        return encoded


class _Reader:
    """Reads one value; checks every step against the end of the data.

    Methods take the start of an item and return its end, which is faster than an attribute for the position.
    """

    __slots__ = ("_data", "_items")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._items = 1

    def item(self, start: int, depth: int) -> tuple[Any, int]:
        """The item at ``start``, which is ``depth`` levels deep, and the position of its end."""
        data = self._data
        if start >= len(data):
            raise self._cut()
        argument: int | None
        major, argument = data[start] >> 5, data[start] & 31
        at = start + 1
        if argument >= 24:
            argument, at = self._argument(start, argument)
        if major == _TEXT and argument is not None:
            end = at + argument
            if end > len(data):
                raise self._cut()
            try:
                return data[at:end].decode(), end
            except UnicodeDecodeError:
                raise Misfit(f"byte {start} begins a text string that is not UTF-8") from None
        if major == _UNSIGNED and argument is not None:
            return argument, at
        if major in (_MAP, _ARRAY):
            if depth > DEPTH_MAX:
                raise too_deep()
            return self._map(at, argument, depth) if major == _MAP else self._array(at, argument, depth)
        if major == _SIMPLE:
            return self._simple(start), at
        if argument is None:
            raise Misfit(f"byte {start} begins {_MAJOR_TYPES[major]} of indefinite length")
        if major == _BYTES:
            return self._taken(at, argument)
        if major == _NEGATIVE:
            return -1 - argument, at
        raise Misfit(f"byte {start} begins {_MAJOR_TYPES[major]}, which no field can hold")

    def _map(self, at: int, pairs: int | None, depth: int) -> tuple[dict[str, Any], int]:
        entries: dict[str, Any] = {}
        while len(entries) != pairs:
            if pairs is None and self._breaks(at):
                return entries, at + 1
            self._items += 2
            if self._items > ITEMS_MAX:
                raise too_many_items()
            key, at = self.item(at, depth + 1)
            if type(key) is not str:
                raise Misfit(f"it has the key {shown(key)}, not a text string")
            if key in entries:
                raise Misfit(f"the key {shown(key)} stands there twice")
            entries[key], at = self.item(at, depth + 1)
        return entries, at

    def _array(self, at: int, length: int | None, depth: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while len(items) != length:
            if length is None and self._breaks(at):
                return items, at + 1
            self._items += 1
            if self._items > ITEMS_MAX:
                raise too_many_items()
            item, at = self.item(at, depth + 1)
            items.append(item)
        return items, at

    def _breaks(self, at: int) -> bool:
        """Whether the break of an item of indefinite length is at ``at``."""
        if at >= len(self._data):
            raise self._cut()
        return self._data[at] == _BREAK

    def _simple(self, start: int) -> float | bool | None:
        initial = self._data[start]
        if initial in _FLOATS:
            form, size = _FLOATS[initial]
            number: float = struct.unpack(form, self._data[start + 1 : start + 1 + size])[0]
            return number
        if initial not in _SIMPLE_VALUES:
            raise Misfit(f"byte {start} is {initial:#04x}, which no field can hold")
        return _SIMPLE_VALUES[initial]

    def _argument(self, start: int, low: int) -> tuple[int | None, int]:
        """The argument after a first byte with the low bits ``low``, 24 or more; None for indefinite length."""
        at = start + 1
        if low == _INDEFINITE:
            return None, at
        if low > 27:
            raise Misfit(f"not CBOR: byte {start} is {self._data[start]:#04x}")
        taken, at = self._taken(at, 1 << (low - 24))
        return int.from_bytes(taken, "big"), at

    def _taken(self, at: int, count: int) -> tuple[bytes, int]:
        end = at + count
        if end > len(self._data):
            raise self._cut()
        return self._data[at:end], end

    def _cut(self) -> Misfit:
        return Misfit(f"it ends after {len(self._data)} bytes, in the middle of its value")
