"""A damaged store, as far as it can be read: by key, by walking tables from both ends, by mending, by carving.

LMDB may end the process on a damaged page. So this runs in a process of its own: what is about to be read is noted in
``At``, where another process finds it afterwards, and is not read again when it is named among ``avoid``.
"""

from collections.abc import Iterator
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

import lmdb

from dovetail.validator.store.carving import Carver
from dovetail.validator.store.first_pages import lead_to_tables, lengthened, mend_first_pages
from dovetail.validator.store.full_disk import want_of_room
from dovetail.validator.store.length import DATA, first_pages_follow, lacking_bytes
from dovetail.validator.store.mending import Mended, mended
from dovetail.validator.store.owner import want_of_permission
from dovetail.validator.store.records import NUMBER_BYTES, SEAL_BYTES, TABLES, key
from dovetail.validator.store.snapshot import StorageFailed

_OPENING: Final = len(TABLES)
_ENTRIES_A_PAGE_MAX: Final = 512


class Way(IntEnum):
    """How a table was being read."""

    BY_KEY = 0
    FORWARDS = 1
    BACKWARDS = 2


class At(NamedTuple):
    """What was being read: ``number`` by its key, or the entry behind so many on the walk. One table of TABLES."""

    table: str
    way: Way
    number: int

    def __str__(self) -> str:
        how = f"entry {self.number}" if self.way is Way.BY_KEY else f"walking {self.way.name.lower()}"
        return f"{how} of the table {self.table}"


Marker = Any
"""An array of three integers that two processes share."""


def at_of(marker: Marker) -> At | None:
    """What the process that ended was reading; None where it had not begun."""
    table, way, number = marker[:]
    return At(TABLES[table], Way(way), number) if table < _OPENING else None


def begin(marker: Marker) -> None:
    """Nothing is read yet."""
    marker[0] = _OPENING


class Found(NamedTuple):
    """``sound``: whether it fits its checksum, once what ``mended`` names was made right; if not, as it lies there."""

    content: bytes
    sound: bool
    mended: str


