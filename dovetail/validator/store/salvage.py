"""Reads a damaged store as far as possible: by key, by walking tables from both ends, by correcting and by carving.

LMDB may kill the process on a damaged page, so this runs in a process of its own. It notes each read position in shared
memory beforehand. The parent process passes the position of a crash as one of ``avoid`` to the next attempt.
"""

from collections.abc import Iterator
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

import lmdb

from dovetail.validator.store.carving import Carver
from dovetail.validator.store.first_pages import first_pages_name_tables, mend_first_pages, padded_copy
from dovetail.validator.store.full_disk import lack_of_room
from dovetail.validator.store.length import DATA, first_pages_follow, lacking_bytes
from dovetail.validator.store.mending import Mended, mended
from dovetail.validator.store.permissions import lack_of_permission
from dovetail.validator.store.records import NUMBER_BYTES, SEAL_BYTES, TABLES, key
from dovetail.validator.store.snapshot import StorageFailed

_OPENING: Final = len(TABLES)
_ENTRIES_A_PAGE_MAX: Final = 512


class ReadMode(IntEnum):
    BY_KEY = 0
    FORWARDS = 1
    BACKWARDS = 2


class ReadPosition(NamedTuple):
    """A read of one of TABLES. ``number``: the entry's number, or how many entries the walk had passed."""

    table: str
    mode: ReadMode
    number: int

    def __str__(self) -> str:
        how = f"entry {self.number}" if self.mode is ReadMode.BY_KEY else f"walking {self.mode.name.lower()}"
        return f"{how} of the table {self.table}"


Marker = Any
"""A shared array of three integers: table, mode and number of a ReadPosition."""


def read_position(marker: Marker) -> ReadPosition | None:
    """The last read position of a process; None if it read no table."""
    table, mode, number = marker[:]
    return ReadPosition(TABLES[table], ReadMode(mode), number) if table < _OPENING else None


def reset_marker(marker: Marker) -> None:
    marker[0] = _OPENING


class SalvagedRecord(NamedTuple):
    """``sound``: the checksum matches, if necessary after the correction that ``mended`` names. If not ``sound``, the
    content is as stored."""

    content: bytes
    sound: bool
    mended: str


