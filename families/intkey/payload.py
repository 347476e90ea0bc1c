"""The bytes of the intkey family: payloads and leaves, both small CBOR maps. No rules, no state access.

Encoding is cbor2's. Decoding is written out here, because a verdict must be the same on every node whatever version of
a library it runs, and because these few forms are all that is valid: a definite or indefinite map of text strings to
text strings and unsigned integers, every key once, nothing behind it. So it cannot recurse, whatever it is given.
"""

from typing import Final, NamedTuple

import cbor2

FAMILY_NAME: Final = "intkey"
FAMILY_VERSION: Final = "1.0"
PAYLOAD_ENCODING: Final = "application/cbor"

VERBS: Final = ("set", "inc", "dec")
NAME_CHARACTERS_MAX: Final = 20
VALUE_MAX: Final = 2**32 - 1

_UNSIGNED: Final = 0
_TEXT: Final = 3
_MAP: Final = 5
_MAJOR_TYPES: Final = (
    "an unsigned integer", "a negative integer", "a byte string", "a text string", "an array", "a map", "a tagged item",
    "a float or simple value",
)  # fmt: skip
_INDEFINITE: Final = 31
_BREAK: Final = 0xFF


class Malformed(ValueError):
    """The bytes or values are no intkey payload, or no intkey leaf; the message says what is wrong."""


class IntkeyPayload(NamedTuple):
    """``verb``: set, inc or dec; ``name``: 1 to 20 characters; ``value``: 0 to 2^32-1."""

    verb: str
    name: str
    value: int


def decode_payload(data: bytes) -> IntkeyPayload:
    """The payload of a transaction: exactly Verb, Name and Value (WIRE.md, Families). Raises Malformed."""
    fields = _decode_map(data, "the payload")
    if fields.keys() != {"Verb", "Name", "Value"}:
        names = ", ".join(sorted(fields))
        raise Malformed(f"the payload holds the keys [{names[:200]}], not exactly Verb, Name and Value")
    return check(fields["Verb"], fields["Name"], fields["Value"])


def encode_payload(payload: IntkeyPayload) -> bytes:
    """The CBOR of a payload. Raises Malformed."""
    verb, name, value = check(*payload)
    encoded: bytes = cbor2.dumps({"Verb": verb, "Name": name, "Value": value}, canonical=True)
    return encoded


def check(verb: object, name: object, value: object) -> IntkeyPayload:
    """The three values as a payload. Raises Malformed where one is not what it must be."""
    if not isinstance(verb, str) or verb not in VERBS:
        raise Malformed(f"Verb is {_shown(verb)}, not one of {', '.join(VERBS)}")
    if not isinstance(name, str):
        raise Malformed(f"Name is {_shown(name)}, not a text string")
    if not 1 <= len(name) <= NAME_CHARACTERS_MAX:
        raise Malformed(f"Name has {len(name)} characters, not 1 to {NAME_CHARACTERS_MAX}")
    if not isinstance(value, int) or isinstance(value, bool):
        raise Malformed(f"Value is {_shown(value)}, not an integer")
    if not 0 <= value <= VALUE_MAX:
        raise Malformed(f"Value is {_shown(value)}, not from 0 to {VALUE_MAX}")
    return IntkeyPayload(verb, name, value)


def decode_leaf(data: bytes) -> dict[str, int]:
    """The names stored at one address and their values. Raises Malformed."""
    leaf = {}
    for name, value in _decode_map(data, "the leaf").items():
        if not isinstance(value, int) or value > VALUE_MAX:
            raise Malformed(f"the leaf holds {_shown(value)} for the name {name[:NAME_CHARACTERS_MAX]!r}")
        leaf[name] = value
    return leaf


def encode_leaf(leaf: dict[str, int]) -> bytes:
    """Deterministic CBOR: equal leaves are equal bytes on every node."""
    encoded: bytes = cbor2.dumps(leaf, canonical=True)
    return encoded


def _shown(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)[:40]


def _decode_map(data: bytes, what: str) -> dict[str, str | int]:
    reader = _Reader(data, what)
    pairs = reader.map_length()
    entries: dict[str, str | int] = {}
    while reader.more(pairs, len(entries)):
        key = reader.item()
        if not isinstance(key, str):
            raise Malformed(f"{what} has the key {_shown(key)}, not a text string")
        if key in entries:
            raise Malformed(f"{what} holds the key {_shown(key)} twice")
        entries[key] = reader.item()
    if reader.position != len(data):
        raise Malformed(f"{what} goes on for {len(data) - reader.position} bytes behind its map")
    return entries


class _Reader:
    """Walks over one map; every step forward is checked against the end."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self.position = 0

    def map_length(self) -> int | None:
        """How many entries the map announces; None for an indefinite one."""
        major, length = self._head()
        if major != _MAP:
            raise Malformed(f"{self._what} is {_MAJOR_TYPES[major]}, not a map")
        return length

    def more(self, pairs: int | None, read: int) -> bool:
        """Whether another entry follows the ``read`` ones."""
        if pairs is not None:
            return read < pairs
        if self._take(1)[0] != _BREAK:
            self.position -= 1
            return True
        return False

    def item(self) -> str | int:
        """A text string or an unsigned integer."""
        start = self.position
        major, argument = self._head()
        if argument is None or major not in (_UNSIGNED, _TEXT):
            kind = f"{_MAJOR_TYPES[major]}{' of indefinite length' if argument is None else ''}"
            raise Malformed(
                f"{self._what} holds {kind} at byte {start}; only text strings and unsigned integers may be there"
            )
        if major == _UNSIGNED:
            return argument
        try:
            return self._take(argument).decode()
        except UnicodeDecodeError:
            raise Malformed(f"{self._what} holds a text string at byte {start} that is not UTF-8") from None

    def _head(self) -> tuple[int, int | None]:
        start = self.position
        initial = self._take(1)[0]
        major, low = initial >> 5, initial & 31
        if low < 24:
            return major, low
        if low == _INDEFINITE:
            return major, None
        if low > 27:
            raise Malformed(f"{self._what} is not CBOR: byte {start} is {initial:#04x}")
        return major, int.from_bytes(self._take(1 << (low - 24)), "big")

    def _take(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self._data):
            raise Malformed(f"{self._what} ends after {len(self._data)} bytes, in the middle of its map")
        taken = self._data[self.position : end]
        self.position = end
        return taken
