"""One read snapshot of the store's tables: records by key and in order, each compared with its checksum.

Only this module, ``opening``, ``reader``, ``store`` and ``salvage`` use LMDB. ``records`` decodes the records, and
``reader`` combines them.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import lmdb
from lmdb.verify import VerifyError, verify

from dovetail.validator.store import records
from dovetail.validator.store.full_disk import lack_of_address_space, lack_of_room
from dovetail.validator.store.records import FORMAT_KEY, NUMBER_BYTES, id_key, key

WHEN_DAMAGED: Final = (
    "the ledger is damaged: `dovetail chain verify` shows where; stop the validator, then `dovetail store repair`, or"
    " restore a backup"
)
"""The advice for damaged pages and keys."""


class StorageFailed(Exception):
    """The disk or LMDB refused an operation; the message says why. A refused write has changed nothing."""


class StorageDamaged(StorageFailed):
    """A record or page is not what was written; the message says which. Retrying does not help."""


class StorageLost(Exception):
    """The disk lost a write, or the outcome of a write is unknown: the store's owner must end and reopen it."""


class FileFigures(NamedTuple):
    """Figures of the store's file.

    ``used_pages``: pages written so far, free ones included. ``main_pages``: pages of the table of tables.
    ``map_bytes``: the size of the map. ``readers``: slots of the table of readers that have been used.
    """

    page_bytes: int
    used_pages: int
    main_pages: int
    map_bytes: int
    readers: int


def page_faults(path: Path) -> list[str]:
    """The faults in the page structure of the store's file in the folder ``path``; records are not checked.

    In a sound file, every page is either free or reached exactly once, and each table's count is right. Meaningless
    while another process writes. Reads without LMDB, so damage cannot kill the process.
    """
    try:
        faults: list[str] = verify(str(path))  # type: ignore[no-untyped-call]
    except (VerifyError, OSError, struct.error, LookupError, RecursionError) as error:
        faults = [f"the walk ended: {error}"]
    return faults


