"""Values as people and scripts read them: decoded by the codecs that a handler itself used at an address, else as hex.

So a family declares nothing for it. No store, no judging.
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
"""What a codec may raise for bytes that are not its own, and what careless ones raise."""


@dataclass(frozen=True, slots=True)
class Value:
    """What an address holds: its size, its beginning in hex, and what a codec made of it (None where none fits).

    ``decoded`` is of the types that JSON knows, or text.
    """

    size_bytes: int
    hex: str
    decoded: Any = None

    def __str__(self) -> str:
        if self.decoded is not None:
            return _cut(repr(self.decoded))
        return f"{self.hex}{'…' if self.size_bytes * 2 > len(self.hex) else ''} ({self.size_bytes} bytes)"


class _Recording:
    """Keeps which codecs were used at which address; to stand before a Context."""

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
    """A Context that keeps which codecs were used."""


class RecordingMigrationContext(_Recording, MigrationContext):
    """A MigrationContext that keeps which codecs were used."""

    def leaves(self, codec: Codec[Any] | None = None) -> Iterator[Any]:
        """See ``MigrationContext``."""
        for entry in super().leaves(codec):  # type: ignore[arg-type]
            self._used((entry[0],), codec)
            yield entry


def codecs_of(context: Context | None) -> Mapping[str, Sequence[Codec[Any]]]:
    """The codecs that were used at each address, in the order of their first use."""
    return context.codecs if isinstance(context, _Recording) else {}


def shown(data: bytes | None, address: str, codecs: Mapping[str, Sequence[Codec[Any]]]) -> Value | None:
    """``data`` as the codecs used at ``address`` read it, or else those used elsewhere; None where nothing was held."""
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
    """``value`` in the types that JSON knows, bounded; text where it is something else, or long."""
    try:
        # There and back: what is shown must not depend on whether it was kept in a file meanwhile.
        plain = msgspec.json.decode(msgspec.json.encode(value, enc_hook=repr))
    except _MISFITS:
        plain = repr(value)
    text = repr(plain)
    return plain if len(text) <= DECODED_CHARACTERS_SHOWN_MAX else _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= DECODED_CHARACTERS_SHOWN_MAX else f"{text[:DECODED_CHARACTERS_SHOWN_MAX]}…"
