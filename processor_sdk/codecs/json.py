"""The JSON codec (RFC 8259): bytes to plain trees and back. ``shapes`` and ``trees`` make typed values of the trees."""

import json
import re
from collections.abc import Iterable
from typing import Any, Final, Generic, NoReturn, TypeVar

from dovetail.ledger.errors import NotDecodable
from processor_sdk.codecs.shapes import shape_of
from processor_sdk.codecs.trees import DEPTH_MAX, ITEMS_MAX, Misfit, check_items, shown, too_deep, too_many_items

T = TypeVar("T")

_TEXT: Final = r'"[^"\\]*(?:\\.[^"\\]*)*"?'
_TEXT_OR_BRACKET: Final = re.compile(rf"{_TEXT}|[\[\]{{}}]", re.DOTALL)
_ITEM_OR_END: Final = re.compile(rf"{_TEXT}|[\[\]{{}}]|[^\s,:\[\]{{}}\"]+", re.DOTALL)
_INTEGER_CHARACTERS_MAX: Final = 22
"""A sign and 21 digits: JavaScript writes floats below 1e21 this way; supported integers are shorter."""


class JsonCodec(Generic[T]):
    """A dataclass as a JSON object, ``bytes`` as base64 text. Strict: UTF-8, each key once, no NaN, no unknown key."""

    def __init__(self, kind: type[T]) -> None:
        """``kind``: a dataclass, or a type that its fields may have (``processor_sdk.codecs.shapes``).

        Raises TypeError that names the field if the type is not supported.
        """
        self.kind = kind
        self._shape = shape_of(kind, bytes_as_text=True)

    def decode(self, data: bytes) -> T:
        """The value in ``data``. Raises NotDecodable that names the field."""
        try:
            text = data.decode()
            _check_extent(text)
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
        """The bytes without spaces and with ordered keys. Raises ValueError that names the field."""
        tree = self._shape.write(value)
        encoded = json.dumps(tree, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
        check_items(tree, encoded)
        return encoded


def _object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise Misfit(f"the key {shown(key)} stands there twice")
        members[key] = value
    return members


def _integer(digits: str) -> int:
    # The interpreter's bound on digits depends on its environment, and no verdict may depend on that.
    if len(digits) > _INTEGER_CHARACTERS_MAX:
        raise Misfit(f"it holds an integer of {len(digits)} characters, at most {_INTEGER_CHARACTERS_MAX} can fit")
    return int(digits)


def _refuse_constant(name: str) -> NoReturn:
    raise Misfit(f"it holds {name}, which is no JSON")


def _check_extent(text: str) -> None:
    # Checked before parsing: the parser's own depth limit depends on the interpreter's settings, and its objects take
    # many times the memory of the text. Strings are skipped. Malformed JSON may be counted wrongly, but the parser
    # refuses it.
    brackets = text.count("[") + text.count("{")
    # One outermost item, and at most one more after each of these characters.
    many = brackets + text.count(",") + text.count(":") >= ITEMS_MAX
    if brackets <= DEPTH_MAX and not many:
        return
    depth = items = 0
    for token in (_ITEM_OR_END if many else _TEXT_OR_BRACKET).finditer(text):
        first = text[token.start()]
        if first in "]}":
            depth -= 1
            if depth < 0:
                return
            continue
        items += 1
        if items > ITEMS_MAX:
            raise too_many_items()
        if first in "[{":
            depth += 1
            if depth > DEPTH_MAX:
                raise too_deep()
