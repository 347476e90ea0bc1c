"""The protocol of codecs."""

from typing import Protocol, TypeVar

T = TypeVar("T")


class Codec(Protocol[T]):
    """Converts bytes to a value and back. The result must be the same on every node, whatever libraries it has.

    ``decode(encode(value)) == value``, and equal values have equal bytes, because state roots depend on them.
    """

    def decode(self, data: bytes) -> T:
        """The value of ``data``. Raises NotDecodable (or ValueError) that names the field and its fault.

        Any other exception, here or in ``encode``, is a bug and no verdict: the validator tries again.
        """

    def encode(self, value: T) -> bytes:
        """The bytes of ``value``, equal for equal values. Raises ValueError if the value does not fit."""
