"""Payloads that are their own encoding."""


class RawCodec:
    """Bytes as they are, for a family that reads its payload itself."""

    kind = bytes

    def decode(self, data: bytes) -> bytes:
        """``data`` itself."""
        return data

    def encode(self, value: bytes) -> bytes:
        """``value`` itself. Raises ValueError where it is not bytes."""
        if not isinstance(value, bytes):
            raise ValueError(f"the value is {type(value).__name__}, not bytes")
        return value
