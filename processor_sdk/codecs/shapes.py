"""Between typed values and the plain trees that JSON and CBOR carry, for the types that both can carry.

Those are: str, int (-2^64 to 2^64-1), float (finite), bool, bytes, ``T | None``, ``list[T]``, ``tuple[T, ...]``,
``dict[str, T]``, Literal, Enum (by value) and dataclasses of them. A dataclass is a map from its fields' names, or from
``field(metadata={"key": …})``, to their values; a field with a default may be missing. What a value must be beyond its
type, a dataclass checks in ``__post_init__`` by raising ValueError. No bytes here: those are the codecs'.
"""

import base64
import binascii
import dataclasses
import enum
import math
import types
import typing
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, Union

DEPTH_MAX: Final = 32
"""Levels of maps and lists within each other."""

INTEGER_MIN: Final = -(2**64)
INTEGER_MAX: Final = 2**64 - 1

_KEYS_SHOWN_MAX: Final = 8


class Misfit(ValueError):
    """A value that does not fit; ``str()`` of it names the field, outermost first, and what is wrong."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = ""

    def within(self, step: str) -> "Misfit":
        """The same, seen from one level further out; ``step``: a key, or ``[n]``."""
        dot = "." if self.path and not self.path.startswith("[") else ""
        self.path = f"{step}{dot}{self.path}"
        return self

    def __str__(self) -> str:
        return f"{self.path} {self.reason}" if self.path else self.reason


class Shape(NamedTuple):
    """How one type is read from a tree and written to one. Both raise Misfit."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


def shape_of(kind: Any, *, bytes_as_text: bool) -> Shape:
    """How ``kind`` is carried. Raises TypeError, naming the field, where it cannot be."""
    return _Maker(bytes_as_text).shape(kind, getattr(kind, "__name__", str(kind)))


def shown(value: object) -> str:
    """A value for a message: short, whatever it is."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, dict | list):
        return f"a {'map' if isinstance(value, dict) else 'list'} of {len(value)}"
    if isinstance(value, str | bytes) and len(value) > 40:
        return f"{value[:40]!r}… ({len(value)} {'characters' if isinstance(value, str) else 'bytes'})"
    return repr(value)[:80]


class _Maker:
    def __init__(self, bytes_as_text: bool) -> None:
        self._bytes = _BASE64 if bytes_as_text else _BYTES
        self._inside: list[type] = []

    def shape(self, kind: Any, where: str) -> Shape:
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if kind is bytes:
            return self._bytes
        if isinstance(kind, type) and kind in _SCALARS:
            return _SCALARS[kind]
        if origin is Literal:
            return _chosen(arguments, dict(zip(arguments, arguments, strict=True)))
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return _chosen(tuple(member.value for member in kind), {member.value: member for member in kind})
        if origin in (Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
            (other,) = (argument for argument in arguments if argument is not type(None))
            return _optional(self.shape(other, where))
        if origin is list:
            return _sequence(self.shape(arguments[0], f"{where}[]"), list)
        if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
            return _sequence(self.shape(arguments[0], f"{where}[]"), tuple)
        if origin is dict and arguments[0] is str:
            return _mapping(self.shape(arguments[1], f"{where}[]"))
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            return self._dataclass(kind, where)
        raise TypeError(
            f"{where} is {kind!r}, which cannot be carried: str, int, float, bool, bytes, T | None, list[T],"
            f" tuple[T, ...], dict[str, T], Literal, Enum and dataclasses can"
        )

    def _dataclass(self, kind: type, where: str) -> Shape:
        if kind in self._inside:
            raise TypeError(f"{where} is {kind.__name__} inside of itself, which cannot be carried")
        try:
            hints = typing.get_type_hints(kind)
        except NameError as error:
            raise TypeError(f"the types of {kind.__name__}'s fields are not known: {error}") from None
        self._inside.append(kind)
        members = []
        for field in dataclasses.fields(kind):
            if field.init:
                key = field.metadata.get("key", field.name)
                required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
                shape = self.shape(hints[field.name], f"{where}.{field.name}")
                members.append(_Member(field.name, key, required, shape.read, shape.write))
        self._inside.pop()
        if len({member.key for member in members}) != len(members):
            raise TypeError(f"two fields of {kind.__name__} have the same key")
        return _record(kind, members)


class _Member(NamedTuple):
    name: str
    key: str
    required: bool
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


def _record(kind: type, members: list[_Member]) -> Shape:
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


def _sequence(item: Shape, made: type[list[Any]] | type[tuple[Any, ...]]) -> Shape:
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


def _mapping(item: Shape) -> Shape:
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


def _optional(item: Shape) -> Shape:
    read, write = item
    return Shape(
        lambda tree: None if tree is None else read(tree), lambda value: None if value is None else write(value)
    )


def _chosen(trees: tuple[Any, ...], values: dict[Any, Any]) -> Shape:
    """One of a few: ``trees`` as they are carried, ``values`` what each of them means."""
    listed = ", ".join(map(repr, trees))
    if not all(type(tree) in (str, int) for tree in trees):
        raise TypeError(f"one of {listed} is neither text nor an integer, which cannot be carried")
    kinds = {type(tree) for tree in trees}
    written = {value: tree for tree, value in values.items()}

    def read(tree: Any) -> Any:
        if type(tree) not in kinds or tree not in values:
            raise Misfit(f"is {shown(tree)}, not one of {listed}")
        return values[tree]

    def write(value: Any) -> Any:
        try:
            return written[value]
        except (KeyError, TypeError):  # TypeError: it cannot even be looked for.
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
    # An integer, too: other languages write 1.0 as 1.
    if type(value) not in (float, int):
        raise Misfit(f"is {shown(value)}, not a number")
    number = float(_integer(value)) if type(value) is int else value
    if not math.isfinite(number):
        raise Misfit(f"is {number!r}, not a finite number")
    return number + 0.0  # Minus zero equals zero, and equal values must make equal bytes.


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise Misfit(f"is {shown(value)}, not true or false")
    return value


def _bytes(value: Any) -> bytes:
    if type(value) is not bytes:
        raise Misfit(f"is {shown(value)}, not bytes")
    return value


def _from_base64(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except (binascii.Error, ValueError) as error:
        if isinstance(error, Misfit):
            raise
        raise Misfit(f"is {shown(value)}, not base64 text") from None


_SCALARS: Final = {
    str: Shape(_text, _text),
    int: Shape(_integer, _integer),
    float: Shape(_number, _number),
    bool: Shape(_truth, _truth),
}
_BYTES: Final = Shape(_bytes, _bytes)
_BASE64: Final = Shape(_from_base64, lambda value: base64.b64encode(_bytes(value)).decode())


def _listed(keys: typing.Iterable[str]) -> str:
    ordered = sorted(map(shown, keys))
    more = len(ordered) - _KEYS_SHOWN_MAX
    return ", ".join(ordered[:_KEYS_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