class Salvage:
    """Raises StorageFailed if nothing of the file can be read."""

    def __init__(self, path: Path, marker: Marker, avoid: frozenset[ReadPosition], scratch: Path) -> None:
        """``scratch``: a folder for a copy of the file, needed if LMDB cannot open the file itself."""
        self._marker = marker
        self._avoid = avoid
        self._misplaced: dict[str, dict[bytes, bytes]] = {}
        self._walked: set[str] = set()
        self._reader: Any = None
        self.lacks_first_page = False
        """Whether a first page is damaged: the newest commit may be unreachable."""
        try:
            if not (path / DATA).stat().st_size:
                raise StorageFailed(f"{path / DATA} is empty, nothing can be repaired: restore a backup")
            self.lacks_first_page = not first_pages_follow(path)
            whole = padded_copy(path, scratch) if lacking_bytes(path) else path
            try:
                self._env = _opened(whole) if first_pages_name_tables(whole) else self._mended(whole, scratch)
                if not self._open_tables() and not self.lacks_first_page:
                    self._env.close()
                    self._env = self._mended(whole, scratch)
            except lmdb.Error:
                self._env = self._mended(whole, scratch)
        except (lmdb.Error, OSError) as error:
            if want := lack_of_room(error, scratch.parent):
                file_bytes = (path / DATA).stat().st_size
                raise StorageFailed(
                    f"the file in {path} must be copied to be repaired, its first pages are damaged or its end is"
                    f" gone: {want}, {file_bytes} bytes for the copy and as many for the new file"
                ) from None
            advice = lack_of_permission(error, path) or "restore a backup"
            raise StorageFailed(f"nothing of the file in {path} can be read: {error}; {advice}") from None
        self._carver = Carver(path / DATA)
        self._tables = self._open_tables()

    def close(self) -> None:
        self._end()
        self._carver.close()
        self._env.close()

    @property
    def knows_end(self) -> bool:
        """Whether a table can be opened that shows the number of blocks."""
        return not self._tables.keys().isdisjoint(("blocks", "batches"))

    def last(self, table: str) -> int:
        """The highest readable number in a table of numbered entries; -1 if there is none."""
        for name, record in self._walk(table, ReadMode.BACKWARDS):
            found = mended(table, name, record)
            if found is not None:
                return int.from_bytes(found.name, "big")
        return -1

    def count(self, table: str) -> int:
        """The number of entries that a table states; 0 if it cannot be read."""
        try:
            return int(self._begin().stat(self._tables[table])["entries"])
        except (KeyError, lmdb.Error):
            self._end()
            return 0

    def numbered(self, table: str, number: int, beginning: bytes = b"") -> Iterator[SalvagedRecord]:
        """Candidates for the entry ``number`` of a table, the likeliest first, each beginning with ``beginning``.

        There are several candidates only if the entry is not where its key leads.
        """
        found = self.named(table, key(number), number)
        if found is not None and found.sound:
            yield found
        for content in self._carver.records(table, key(number), beginning):
            yield SalvagedRecord(content, True, "the way to it")
        if found is not None and not found.sound:
            yield found

    def named(self, table: str, name: bytes, number: int = 0) -> SalvagedRecord | None:
        """The entry of a table under a key, or None."""
        record = self._get(table, name, number)
        found = None if record is None else mended(table, name, record)
        if found is not None and found.name == name:
            return SalvagedRecord(found.content, True, found.bit)
        if table not in self._misplaced:
            self._misplaced[table] = self._look_for_misplaced(table)
        content = self._misplaced[table].get(name)
        if content is not None:
            return SalvagedRecord(content, True, "its place in its table")
        return None if record is None else SalvagedRecord(record[:-SEAL_BYTES], False, "")

    def all(self, table: str) -> Iterator[Mended]:
        """Every entry of a table that is readable and sound or correctable. An entry may come twice."""
        for mode in (ReadMode.FORWARDS, ReadMode.BACKWARDS):
            for name, record in self._walk(table, mode):
                found = mended(table, name, record)
                if found is not None:
                    yield found
            if table in self._walked:
                return

    def _open_tables(self) -> dict[str, Any]:
        tables = {}
        for table in TABLES:
            with suppress(lmdb.Error):
                tables[table] = self._env.open_db(table.encode(), create=False)
        return tables

    def _mended(self, path: Path, scratch: Path) -> Any:
        self.lacks_first_page = True
        mend_first_pages(path, scratch)
        return _opened(scratch)

    def _look_for_misplaced(self, table: str) -> dict[bytes, bytes]:
        """Entries that a walk reaches but a search by key does not, because their key or a page above them is
        damaged."""
        found: dict[bytes, bytes] = {}
        for entry in self.all(table):
            if self._get(table, entry.name, int.from_bytes(entry.name[:NUMBER_BYTES], "big")) is None:
                found[entry.name] = entry.content
        return found

    def _get(self, table: str, name: bytes, number: int) -> bytes | None:
        if not self._may(table, ReadMode.BY_KEY, number):
            return None
        try:
            record: bytes | None = self._begin().get(name, db=self._tables[table])
        except lmdb.Error:
            # LMDB allows no further read in this snapshot.
            self._end()
            return None
        return record

    def _walk(self, table: str, mode: ReadMode) -> Iterator[tuple[bytes, bytes]]:
        """Entries from one end of a table, up to the first unreadable one."""
        steps = 0
        if not self._may(table, mode, steps):
            return
        try:
            with self._env.begin() as reader, reader.cursor(db=self._tables[table]) as cursor:
                entries = cursor.iternext() if mode is ReadMode.FORWARDS else cursor.iterprev()
                for entry in entries:
                    yield entry
                    steps += 1
                    # Damage can make a walk endless.
                    if steps > self._most() or not self._may(table, mode, steps):
                        return
            self._walked.add(table)
        except lmdb.Error:
            return

    def _most(self) -> int:
        return int(self._env.info()["last_pgno"] + 1) * _ENTRIES_A_PAGE_MAX

    def _may(self, table: str, mode: ReadMode, number: int) -> bool:
        """Note the next read position. False if it must be avoided."""
        if table not in self._tables or (self._avoid and ReadPosition(table, mode, number) in self._avoid):
            return False
        self._marker[0], self._marker[1], self._marker[2] = TABLES.index(table), mode, number
        return True

    def _begin(self) -> Any:
        if self._reader is None:
            self._reader = self._env.begin()
        return self._reader

    def _end(self) -> None:
        if self._reader is not None:
            self._reader.abort()
            self._reader = None


def _opened(path: Path) -> Any:
    return lmdb.open(str(path), map_size=0, max_dbs=len(TABLES), readonly=True, create=False, lock=False)
