"""Checks that the store's file is whole before LMDB maps it: access to a missing page would kill the process.

Reads the file without LMDB, so that no damage can kill the process here.
"""

import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

from dovetail.validator.store.snapshot import StorageFailed

DATA: Final = "data.mdb"
"""The name of the data file in a store's folder."""

FIRST_PAGES: Final = 2
"""LMDB's meta pages. Each holds the file's length and the root of its tables, as of one of the last two commits."""

LACKING_BYTES_MAX: Final = 1 << 40
"""No truncated file lacks more. Zeros in place of the missing end take no space on the disk."""

_MARK: Final = 0xBEEFC0DE
_MARK_AT: Final = 16
_PAGE_BYTES_AT: Final = 40
_FREE_ROOT_AT: Final = 80
TABLES_ROOT_AT: Final = 128
LAST_PAGE_AT: Final = 136
COMMIT_AT: Final = 144
"""Offsets in a first page: the page number of the table of tables, the last page's number, the commit's number."""

_FIRST_PAGE_BYTES: Final = 152
_PAGE_BYTES: Final = frozenset(1 << bits for bits in range(8, 16))

_FLAGS_AT: Final = 10
_BRANCH, _LEAF = 1, 2
_HEADER_BYTES: Final = 16
_NODE_BYTES: Final = 8
_LARGE: Final = 1
"""The flag of an entry on pages of its own."""
NO_PAGE: Final = (1 << 64) - 1


_ADVICE: Final = (
    "`dovetail store repair` saves what it can find in it; where that finds no block there is only a backup: restore it"
    " (dovetail store restore), or the store of another node"
)


class Claimed(NamedTuple):
    """The contents of the newer first page: page size, number of pages, root of the free list.

    ``commit``: the number of the commit that wrote it. ``tables_root``: the page of the table of tables.
    ``older``, ``older_root``: ``commit`` and ``tables_root`` of the other first page.
    """

    page_bytes: int
    pages: int
    free_root: int
    commit: int
    tables_root: int
    older: int
    older_root: int

    @property
    def follows(self) -> bool:
        """Whether the first pages are of consecutive commits with different roots, as every commit leaves them.

        Otherwise LMDB might take the newest commit for an older one and silently drop it.
        """
        if self.commit == self.older == 0:
            return True
        return self.commit == self.older + 1 and self.tables_root != self.older_root

    @property
    def file_bytes(self) -> int:
        return self.page_bytes * self.pages


def require_whole(folder: Path) -> None:
    """Raises StorageFailed if the file is empty or truncated, or if its newest commit is unclear; OSError otherwise.

    Detects no other damage.
    """
    path = folder / DATA
    with path.open("rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise StorageFailed(
                f"{path} is empty, a store's file never is: restore a backup (dovetail store restore) or the store of"
                " another node; where there never was a ledger in that folder, remove the file"
            )
        claimed = _claimed(file.fileno())
        while claimed is not None:
            # Read the length after the claim: a running validator extends the file before it updates the first page.
            file_bytes = os.fstat(file.fileno()).st_size
            whole = claimed.file_bytes <= file_bytes or _only_free_pages_lack(file.fileno(), claimed, file_bytes)
            if whole and claimed.follows:
                return
            before, claimed = claimed, _claimed(file.fileno())
            if claimed == before:
                wrong = _disagreement(claimed) if whole else _lack(claimed.file_bytes, file_bytes)
                raise StorageFailed(f"{path} {wrong}. {_ADVICE}")


def _disagreement(claimed: Claimed) -> str:
    """The fault of a file whose first pages are not of consecutive commits."""
    return (
        f"has a damaged first page: one is of commit {claimed.commit} and leads to page {claimed.tables_root}, the"
        f" other of commit {claimed.older} and leads to page {claimed.older_root}, which no two commits in a row do"
    )


def _lack(claimed_bytes: int, file_bytes: int) -> str:
    """The fault of a file that is shorter than its first page states."""
    if claimed_bytes - file_bytes > LACKING_BYTES_MAX:
        return f"has a damaged first page: the file has {file_bytes} bytes, and no file can be as long as it says"
    return f"was cut short, or its first pages are damaged: it has {file_bytes} bytes, they say {claimed_bytes}"


