"""Reading typed values from plain trees, as JSON and CBOR have them, and writing values to trees.

``processor_sdk.codecs.shapes`` chooses the shape of each type. The codecs convert trees to bytes.
"""

import base64
import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

from dovetail.ledger.errors import some_of

DEPTH_MAX: Final = 32
"""The most levels of nested maps and lists."""

ITEMS_MAX: Final = 131_072
"""The most keys and values of one tree, counting maps and lists. Bounds the memory of a hostile payload."""

INTEGER_MIN: Final = -(2**64)
INTEGER_MAX: Final = 2**64 - 1

_KEYS_SHOWN_MAX: Final = 8


class Misfit(ValueError):
    """A value does not fit. Its text names the path of the field, outermost first, and the fault."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = ""

    def within(self, step: str) -> "Misfit":
        """This error with ``step`` (a key or ``[n]``) put before its path."""
        dot = "." if self.path and not self.path.startswith("[") else ""
        self.path = f"{step}{dot}{self.path}"
        return self

    def __str__(self) -> str:
        return f"{self.path} {self.reason}" if self.path else self.reason


class Shape(NamedTuple):
    """Reads the values of one type from a tree, and writes them to a tree. Both functions raise Misfit."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


def shown(value: object) -> str:
    """A short text of any value, for a message."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, dict | list):
        return f"a {'map' if isinstance(value, dict) else 'list'} of {len(value)}"
    if isinstance(value, str | bytes) and len(value) > 40:
        return f"{value[:40]!r}… ({len(value)} {'characters' if isinstance(value, str) else 'bytes'})"
    return repr(value)[:80]


def too_deep() -> Misfit:
    """The error of a tree beyond DEPTH_MAX."""
    return Misfit(f"it nests deeper than {DEPTH_MAX} levels")


def too_many_items() -> Misfit:
    """The error of a tree beyond ITEMS_MAX."""
    return Misfit(f"it holds more than {ITEMS_MAX} keys and values")


def check_items(tree: Any, encoded: bytes) -> None:
    """Check that decoding would accept ``tree``, whose bytes are ``encoded``. Raises Misfit."""
    if len(encoded) <= ITEMS_MAX:  # Each item takes at least one byte.
        return
    count, waiting = 0, [tree]
    while waiting:
        item = waiting.pop()
        count += 1
        if isinstance(item, dict):
            count += len(item)
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    if count > ITEMS_MAX:
        raise too_many_items()


class Member(NamedTuple):
    """A field of a dataclass: its name, its key in the map, whether it is required, and its shape."""

    name: str
    key: str
    required: bool
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


def record(kind: type, members: list[Member]) -> Shape:
    """The shape of a dataclass: a map."""
    keys = frozenset(member.key for member in members)

    def read(tree: Any) -> Any:
        if type(tree) is not dict:
            raise Misfit(f"is {shown(tree)}, not a map with the keys {_listed(keys)}")
        if not tree.keys() <= keys:
            raise Misfit(f"has the unknown keys {_listed(tree.keys() - keys)}; known are {_listed(keys)}")
        values = {}
        for name, key, required, read_member, _ in members:
            if key in tree:
                try:
                    values[name] = read_member(tree[key])
                except Misfit as misfit:
                    raise misfit.within(key) from None
            elif required:
                raise Misfit("is missing").within(key)
        try:
            return kind(**values)
        except Misfit:
            raise
        except ValueError as error:
            raise Misfit(str(error)) from None

    def write(value: Any) -> Any:
        if type(value) is not kind:
            raise Misfit(f"is {shown(value)}, not {kind.__name__}")
        tree = {}
        for name, key, _, _, write_member in members:
            try:
                tree[key] = write_member(getattr(value, name))
            except Misfit as misfit:
                raise misfit.within(key) from None
        return tree

    return Shape(read, write)


def sequence(item: Shape, made: type[list[Any]] | type[tuple[Any, ...]]) -> Shape:
    """The shape of a list or tuple of ``item``: a list."""

    def each(values: Any, convert: Callable[[Any], Any]) -> list[Any]:
        converted: list[Any] = []
        try:
            converted.extend(convert(value) for value in values)
        except Misfit as misfit:
            raise misfit.within(f"[{len(converted)}]") from None
        return converted

    def read(tree: Any) -> Any:
        if type(tree) is not list:
            raise Misfit(f"is {shown(tree)}, not a list")
        return made(each(tree, item.read))

    def write(value: Any) -> Any:
        if type(value) is not made:
            raise Misfit(f"is {shown(value)}, not a {made.__name__}")
        return each(value, item.write)

    return Shape(read, write)


def mapping(item: Shape) -> Shape:
    """The shape of a dict from text to ``item``: a map."""

    def convert(values: Any, how: Callable[[Any], Any]) -> dict[str, Any]:
        if type(values) is not dict:
            raise Misfit(f"is {shown(values)}, not a map")
        converted = {}
        for key, value in values.items():
            try:
                converted[_text(key)] = how(value)
            except Misfit as misfit:
                raise misfit.within(f"[{shown(key)}]") from None
        return converted

    return Shape(lambda tree: convert(tree, item.read), lambda value: convert(value, item.write))


def optional(item: Shape) -> Shape:
    """The shape of ``item`` or None."""
    read, write = item
    return Shape(
        lambda tree: None if tree is None else read(tree), lambda value: None if value is None else write(value)
    )


def chosen(values: Mapping[Any, Any]) -> Shape:
    """The shape of an enumeration. ``values``: each text or integer in a tree, and the value that it stands for."""
    listed = ", ".join(map(repr, values))
    kinds = {type(tree) for tree in values}
    # Keyed by type too, because 1, True and 1.0 are equal.
    written = {(type(value), value): tree for tree, value in values.items()}

    def read(tree: Any) -> Any:
        if type(tree) not in kinds or tree not in values:
            raise Misfit(f"is {shown(tree)}, not one of {listed}")
        return values[tree]

    def write(value: Any) -> Any:
        try:
            return written[type(value), value]
        except (KeyError, TypeError):  # TypeError: the value is not hashable.
            raise Misfit(f"is {shown(value)}, not one of {listed}") from None

    return Shape(read, write)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise Misfit(f"is {shown(value)}, not text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Misfit(f"is {shown(value)}, which holds half a character (a lone surrogate)") from None
    return value


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise Misfit(f"is {shown(value)}, not an integer")
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise Misfit(f"is {shown(value)}, not from -2^64 to 2^64-1")
    return value


def _number(value: Any) -> float:
    # Integers are accepted, because other languages write 1.0 as 1.
    if type(value) not in (float, int):
        raise Misfit(f"is {shown(value)}, not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Misfit(f"is {shown(value)}, not a finite number")
    return number + 0.0  # Minus zero becomes zero: equal values must have equal bytes.


def _from_number(value: Any) -> float:
    number = _number(value)
    # JavaScript writes the shortest digits that give a float, padded with zeros: 2^67 becomes 147573952589676410000.
    # Other integers without an exact float are refused.
    if number != value and Decimal(repr(number)) != value:
        raise Misfit(f"is {shown(value)}, which no float holds exactly")
    return number


def _to_number(value: Any) -> float:
    number = _number(value)
    if number != value:
        raise Misfit(f"is {shown(value)}, which no float holds exactly")
    return number


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise Misfit(f"is {shown(value)}, not true or false")
    return value


def _bytes(value: Any) -> bytes:
    if type(value) is not bytes:
        raise Misfit(f"is {shown(value)}, not bytes")
    return value


def _from_base64(value: Any) -> bytes:
    text = _text(value)
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        data = b""
    # Only the canonical form: releases of Python differ in what else they accept.
    if base64.b64encode(data).decode() != text:
        raise Misfit(f"is {shown(value)}, not base64 text")
    return data


TEXT: Final = Shape(_text, _text)
INTEGER: Final = Shape(_integer, _integer)
NUMBER: Final = Shape(_from_number, _to_number)
TRUTH: Final = Shape(_truth, _truth)
BYTES: Final = Shape(_bytes, _bytes)
BASE64: Final = Shape(_from_base64, lambda value: base64.b64encode(_bytes(value)).decode())


def _listed(keys: Iterable[str]) -> str:
    return some_of(sorted(map(shown, keys)), _KEYS_SHOWN_MAX)
