"""What a fuzz target is, and how bytes become what it wants.

What lives here: the form that hypothesis, atheris and the kept corpus drive. What must not: any target.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

LENGTH_BYTES = 2


class Target:
    """One door of the node that takes bytes from outside. ``folder``: its own, for what it needs on disk."""

    name: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        """Make what lives for all inputs; nothing by default."""

    def seeds(self) -> Iterable[bytes]:
        """Inputs that are right, or nearly: where mutation begins."""
        raise NotImplementedError

    def run(self, data: bytes) -> None:
        """Take one input. Whatever is raised, beside a documented refusal, which is caught here, is a bug."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what was made."""


class Input:
    """Reads fields from the front of an input; what is not there reads as zeros, so that any bytes are an input."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_over(self) -> bool:
        return self._at >= len(self._data)

    def byte(self) -> int:
        taken = self._take(1)
        return taken[0] if taken else 0

    def number(self) -> int:
        """Two bytes."""
        return int.from_bytes(self._take(LENGTH_BYTES), "big")

    def chunk(self) -> bytes:
        """Bytes behind their length."""
        return self._take(self.number())

    def rest(self) -> bytes:
        return self._take(len(self._data))

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        self._at += count
        return taken


def chunk(content: bytes) -> bytes:
    """What ``Input.chunk`` reads as ``content``."""
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


def text_of(data: bytes) -> str:
    """Any bytes as a text that UTF-8 can hold."""
    return data.decode(errors="replace")