def lacking_bytes(folder: Path) -> int:
    """How many bytes the file is shorter than its newer first page states; missing free pages count, too.

    0 if LMDB would not accept the file. Raises OSError.
    """
    with (folder / DATA).open("rb", buffering=0) as file:
        claimed = _claimed(file.fileno())
        return 0 if claimed is None else max(0, claimed.file_bytes - os.fstat(file.fileno()).st_size)


def first_pages_follow(folder: Path) -> bool:
    """Whether the first pages are of consecutive commits, so that the newest one is clear. Raises OSError."""
    with (folder / DATA).open("rb", buffering=0) as file:
        claimed = _claimed(file.fileno())
        return claimed is not None and claimed.follows


def _claimed(descriptor: int) -> Claimed | None:
    """The claim of the first pages; None if LMDB would not accept the file as its own."""
    claims = []
    page_bytes = 0
    for number in range(FIRST_PAGES):
        page = os.pread(descriptor, _FIRST_PAGE_BYTES, number * page_bytes)
        if len(page) < _FIRST_PAGE_BYTES or struct.unpack_from("=I", page, _MARK_AT)[0] != _MARK:
            return None
        (page_bytes,) = struct.unpack_from("=I", page, _PAGE_BYTES_AT)
        if page_bytes not in _PAGE_BYTES:
            return None
        (free_root,) = struct.unpack_from("=Q", page, _FREE_ROOT_AT)
        tables_root, last_page, commit = struct.unpack_from("=QQQ", page, TABLES_ROOT_AT)
        claims.append((commit, page_bytes, last_page + 1, free_root, tables_root))
    # If both are of one commit, LMDB uses the first.
    first, second = claims
    newest, older = (second, first) if second[0] > first[0] else (first, second)
    commit, page_bytes, pages, free_root, tables_root = newest
    return Claimed(page_bytes, pages, free_root, commit, tables_root, older[0], older[-1])


def _only_free_pages_lack(descriptor: int, claimed: Claimed, file_bytes: int) -> bool:
    """Whether every page beyond the file's end is free: LMDB never writes pages that one commit takes and frees
    again."""
    there = file_bytes // claimed.page_bytes
    if claimed.pages - there > there:
        return False
    try:
        free = _free_pages(descriptor, claimed, there)
    except (struct.error, LookupError, OverflowError):
        return False
    return free.issuperset(range(there, claimed.pages))


def _free_pages(descriptor: int, claimed: Claimed, there: int) -> set[int]:
    """The numbers of the free pages. Raises struct.error, LookupError and OverflowError if the list is not whole."""
    free: set[int] = set()
    left = [] if claimed.free_root == NO_PAGE else [claimed.free_root]
    size = claimed.page_bytes
    for _ in range(there):
        if not left:
            return free
        page = os.pread(descriptor, size, left.pop() * size)
        (flags,) = struct.unpack_from("=H", page, _FLAGS_AT)
        (lower,) = struct.unpack_from("=H", page, _FLAGS_AT + 2)
        for at in struct.unpack_from(f"={(lower - _HEADER_BYTES) // 2}H", page, _HEADER_BYTES):
            low, high, marks, key_bytes = struct.unpack_from("=HHHH", page, at)
            if flags & _BRANCH:
                left.append(low | high << 16 | marks << 32)
            elif flags & _LEAF:
                start, count = at + _NODE_BYTES + key_bytes, (low | high << 16) // 8
                if count > claimed.pages:
                    raise LookupError("it has more pages than the file")
                numbers = page[start:]
                if marks & _LARGE:
                    (first,) = struct.unpack_from("=Q", page, start)
                    numbers = os.pread(descriptor, 8 * count, first * size + _HEADER_BYTES)
                # The first number is the count of the others.
                free.update(struct.unpack_from(f"={count}Q", numbers)[1:])
    raise LookupError("it goes in circles")
