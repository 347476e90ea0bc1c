"""A quota for the bytes that all connections hold together: request bodies, and answers that clients have not read.

The limits of a single body or page are checked elsewhere, where it is read or made.
"""

from dovetail.rest_api.errors import ApiError, Problem


class ByteQuota:
    """Counts the bytes that are held now. ``content`` names them in error messages."""

    def __init__(self, content: str, bytes_max: int) -> None:
        self._content = content
        self._bytes_max = bytes_max
        self.bytes_held = 0

    def reserve(self, size: int, *, own: int = 0) -> None:
        """Add ``size`` bytes. Raises ApiError 15 if the sum exceeds the quota and another holder has reserved bytes.

        A single holder may exceed the quota: its body or answer has passed a limit of its own, and would otherwise
        always be refused here. ``own``: the bytes that this holder has reserved already.
        """
        if size and self.bytes_held > own and self.bytes_held + size > self._bytes_max:
            raise ApiError(
                Problem.NOT_READY,
                f"this REST API holds {self.bytes_held} bytes of {self._content} already; with {size} more they would"
                f" be over its limit of {self._bytes_max}",
            )
        self.bytes_held += size

    def release(self, size: int) -> None:
        """Subtract ``size`` bytes."""
        self.bytes_held -= size
