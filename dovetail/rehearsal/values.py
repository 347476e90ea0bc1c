"""Values for people and scripts: decoded by the codecs that the handler used, or else in hex.

A family need not declare anything for this decoding. No store, no handlers.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dovetail.ledger.errors import NotDecodable
from processor_sdk.codecs import Codec
from processor_sdk.context import Context
from processor_sdk.migration import MigrationContext

HEX_BYTES_SHOWN_MAX: Final = 64
DECODED_CHARACTERS_SHOWN_MAX: Final = 400
_MISFITS: Final = (NotDecodable, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""The exceptions of codecs for bytes that do not fit, including those of careless codecs."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value: its size, its first bytes in hex, and its decoded form (None if no codec fits).

    ``decoded``: of JSON's types, or text.
    """

    size_bytes: int
    hex: str
    decoded: Any = None

    def __str__(self) -> str:
        if self.decoded is not None:
            return _cut(repr(self.decoded))
        return f"{self.hex}{'…' if self.size_bytes * 2 > len(self.hex) else ''} ({self.size_bytes} bytes)"


class _Recording:
    """Records the codecs that are used at each address; a mixin before a Context."""

    codecs: dict[str, list[Codec[Any]]]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.codecs = defaultdict(list)

    def _used(self, addresses: Iterable[str], codec: Codec[Any] | None) -> None:
        if codec is not None:
            for address in addresses:
                if codec not in self.codecs[address]:
                    self.codecs[address].append(codec)

    def get(self, address: str, codec: Codec[Any] | None = None) -> Any:
        self._used((address,), codec)
        return super().get(address, codec)  # type: ignore[misc]

    def get_many(self, addresses: Iterable[str], codec: Codec[Any] | None = None) -> Any:
        wanted = addresses if isinstance(addresses, str) else tuple(addresses)
        self._used(wanted, codec)
        return super().get_many(wanted, codec)  # type: ignore[misc]

    def set(self, address: str, value: Any, codec: Codec[Any] | None = None) -> None:
        self._used((address,), codec)
        super().set(address, value, codec)  # type: ignore[misc]

    def set_many(self, entries: Mapping[str, Any], codec: Codec[Any] | None = None) -> None:
        self._used(entries, codec)
        super().set_many(entries, codec)  # type: ignore[misc]

    def list(self, prefix: str, codec: Codec[Any] | None = None) -> Iterator[Any]:
        for entry in super().list(prefix, codec):  # type: ignore[misc]
            self._used((entry[0],), codec)
            yield entry


class RecordingContext(_Recording, Context):
    """A Context that records the used codecs."""


class RecordingMigrationContext(_Recording, MigrationContext):
    """A MigrationContext that records the used codecs."""

    def leaves(self, codec: Codec[Any] | None = None) -> Iterator[Any]:
        for entry in super().leaves(codec):  # type: ignore[arg-type]
            self._used((entry[0],), codec)
            yield entry


def codecs_of(context: Context | None) -> Mapping[str, Sequence[Codec[Any]]]:
    """The codecs used at each address, in the order of their first use."""
    return context.codecs if isinstance(context, _Recording) else {}


def shown(data: bytes | None, address: str, codecs: Mapping[str, Sequence[Codec[Any]]]) -> Value | None:
    """``data``, decoded by a codec used at ``address`` or else elsewhere. None without data."""
    if data is None:
        return None
    here = codecs.get(address) or [codec for used in codecs.values() for codec in used]
    for codec in here:
        try:
            decoded = _plain(codec.decode(data))
        except _MISFITS:
            continue
        return Value(len(data), data[:HEX_BYTES_SHOWN_MAX].hex(), decoded)
    return Value(len(data), data[:HEX_BYTES_SHOWN_MAX].hex())


def _plain(value: object) -> Any:
    """``value`` in JSON's types; text if it has other types or is long."""
    try:
        # Encoded and decoded, so that values look the same before and after they were kept in a file.
        plain = msgspec.json.decode(msgspec.json.encode(value, enc_hook=repr))
    except _MISFITS:
        plain = repr(value)
    text = repr(plain)
    return plain if len(text) <= DECODED_CHARACTERS_SHOWN_MAX else _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= DECODED_CHARACTERS_SHOWN_MAX else f"{text[:DECODED_CHARACTERS_SHOWN_MAX]}…"
