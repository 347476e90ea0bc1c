"""Payloads that are protobuf messages."""

from typing import Generic, TypeVar

from google.protobuf.message import DecodeError, EncodeError, Message

from ledger.errors import NotDecodable

M = TypeVar("M", bound=Message)


class ProtobufCodec(Generic[M]):
    """Messages of one generated class, as in ``ProtobufCodec(my_family_pb2.Payload)``.

    Protobuf gives a field that is missing its default and an enum any number: what a family needs, it has to check.
    """

    def __init__(self, message_class: type[M]) -> None:
        if not (isinstance(message_class, type) and issubclass(message_class, Message)):
            raise TypeError(f"{message_class!r} is no generated message class")
        self._message_class = message_class

    def decode(self, data: bytes) -> M:
        """The message in ``data``. Raises NotDecodable."""
        try:
            return self._message_class.FromString(data)
        except DecodeError:
            name = self._message_class.DESCRIPTOR.name
            raise NotDecodable(f"{len(data)} bytes are no serialized {name}") from None

    def encode(self, value: M) -> bytes:
        """Its bytes, map entries in the order of their keys. Raises ValueError for another kind of message."""
        if not isinstance(value, self._message_class):
            raise ValueError(f"the value is {type(value).__name__}, not {self._message_class.DESCRIPTOR.name}")
        try:
            return value.SerializeToString(deterministic=True)
        except EncodeError as error:
            raise ValueError(str(error)) from None