class Salvage:
    """Raises StorageFailed where nothing of the file can be read."""

    def __init__(self, path: Path, marker: Marker, avoid: frozenset[At], scratch: Path) -> None:
        """``scratch``: a folder for a copy of the file, where the file itself is not one that LMDB can open."""
        self._marker = marker
        self._avoid = avoid
        self._misplaced: dict[str, dict[bytes, bytes]] = {}
        self._walked: set[str] = set()
        self._reader: Any = None
        self.lacks_first_page = False
        """Whether one of the two is damaged: the newest commit may be the one that nothing leads to."""
        try:
            if not (path / DATA).stat().st_size:
                raise StorageFailed(f"{path / DATA} is empty, nothing can be repaired: restore a backup")
            self.lacks_first_page = not first_pages_follow(path)
            whole = lengthened(path, scratch) if lacking_bytes(path) else path
            try:
                self._env = _opened(whole) if lead_to_tables(whole) else self._mended(whole, scratch)
                if not self._open_tables() and not self.lacks_first_page:
                    self._env.close()
                    self._env = self._mended(whole, scratch)
            except lmdb.Error:
                self._env = self._mended(whole, scratch)
        except (lmdb.Error, OSError) as error:
            if want := want_of_room(error, scratch.parent):
                file_bytes = (path / DATA).stat().st_size
                raise StorageFailed(
                    f"the file in {path} must be copied to be repaired, its first pages are damaged or its end is"
                    f" gone: {want}, {file_bytes} bytes for the copy and as many for the new file"
                ) from None
            advice = want_of_permission(error, path) or "restore a backup"
            raise StorageFailed(f"nothing of the file in {path} can be read: {error}; {advice}") from None
        self._carver = Carver(path / DATA)
        self._tables = self._open_tables()

    def close(self) -> None:
        self._end()
        self._carver.close()
        self._env.close()

    @property
    def knows_end(self) -> bool:
        """Whether a table is there that says how many blocks there were."""
        return not self._tables.keys().isdisjoint(("blocks", "batches"))

    def last(self, table: str) -> int:
        """The highest number that can be read in a table of numbered entries; -1: none."""
        for name, record in self._walk(table, Way.BACKWARDS):
            found = mended(table, name, record)
            if found is not None:
                return int.from_bytes(found.name, "big")
        return -1

    def count(self, table: str) -> int:
        """How many entries a table says it has; 0 where it cannot be asked."""
        try:
            return int(self._begin().stat(self._tables[table])["entries"])
        except (KeyError, lmdb.Error):
            self._end()
            return 0

    def numbered(self, table: str, number: int, beginning: bytes = b"") -> Iterator[Found]:
        """What may be the entry ``number`` of a table, the likeliest first. ``beginning``: what it must begin with.

        Only where it lies elsewhere than it should is there more than one.
        """
        found = self.named(table, key(number), number)
        if found is not None and found.sound:
            yield found
        for content in self._carver.records(table, key(number), beginning):
            yield Found(content, True, "the way to it")
        if found is not None and not found.sound:
            yield found

    def named(self, table: str, name: bytes, number: int = 0) -> Found | None:
        """The entry of a table under a key."""
        record = self._get(table, name, number)
        found = None if record is None else mended(table, name, record)
        if found is not None and found.name == name:
            return Found(found.content, True, found.bit)
        if table not in self._misplaced:
            self._misplaced[table] = self._look_for_misplaced(table)
        content = self._misplaced[table].get(name)
        if content is not None:
            return Found(content, True, "its place in its table")
        return None if record is None else Found(record[:-SEAL_BYTES], False, "")

    def all(self, table: str) -> Iterator[Mended]:
        """Every entry of a table that can be read and is, or can be made, what was written: once or twice."""
        for way in (Way.FORWARDS, Way.BACKWARDS):
            for name, record in self._walk(table, way):
                found = mended(table, name, record)
                if found is not None:
                    yield found
            if table in self._walked:
                return

    def _open_tables(self) -> dict[str, Any]:
        """Those that can be opened, by name."""
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
        """What a walk meets and its key does not lead to: the way to it is damaged, or the key itself."""
        found: dict[bytes, bytes] = {}
        for entry in self.all(table):
            if self._get(table, entry.name, int.from_bytes(entry.name[:NUMBER_BYTES], "big")) is None:
                found[entry.name] = entry.content
        return found

    def _get(self, table: str, name: bytes, number: int) -> bytes | None:
        if not self._may(table, Way.BY_KEY, number):
            return None
        try:
            record: bytes | None = self._begin().get(name, db=self._tables[table])
        except lmdb.Error:
            # No further read is possible in this snapshot.
            self._end()
            return None
        return record

    def _walk(self, table: str, way: Way) -> Iterator[tuple[bytes, bytes]]:
        """Entries from one end of a table, up to the first that cannot be read."""
        steps = 0
        if not self._may(table, way, steps):
            return
        try:
            with self._env.begin() as reader, reader.cursor(db=self._tables[table]) as cursor:
                entries = cursor.iternext() if way is Way.FORWARDS else cursor.iterprev()
                for entry in entries:
                    yield entry
                    steps += 1
                    # Walks need not end: damage can lead them in circles.
                    if steps > self._most() or not self._may(table, way, steps):
                        return
            self._walked.add(table)
        except lmdb.Error:
            return

    def _most(self) -> int:
        return int(self._env.info()["last_pgno"] + 1) * _ENTRIES_A_PAGE_MAX

    def _may(self, table: str, way: Way, number: int) -> bool:
        """Note what is read next; whether it may be."""
        if table not in self._tables or (self._avoid and At(table, way, number) in self._avoid):
            return False
        self._marker[0], self._marker[1], self._marker[2] = TABLES.index(table), way, number
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
