"""A payload type with a field of every supported type, and its codecs."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from processor_sdk.codecs import CborCodec, Codec, JsonCodec, ProtobufCodec, RawCodec
from protos import transaction_receipt_pb2


class Colour(Enum):
    RED = "red"
    GREEN = 2


@dataclass(frozen=True)
class Part:
    label: str
    data: bytes = b""


@dataclass(frozen=True)
class Payload:
    """A field of every supported type."""

    text: str
    number: int
    ratio: float = 0.0
    flag: bool = False
    colour: Colour = Colour.RED
    verb: Literal["set", "inc", 3] = "set"
    parts: tuple[Part, ...] = ()
    names: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    maybe: Part | None = field(default=None, metadata={"key": "may be"})


CODECS: dict[str, Codec[Any]] = {
    "application/cbor": CborCodec(Payload),
    "application/json": JsonCodec(Payload),
    "application/protobuf": ProtobufCodec(transaction_receipt_pb2.TransactionReceipt),
    "application/octet-stream": RawCodec(),
}
