"""The codec for families that read their payload bytes themselves."""


class RawCodec:
    """Bytes, unchanged."""

    kind = bytes

    def decode(self, data: bytes) -> bytes:
        """``data`` itself."""
        return data

    def encode(self, value: bytes) -> bytes:
        """``value`` itself. Raises ValueError if it is not bytes."""
        if not isinstance(value, bytes):
            raise ValueError(f"the value is {type(value).__name__}, not bytes")
        return value
