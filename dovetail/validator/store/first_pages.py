"""A copy of a damaged store's file, mended so far that LMDB can open it: one cut short, or with damaged first pages.

No LMDB here.
"""

import os
import shutil
import struct
import sys
from pathlib import Path
from typing import BinaryIO, Final

from dovetail.validator.store.length import (
    COMMIT_AT,
    DATA,
    FIRST_PAGES,
    LACKING_BYTES_MAX,
    LAST_PAGE_AT,
    NO_PAGE,
    TABLES_ROOT_AT,
    lacking_bytes,
)
from dovetail.validator.store.records import TABLES

_FIRST_PAGES: Final = (
    (10, b"\x08\x00"),
    (16, b"\xde\xc0\xef\xbe\x01\x00\x00\x00"),
    (32, bytes(8)),
    (40, b"\x00\x10\x00\x00\x08\x00"),
    (88, bytes(6)),
)
"""What may stand in both first pages of every file of LMDB's 0.9 line, by its place there: that a page is one of the
two, the mark and version of the format, room for no more than there is, the size of pages, and what kind of keys the
list of free pages and the table of tables have."""
_PAGE_BYTES: Final = 4096
_CLAIMS_AT: Final = 16
_CLAIMS_BYTES: Final = 136
"""In a first page: all that it says of the file as of its commit."""


def lengthened(path: Path, scratch: Path) -> Path:
    """Copy a file that was cut short, and put zeros in the place of what is gone: LMDB would end the process there.

    Returns the folder. Raises OSError.
    """
    lacking = lacking_bytes(path)
    with _copied(path, scratch).open("r+b") as file:
        file_bytes = file.seek(0, os.SEEK_END)
        if lacking <= LACKING_BYTES_MAX:
            file.truncate(file_bytes + lacking)
        else:
            # No file is cut so short: what it says is what is damaged.
            for page in range(FIRST_PAGES):
                file.seek(page * _PAGE_BYTES + LAST_PAGE_AT)
                file.write(struct.pack("=Q", file_bytes // _PAGE_BYTES - 1))
    return scratch


def lead_to_tables(path: Path) -> bool:
    """Whether both first pages name the page with the table of tables, or one the file without any. Raises OSError.

    The second is how a compacted file begins.
    """
    with (path / DATA).open("rb") as file:
        numbers = [_tables_page(file, page) for page in range(FIRST_PAGES)]
        if numbers[0] == NO_PAGE and _number(file, 0, COMMIT_AT) == 0:
            del numbers[0]
        return all(_names_tables(file, number) for number in numbers)


def mend_first_pages(path: Path, scratch: Path) -> None:
    """Copy the file and write into both first pages what stands in those of all files.

    Where one leads to a page that is not the table of tables, and a single other bit would lead there, that is set.
    Where none would, and the other page leads there, both say what that says. Raises OSError.
    """
    copy = scratch / DATA if path == scratch else _copied(path, scratch)
    with copy.open("r+b") as file:
        last_page = struct.pack("=Q", file.seek(0, os.SEEK_END) // _PAGE_BYTES - 1)
        for page in range(FIRST_PAGES):
            for at, content in (*_FIRST_PAGES, (LAST_PAGE_AT, last_page)):
                file.seek(page * _PAGE_BYTES + at)
                file.write(content)
        numbers = [_tables_page(file, page) for page in range(FIRST_PAGES)]
        for page, number in enumerate(numbers):
            # The other's page is that of another commit, and so are most that lie near a damaged table of tables.
            if not _names_tables(file, number, len(TABLES) // 2):
                near = [one for bit in range(64) if _names_tables(file, one := number ^ 1 << bit)]
                if len(near) == 1 and near[0] != numbers[1 - page]:
                    file.seek(page * _PAGE_BYTES + TABLES_ROOT_AT)
                    file.write(struct.pack("=Q", near[0]))
        leading = [page for page in range(FIRST_PAGES) if _names_tables(file, _tables_page(file, page))]
        if len(leading) == 1:
            file.seek(leading[0] * _PAGE_BYTES + _CLAIMS_AT)
            claims = file.read(_CLAIMS_BYTES)
            file.seek((1 - leading[0]) * _PAGE_BYTES + _CLAIMS_AT)
            file.write(claims)


def _tables_page(file: BinaryIO, page: int) -> int:
    """The number of the page with the table of tables, by one of the first pages; 0, which it never is: none."""
    return _number(file, page, TABLES_ROOT_AT)


def _number(file: BinaryIO, page: int, at: int) -> int:
    """A number in one of the first pages; 0 behind the end of the file."""
    file.seek(page * _PAGE_BYTES + at)
    return int.from_bytes(file.read(8), sys.byteorder)


def _names_tables(file: BinaryIO, number: int, least: int = len(TABLES)) -> bool:
    """Whether the page ``number`` is there, and the table of tables as of some commit: with so many, ``least``."""
    if number >= file.seek(0, os.SEEK_END) // _PAGE_BYTES:
        return False
    file.seek(number * _PAGE_BYTES)
    page = file.read(_PAGE_BYTES)
    return page[:8] == struct.pack("=Q", number) and sum(table.encode() in page for table in TABLES) >= least


def _copied(path: Path, scratch: Path) -> Path:
    scratch.mkdir(mode=0o700, exist_ok=True)
    return Path(shutil.copyfile(path / DATA, scratch / DATA))
