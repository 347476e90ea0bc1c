"""JSON (RFC 8259): the bytes. How values become typed ones is in ``processor_sdk.codecs.shapes``."""

import json
import re
from collections.abc import Iterable
from typing import Any, Final, Generic, NoReturn, TypeVar

from ledger.errors import NotDecodable
from processor_sdk.codecs.shapes import DEPTH_MAX, Misfit, shape_of, shown

T = TypeVar("T")

_TEXT_OR_BRACKET: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]', re.DOTALL)
_INTEGER_DIGITS_MAX: Final = 21
"""Characters of the longest integer that can fit: a sign and the 20 digits of 2^64-1."""


class JsonCodec(Generic[T]):
    """A dataclass as a JSON object, ``bytes`` as base64 text. Strict: UTF-8, each key once, no NaN, no unknown key."""

    def __init__(self, kind: type[T]) -> None:
        """``kind``: a dataclass, or a type that its fields may have (``processor_sdk.codecs.shapes``).

        Raises TypeError, naming the field, where that cannot be carried.
        """
        self._shape = shape_of(kind, bytes_as_text=True)

    def decode(self, data: bytes) -> T:
        """The value in ``data``. Raises NotDecodable that names the field."""
        try:
            text = data.decode()
            _check_depth(text)
            tree = json.loads(text, object_pairs_hook=_object, parse_int=_integer, parse_constant=_refuse_constant)
            value: T = self._shape.read(tree)
        except UnicodeDecodeError as error:
            raise NotDecodable(f"byte {error.start} is not UTF-8") from None
        except json.JSONDecodeError as error:
            raise NotDecodable(f"not JSON: {error.msg} at character {error.pos}") from None
        except Misfit as misfit:
            raise NotDecodable(str(misfit)) from None
        return value

    def encode(self, value: T) -> bytes:
        """Without spaces, keys in order. Raises ValueError that names the field."""
        tree = self._shape.write(value)
        return json.dumps(tree, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode()


def _object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise Misfit(f"the key {shown(key)} stands there twice")
        members[key] = value
    return members


def _integer(digits: str) -> int:
    # The interpreter's own bound on digits can be set from outside, and no verdict may depend on that.
    if len(digits) > _INTEGER_DIGITS_MAX:
        raise Misfit(f"it holds an integer of {len(digits)} characters, at most {_INTEGER_DIGITS_MAX} can fit")
    return int(digits)


def _refuse_constant(name: str) -> NoReturn:
    raise Misfit(f"it holds {name}, which is no JSON")


def _check_depth(text: str) -> None:
    # Before parsing: how deep the interpreter itself would follow depends on its settings, up to an overflow of its
    # stack. A text is skipped as a whole, and what is behind one that does not end is refused by the parser.
    if text.count("{") + text.count("[") <= DEPTH_MAX:
        return
    depth = 0
    for token in _TEXT_OR_BRACKET.finditer(text):
        if text[token.start()] in "{[":
            depth += 1
            if depth > DEPTH_MAX:
                raise Misfit(f"it nests deeper than {DEPTH_MAX} levels")
        elif text[token.start()] in "]}":
            depth -= 1
