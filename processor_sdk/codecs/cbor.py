"""CBOR (RFC 8949): the bytes. How values become typed ones is in ``shapes`` and ``trees``, beside this module.

Encoding is cbor2's, in its deterministic form. Decoding is written out here, because a verdict must be the same on
every node whatever release of a library it runs, and because no input may recurse or allocate beyond its own length.
"""

import struct
from typing import Any, Final, Generic, TypeVar

import cbor2

from ledger.errors import NotDecodable
from processor_sdk.codecs.shapes import shape_of
from processor_sdk.codecs.trees import (
    DEPTH_MAX,
    ITEMS_MAX,
    Misfit,
    check_items,
    shown,
    too_deep,
    too_many_items,
)

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
    """A dataclass as a CBOR map with text keys. Strict: each key once, no tags, nothing behind the value."""

    def __init__(self, kind: type[T]) -> None:
        """``kind``: a dataclass, or a type that its fields may have (``processor_sdk.codecs.shapes``).

        Raises TypeError, naming the field, where that cannot be carried.
        """
        self.kind = kind
        self._shape = shape_of(kind, bytes_as_text=False)

    def decode(self, data: bytes) -> T:
        """The value in ``data``, which need not be in deterministic form. Raises NotDecodable that names the field."""
        reader = _Reader(data)
        try:
            tree = reader.item(1)
            if reader.position != len(data):
                raise Misfit(f"it goes on for {len(data) - reader.position} bytes behind its value")
            value: T = self._shape.read(tree)
        except Misfit as misfit:
            raise NotDecodable(str(misfit)) from None
        return value

    def encode(self, value: T) -> bytes:
        """Deterministic: shortest forms, keys in order. Raises ValueError that names the field."""
        tree = self._shape.write(value)
        encoded: bytes = cbor2.dumps(tree, canonical=True)
        check_items(tree, encoded)
        return encoded


class _Reader:
    """Walks over one value; every step forward is checked against the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._items = 1
        self.position = 0

    def item(self, depth: int) -> Any:
        """The value that begins here, ``depth`` levels down."""
        data, start = self._data, self.position
        if start < len(data) and (short := data[start]) >> 5 == _TEXT and (length := short & 31) < 24:
            # What nearly every item is: a short text, or below a small number.
            end = start + 1 + length
            if end <= len(data):
                self.position = end
                return self._text(data[start + 1 : end], start)
        major, argument = self._head()
        if major == _UNSIGNED and argument is not None:
            return argument
        if major in (_MAP, _ARRAY):
            if depth > DEPTH_MAX:
                raise too_deep()
            return self._map(argument, depth) if major == _MAP else self._array(argument, depth)
        if major == _SIMPLE:
            return self._simple(start)
        if argument is None:
            raise Misfit(f"byte {start} begins {_MAJOR_TYPES[major]} of indefinite length")
        if major == _TEXT:
            return self._text(self._take(argument), start)
        if major == _BYTES:
            return self._take(argument)
        if major == _NEGATIVE:
            return -1 - argument
        raise Misfit(f"byte {start} begins {_MAJOR_TYPES[major]}, which no field can hold")

    def _map(self, pairs: int | None, depth: int) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while self._more(pairs, len(entries), 2):
            key = self.item(depth + 1)
            if not isinstance(key, str):
                raise Misfit(f"it has the key {shown(key)}, not a text string")
            if key in entries:
                raise Misfit(f"the key {shown(key)} stands there twice")
            entries[key] = self.item(depth + 1)
        return entries

    def _array(self, length: int | None, depth: int) -> list[Any]:
        items: list[Any] = []
        while self._more(length, len(items), 1):
            items.append(self.item(depth + 1))
        return items

    def _more(self, announced: int | None, read: int, items: int) -> bool:
        """Whether another ``items`` follow, which are counted then."""
        if announced is not None:
            if read == announced:
                return False
        elif self._take(1)[0] == _BREAK:
            return False
        else:
            self.position -= 1
        self._items += items
        if self._items > ITEMS_MAX:
            raise too_many_items()
        return True

    def _simple(self, start: int) -> float | bool | None:
        initial = self._data[start]
        if initial in _FLOATS:
            form, size = _FLOATS[initial]
            number: float = struct.unpack(form, self._data[start + 1 : start + 1 + size])[0]
            return number
        if initial not in _SIMPLE_VALUES:
            raise Misfit(f"byte {start} is {initial:#04x}, which no field can hold")
        return _SIMPLE_VALUES[initial]

    def _text(self, data: bytes, start: int) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise Misfit(f"byte {start} begins a text string that is not UTF-8") from None

    def _head(self) -> tuple[int, int | None]:
        start = self.position
        initial = self._take(1)[0]
        major, low = initial >> 5, initial & 31
        if low < 24:
            return major, low
        if low == _INDEFINITE:
            return major, None
        if low > 27:
            raise Misfit(f"not CBOR: byte {start} is {initial:#04x}")
        return major, int.from_bytes(self._take(1 << (low - 24)), "big")

    def _take(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self._data):
            raise Misfit(f"it ends after {len(self._data)} bytes, in the middle of its value")
        taken = self._data[self.position : end]
        self.position = end
        return taken
