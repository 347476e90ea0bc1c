"""Records found in a file's bytes by key and checksum alone, where the pages that lead to them are damaged.

A record lies behind its key in a page, or, if it is large, at the beginning of pages of its own. Where it ends is where
its checksum comes out right. What is found may be of a write that never ended: who uses it compares it with what covers
it. No LMDB here.
"""

import mmap
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dovetail.validator.store.records import SEAL_BYTES, checksum_of

_PAGE_BYTES: Final = 4096
_HEADER_BYTES: Final = 16
_KEY_BYTES: Final = b"\x08\x00"
"""What stands before a key that is a number: how long it is."""

LARGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of a record on pages of its own."""


class Carver:
    """Raises OSError and ValueError where the file cannot be read at all."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def close(self) -> None:
        self._data.close()

    def records(self, table: str, name: bytes, beginning: bytes) -> Iterator[bytes]:
        """The contents that can be found for a key of a table, and begin with ``beginning``; the same one once."""
        seen = set()
        for at, most in (*self._behind(name, beginning), *self._large(beginning)):
            content = self._ended(table, name, at, most)
            if content is not None and content not in seen and content.startswith(beginning):
                seen.add(content)
                yield content

    def _behind(self, name: bytes, beginning: bytes) -> Iterator[tuple[int, int]]:
        """Where a content may begin in a page, and how long it may be there."""
        # Zeros are everywhere: number 0 is looked for with what stands before it.
        before = b"" if any(name) else _KEY_BYTES
        for at in self._places(before + name + beginning):
            start = at + len(before) + len(name)
            yield start, _PAGE_BYTES - start % _PAGE_BYTES

    def _large(self, beginning: bytes) -> Iterator[tuple[int, int]]:
        if beginning:
            for at in self._places(beginning):
                if at % _PAGE_BYTES == _HEADER_BYTES:
                    yield at, LARGE_BYTES_MAX

    def _places(self, wanted: bytes) -> Iterator[int]:
        at = self._data.find(wanted)
        while at >= 0:
            yield at
            at = self._data.find(wanted, at + 1)

    def _ended(self, table: str, name: bytes, start: int, most: int) -> bytes | None:
        """What lies from ``start`` to where the checksum of all before it stands."""
        data = self._data[start : start + most]
        checksum = checksum_of(table, name, b"")
        for end in range(len(data) - SEAL_BYTES + 1):
            if int.from_bytes(data[end : end + SEAL_BYTES], "big") == checksum:
                return data[:end]
            checksum = zlib.crc32(data[end : end + 1], checksum)
        return None
