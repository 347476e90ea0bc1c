"""What a codec is. The codecs themselves are beside this module."""

from typing import Protocol, TypeVar

T = TypeVar("T")


class Codec(Protocol[T]):
    """Bytes to a value and back. The same on every node and every machine, whatever the library beneath is.

    ``decode(encode(value)) == value``, and equal values make equal bytes: state roots depend on it.
    """

    def decode(self, data: bytes) -> T:
        """The value of ``data``. Raises NotDecodable (or ValueError) that names the field and what is wrong with it.

        Any other exception, of ``encode`` too, is a bug and no verdict: the transaction is tried again.
        """

    def encode(self, value: T) -> bytes:
        """The bytes of ``value``, the same for equal values. Raises ValueError where it does not fit."""