class Snapshot:
    """The tables as of one commit. Use it in one thread only."""

    def __init__(self, env: Any, tables: dict[str, Any]) -> None:
        """``env``: open, with its ``tables`` by name. Raises StorageFailed."""
        self._env = env
        self._tables = tables
        self._reader: Any = None
        self.damaged_reads = 0
        """How many reads met damage."""
        self.damage = ""
        """The last damage, in words."""
        self._begin_snapshot()

    def tables(self) -> list[bytes]:
        """The names of all tables in the file; TABLES in a sound store."""
        try:
            with self._reader.cursor() as cursor:
                return list(cursor.iternext(values=False))
        except lmdb.Error as error:
            raise self._unreadable("of tables", error) from None

    def written(self) -> int:
        """The number of the newest commit of any process, whether or not the snapshot includes the commit."""
        return int(self._env.info()["last_txnid"])

    def file(self) -> FileFigures:
        info, main = self._env.info(), self._env.stat()
        return FileFigures(
            main["psize"],
            info["last_pgno"] + 1,
            main["leaf_pages"] + main["branch_pages"] + main["overflow_pages"],
            info["map_size"],
            info["num_readers"],
        )

    def copy_to(self, descriptor: int) -> None:
        """Write the newest commit to a new file without free pages. A writer may run. Raises StorageFailed."""
        try:
            self._env.copyfd(descriptor, compact=True)
        except (lmdb.Error, OSError) as error:
            raise StorageFailed(
                f"the store cannot be copied: {error}; {lack_of_room(error, descriptor) or WHEN_DAMAGED}"
            ) from None

    def count(self, table: str) -> int:
        """The number of entries of one of TABLES."""
        return self._stat(table)["entries"]

    def size(self, table: str) -> tuple[int, int, int]:
        """The numbers of leaf pages, branch pages and overflow pages of one of TABLES."""
        stat = self._stat(table)
        return stat["leaf_pages"], stat["branch_pages"], stat["overflow_pages"]

    def _stat(self, table: str) -> dict[str, int]:
        try:
            stat: dict[str, int] = self._reader.stat(self._tables[table])
        except lmdb.Error as error:
            raise self._unreadable(table, error) from None
        return stat

    def entries(self, table: str) -> Iterator[tuple[bytes, bytes]]:
        """Key and content of every entry of one of TABLES, in key order."""
        for name, record in self.raw_entries(table):
            yield name, self._open(table, name, record)

    def raw_entries(self, table: str) -> Iterator[tuple[bytes, bytes]]:
        """Key and record of every entry, in key order, without a check of the checksums."""
        try:
            with self._reader.cursor(db=self._tables[table]) as cursor:
                yield from cursor
        except lmdb.Error as error:
            raise self._unreadable(table, error) from None

    def _get(self, table: str, name: bytes) -> bytes | None:
        try:
            record: bytes | None = self._reader.get(name, db=self._tables[table])
        except lmdb.Error as error:
            raise self._unreadable(table, error) from None
        return None if record is None else self._open(table, name, record)

    def _open(self, table: str, name: bytes, record: bytes) -> bytes:
        content = records.opened(table, name, record)
        if content is None:
            raise self._damaged(
                f"entry {shown_key(name)} of the table {table} is not what was written, its checksum differs:"
                " `dovetail chain verify` shows all that is damaged, `dovetail store repair` mends what can be"
            )
        return content

    def _require(self, table: str, number: int) -> bytes:
        record = self._get(table, key(number))
        if record is None:
            raise self._lacks(table, number)
        return record

    def _number(self, table: str, text: str) -> int | None:
        record = self._get(table, id_key(text))
        return None if record is None else int.from_bytes(record, "big")

    def _last_key(self, table: str) -> int:
        """The highest number in a table; -1 if it is empty."""
        try:
            with self._reader.cursor(db=self._tables[table]) as cursor:
                name = cursor.key() if cursor.last() else None
        except lmdb.Error as error:
            raise self._unreadable(table, error) from None
        if name is None:
            return -1
        if len(name) != NUMBER_BYTES:
            raise self._damaged(f"the last key of the table {table} is no number: {name.hex()}; {WHEN_DAMAGED}")
        return int.from_bytes(name, "big")

    def _format(self) -> bytes | None:
        try:
            stored: bytes | None = self._reader.get(FORMAT_KEY, db=self._tables["meta"])
        except lmdb.Error as error:
            raise self._unreadable("meta", error) from None
        return stored

    def _damaged(self, words: str) -> StorageDamaged:
        """Count damage. Returns the error to raise."""
        self.damaged_reads += 1
        self.damage = words
        return StorageDamaged(words)

    def _lacks(self, table: str, number: int, why: str = "") -> StorageDamaged:
        return self._damaged(f"the store lacks entry {number} of {table}{why}")

    def _unreadable(self, table: str, error: lmdb.Error) -> StorageDamaged:
        self._recover_snapshot()
        return self._damaged(f"the table {table} cannot be read: {error}; {WHEN_DAMAGED}")

    def _recover_snapshot(self) -> None:
        """Called after a page could not be read: LMDB allows no further read in this snapshot.

        A reader stays with its commit and does nothing; the store's owner begins a new snapshot.
        """

    def _end_snapshot(self) -> None:
        """End the snapshot. Its slot in the table of readers stays reserved (``opening._SPARE_SNAPSHOTS``)."""
        if self._reader is not None:
            self._reader.abort()
            self._reader = None

    def _begin_snapshot(self) -> None:
        """Begin a snapshot of the newest commit. Raises StorageFailed."""
        try:
            self._reader = self._begin()
        except lmdb.Error as error:
            lack = lack_of_address_space(error)
            raise StorageFailed(f"the store gives no snapshot: {error}{lack and f'; {lack}'}") from None

    def _begin(self) -> Any:
        try:
            return self._env.begin()
        except lmdb.MapResizedError:
            # The writer in another process has grown the map.
            self._env.set_mapsize(0)
            return self._env.begin()


def shown_key(name: bytes) -> str:
    """The key of an entry as text: a number, or hex characters."""
    return str(int.from_bytes(name, "big")) if len(name) == NUMBER_BYTES else name.hex()
