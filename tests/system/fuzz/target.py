"""The form of a fuzz target, and how it reads values from bytes.

hypothesis, atheris and the kept corpus provide the inputs. Targets do not belong here.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

LENGTH_BYTES = 2


class Target:
    """One place where the node reads bytes from outside. ``folder``: the target's own, for files."""

    name: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        """Prepare what all inputs share; nothing by default."""

    def seeds(self) -> Iterable[bytes]:
        """Valid or nearly valid inputs, from which mutation starts."""
        raise NotImplementedError

    def run(self, data: bytes) -> None:
        """Run one input. Documented refusals are caught here; any other exception is a bug."""
        raise NotImplementedError

    def close(self) -> None:
        """Close what was prepared."""


class Input:
    """Reads fields from the front of an input. Missing bytes read as zeros, so that any bytes are an input."""

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
        """A number of two bytes."""
        return int.from_bytes(self._take(LENGTH_BYTES), "big")

    def chunk(self) -> bytes:
        """Read a length, and then so many bytes."""
        return self._take(self.number())

    def rest(self) -> bytes:
        return self._take(len(self._data))

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        self._at += count
        return taken


def chunk(content: bytes) -> bytes:
    """The bytes that ``Input.chunk`` reads as ``content``."""
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


def text_of(data: bytes) -> str:
    """Make a text from any bytes. UTF-8 can encode the text."""
    return data.decode(errors="replace")
