"""From a type to the shape of its values in JSON and CBOR, for the types that both support.

Supported: str, int (-2^64 to 2^64-1), float (finite), bool, bytes, ``T | None``, ``list[T]``, ``tuple[T, ...]``,
``dict[str, T]``, Literal, Enum (by value) and dataclasses of these. A dataclass is a map from its fields' names, or
from ``field(metadata={"key": …})``, to their values; a field with a default may be missing. A dataclass checks its
values in ``__post_init__`` by raising ValueError. A type that would break ``decode(encode(value)) == value`` is refused
when the codec is made. ``processor_sdk.codecs.trees`` reads and writes the values.
"""

import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any, Final, Literal, Union

from processor_sdk.codecs import trees
from processor_sdk.codecs.trees import DEPTH_MAX, Member, Misfit, Shape

_SCALARS: Final = {str: trees.TEXT, int: trees.INTEGER, float: trees.NUMBER, bool: trees.TRUTH}


def shape_of(kind: Any, *, bytes_as_text: bool) -> Shape:
    """The shape of ``kind``. Raises TypeError that names the field, or the class if its field types cannot be read."""
    return _Maker(bytes_as_text).shape(kind, getattr(kind, "__name__", str(kind)), 1)


class _Maker:
    def __init__(self, bytes_as_text: bool) -> None:
        self._bytes = trees.BASE64 if bytes_as_text else trees.BYTES
        self._inside: list[type] = []

    def shape(self, kind: Any, where: str, level: int) -> Shape:
        """``level``: the depth of a map or list in this place; 1 for the outermost."""
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if kind is bytes:
            return self._bytes
        if isinstance(kind, type) and kind in _SCALARS:
            return _SCALARS[kind]
        if origin is Literal:
            return _choice(where, kind, [(argument, argument) for argument in arguments])
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return _choice(where, kind, [(member.value, member) for member in kind])
        if origin in (Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
            (other,) = (argument for argument in arguments if argument is not type(None))
            return trees.optional(self.shape(other, where, level))
        if origin is list and len(arguments) == 1:
            return trees.sequence(self._inner(arguments[0], f"{where}[]", level), list)
        if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
            return trees.sequence(self._inner(arguments[0], f"{where}[]", level), tuple)
        if origin is dict and len(arguments) == 2 and arguments[0] is str:
            return trees.mapping(self._inner(arguments[1], f"{where}[]", level))
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            return self._dataclass(kind, where, level)
        raise TypeError(
            f"{where} is {kind!r}, which cannot be carried: str, int, float, bool, bytes, T | None, list[T],"
            f" tuple[T, ...], dict[str, T], Literal, Enum and dataclasses can"
        )

    def _inner(self, kind: Any, where: str, level: int) -> Shape:
        _check_level(where, level)
        return self.shape(kind, where, level + 1)

    def _dataclass(self, kind: type, where: str, level: int) -> Shape:
        if kind in self._inside:
            raise TypeError(f"{where} is {kind.__name__} inside of itself, which cannot be carried")
        _check_level(where, level)
        if kind.__eq__ is object.__eq__:  # type: ignore[comparison-overlap]
            raise TypeError(f"{where} is {kind.__name__}, a dataclass(eq=False): no two values of it would be equal")
        hints = _hints(kind, where)
        self._inside.append(kind)
        members: dict[str, Member] = {}
        for field in dataclasses.fields(kind):
            at = f"{where}.{field.name}"
            member = _member(field, at, self._inner(hints[field.name], at, level))
            if member.key in members:
                raise TypeError(f"{at} has the key {member.key!r}, as {members[member.key].name} has")
            members[member.key] = member
        self._inside.pop()
        _check_arguments(kind, where, {member.name for member in members.values()})
        return trees.record(kind, list(members.values()))


def _check_level(where: str, level: int) -> None:
    if level > DEPTH_MAX:
        raise TypeError(f"{where} needs {level} maps and lists within each other; at most {DEPTH_MAX} can be carried")


def _hints(kind: type, where: str) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except (NameError, SyntaxError, AttributeError, TypeError) as error:
        raise TypeError(f"{where}: the types of {kind.__name__}'s fields are not known: {error}") from None


def _member(field: "dataclasses.Field[Any]", where: str, shape: Shape) -> Member:
    if not field.init:
        raise TypeError(f"{where} is a field(init=False), whose value would be lost; a property can stand in its place")
    if not field.compare:
        raise TypeError(f"{where} is a field(compare=False): equal values would make different bytes")
    key = field.metadata.get("key", field.name)
    try:
        trees.TEXT.write(key)
    except Misfit as misfit:
        raise TypeError(f"the key of {misfit.within(where)}") from None
    required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    if not required:
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        try:
            shape.write(default)
        except Misfit as misfit:
            raise TypeError(f"the default of {misfit.within(where)}") from None
    return Member(field.name, key, required, shape.read, shape.write)


def _check_arguments(kind: type, where: str, names: set[str]) -> None:
    _, *arguments = inspect.signature(inspect.getattr_static(kind, "__init__")).parameters.values()
    by_name = {argument.name for argument in arguments if argument.kind is not argument.POSITIONAL_ONLY}
    for name in sorted(by_name - names):
        raise TypeError(
            f"{where}.{name} is an argument of {kind.__name__} and no field (an InitVar?): nothing carries it"
        )
    for name in sorted(names - by_name):
        raise TypeError(f"{where}.{name} is a field that {kind.__name__}.__init__ does not take by its name")


def _choice(where: str, kind: Any, values: list[tuple[Any, Any]]) -> Shape:
    if not values:
        raise TypeError(f"{where} is {kind!r}, which has no members")
    for tree, _ in values:
        if type(tree) not in (str, int):
            raise TypeError(f"{where} can be {tree!r}, neither text nor an integer, which cannot be carried")
        try:
            _SCALARS[type(tree)].write(tree)
        except Misfit as misfit:
            raise TypeError(f"one of the values of {misfit.within(where)}") from None
    return trees.chosen(dict(values))
