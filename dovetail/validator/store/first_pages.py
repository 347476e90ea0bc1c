"""Copies a damaged store's file so that LMDB can open it: a truncated file, or one with damaged first pages.

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
"""Constant bytes of both first pages in every file of LMDB's 0.9 line, by offset: the page's flag, the format's mark
and version, a map address of 0, the page size and flags of the free list, and the flags of the table of tables."""
_PAGE_BYTES: Final = 4096
_CLAIMS_AT: Final = 16
_CLAIMS_BYTES: Final = 136
"""The part of a first page that describes the file as of its commit."""


def padded_copy(path: Path, scratch: Path) -> Path:
    """Copy a truncated file and append zeros for the missing end, because LMDB would crash there.

    Returns the folder of the copy. Raises OSError.
    """
    lacking = lacking_bytes(path)
    with _copied(path, scratch).open("r+b") as file:
        file_bytes = file.seek(0, os.SEEK_END)
        if lacking <= LACKING_BYTES_MAX:
            file.truncate(file_bytes + lacking)
        else:
            # No file lacks that much, so the stated length is damaged.
            for page in range(FIRST_PAGES):
                file.seek(page * _PAGE_BYTES + LAST_PAGE_AT)
                file.write(struct.pack("=Q", file_bytes // _PAGE_BYTES - 1))
    return scratch


def first_pages_name_tables(path: Path) -> bool:
    """Whether both first pages name the page of the table of tables. Raises OSError.

    In a compacted file, page 0 may name none.
    """
    with (path / DATA).open("rb") as file:
        numbers = [_tables_page(file, page) for page in range(FIRST_PAGES)]
        if numbers[0] == NO_PAGE and _number(file, 0, COMMIT_AT) == 0:
            del numbers[0]
        return all(_names_tables(file, number) for number in numbers)


def mend_first_pages(path: Path, scratch: Path) -> None:
    """Copy the file and restore the constant bytes of both first pages.

    If a first page names a wrong page for the table of tables, and flipping a single bit of the number gives the right
    one, the bit is flipped. If only one first page names the table afterwards, it is copied to the other. Raises
    OSError.
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
            # Half of the names suffice, because the table may be damaged. The number in the other first page is not
            # used: its table is of another commit.
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
    """The page number of the table of tables according to a first page; 0 (never a table) if there is none."""
    return _number(file, page, TABLES_ROOT_AT)


def _number(file: BinaryIO, page: int, at: int) -> int:
    """A number in a first page; 0 beyond the end of the file."""
    file.seek(page * _PAGE_BYTES + at)
    return int.from_bytes(file.read(8), sys.byteorder)


def _names_tables(file: BinaryIO, number: int, least: int = len(TABLES)) -> bool:
    """Whether page ``number`` exists and is a table of tables with at least ``least`` of the names."""
    if number >= file.seek(0, os.SEEK_END) // _PAGE_BYTES:
        return False
    file.seek(number * _PAGE_BYTES)
    page = file.read(_PAGE_BYTES)
    return page[:8] == struct.pack("=Q", number) and sum(table.encode() in page for table in TABLES) >= least


def _copied(path: Path, scratch: Path) -> Path:
    scratch.mkdir(mode=0o700, exist_ok=True)
    return Path(shutil.copyfile(path / DATA, scratch / DATA))
