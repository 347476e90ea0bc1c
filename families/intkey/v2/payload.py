"""The payloads of intkey 2.0: those of 1.0 with wider values, by default in JSON. The leaves are those of 1.0."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final

from families.intkey import payload as v1
from processor_sdk.codecs import CborCodec, Codec, JsonCodec

FAMILY_VERSION: Final = "2.0"
VALUE_MAX: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class IntkeyPayload(v1.IntkeyPayload):
    """As in 1.0, with a ``value`` of 0 to 2^64-1."""

    value_max: ClassVar[int] = VALUE_MAX


ENCODINGS: Final[Mapping[str, Codec[IntkeyPayload]]] = MappingProxyType(
    {"application/json": JsonCodec(IntkeyPayload), "application/cbor": CborCodec(IntkeyPayload)}
)
"""JSON is the default. CBOR is still accepted, so that a transaction of 1.0 that names CBOR means the same in 2.0."""
