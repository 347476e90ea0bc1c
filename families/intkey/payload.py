"""The bytes of the intkey family: payloads in two encodings, leaves in one. No rules, no state access."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Final, Literal, TypeAlias

from processor_sdk.codecs import CborCodec, Codec, JsonCodec

FAMILY_NAME: Final = "intkey"
FAMILY_VERSION: Final = "1.0"

Verb: TypeAlias = Literal["set", "inc", "dec"]

NAME_CHARACTERS_MAX: Final = 20
VALUE_MAX: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class IntkeyPayload:
    """``value``: 0 to 2^32-1; ``name``: 1 to 20 characters (WIRE.md). Raises ValueError for others."""

    value_max: ClassVar[int] = VALUE_MAX
    """The largest value of a payload and of a name."""

    verb: Verb = field(metadata={"key": "Verb"})
    name: str = field(metadata={"key": "Name"})
    value: int = field(metadata={"key": "Value"})

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= NAME_CHARACTERS_MAX:
            raise ValueError(f"Name has {len(self.name)} characters, not 1 to {NAME_CHARACTERS_MAX}")
        if not 0 <= self.value <= self.value_max:
            raise ValueError(f"Value is {self.value}, not from 0 to {self.value_max}")


ENCODINGS: Final[Mapping[str, Codec[IntkeyPayload]]] = MappingProxyType(
    {"application/cbor": CborCodec(IntkeyPayload), "application/json": JsonCodec(IntkeyPayload)}
)
"""CBOR is first, because most 1.x clients send CBOR without a payload_encoding."""

LEAF: Final[Codec[dict[str, int]]] = CborCodec(dict[str, int])
"""The names at one address and their values; several names if their hashes collide."""
