"""One bound over what all connections of an API hold together: bodies that are being read, answers not yet taken.

What a single body or page may hold is a limit of its own, checked where it is read or made. No HTTP, no sockets.
"""

from dovetail.rest_api.errors import ApiError, Problem


class Account:
    """Bytes that are held now. ``holds`` says what they are, in the words of a refusal."""

    def __init__(self, holds: str, bytes_max: int) -> None:
        self._holds = holds
        self._bytes_max = bytes_max
        self.bytes_held = 0

    def take(self, size: int, *, own: int = 0) -> None:
        """Hold ``size`` bytes more, until they are given back. Raises ApiError 15 when that would be over the bound.

        Alone, anything may be held: what passed its own limit must pass here at some time. ``own``: how much of what
        is held the same taker holds already.
        """
        if size and self.bytes_held > own and self.bytes_held + size > self._bytes_max:
            raise ApiError(
                Problem.NOT_READY,
                f"this REST API holds {self.bytes_held} bytes of {self._holds} already; with {size} more they would be"
                f" over its limit of {self._bytes_max}",
            )
        self.bytes_held += size

    def give_back(self, size: int) -> None:
        """Hold ``size`` bytes less."""
        self.bytes_held -= size
