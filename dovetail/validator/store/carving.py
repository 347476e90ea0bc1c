"""Finds records in a file's bytes by key and checksum alone, for when the pages that lead to them are damaged.

A record follows its key in a page or, if large, begins pages of its own. It ends where its checksum matches. A found
record may belong to an unfinished write, so callers check it against ids, signatures and roots. No LMDB here.
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
"""The length field before a key that is a number."""

LARGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""The largest record on pages of its own that is searched for."""


class Carver:
    """Raises OSError and ValueError if the file cannot be read at all."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def close(self) -> None:
        self._data.close()

    def records(self, table: str, name: bytes, beginning: bytes) -> Iterator[bytes]:
        """The distinct contents found for a key of a table that begin with ``beginning``."""
        seen = set()
        for at, most in (*self._after_key(name, beginning), *self._large(beginning)):
            content = self._up_to_checksum(table, name, at, most)
            if content is not None and content not in seen and content.startswith(beginning):
                seen.add(content)
                yield content

    def _after_key(self, name: bytes, beginning: bytes) -> Iterator[tuple[int, int]]:
        """Offsets at which a content may begin after its key, each with the largest possible length."""
        # Zeros are everywhere, so number 0 is searched for with its length field.
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

    def _up_to_checksum(self, table: str, name: bytes, start: int, most: int) -> bytes | None:
        """The bytes from ``start`` up to their own checksum; None if no checksum matches."""
        data = self._data[start : start + most]
        checksum = checksum_of(table, name, b"")
        for end in range(len(data) - SEAL_BYTES + 1):
            if int.from_bytes(data[end : end + SEAL_BYTES], "big") == checksum:
                return data[:end]
            checksum = zlib.crc32(data[end : end + 1], checksum)
        return None
