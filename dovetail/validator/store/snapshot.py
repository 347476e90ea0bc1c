"""One read snapshot of the store's tables: records by key and in order, each compared with its checksum.

With ``dovetail.validator.store.opening``, which opens a store, and ``dovetail.validator.store.store``, which writes
it, the only module
that knows LMDB. What is in the records is the business of ``dovetail.validator.store.records``, what they mean
together of
``dovetail.validator.store.reader``.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import lmdb
from lmdb.verify import VerifyError, verify

from dovetail.validator.store import records
from dovetail.validator.store.full_disk import want_of_room
from dovetail.validator.store.records import FORMAT_KEY, NUMBER_BYTES, id_key, key

WHEN_DAMAGED: Final = (
    "the ledger is damaged: `dovetail chain verify` shows where; stop the validator, then `dovetail store repair`, or"
    " restore a backup"
)
"""What to do where pages or keys are not what was written."""


class StorageFailed(Exception):
    """The disk or the environment refused; the message says what. Nothing of a write was kept."""


class StorageDamaged(StorageFailed):
    """What is read is not what was written; the message says where. It does not pass by itself."""


class StorageLost(Exception):
    """The disk lost a write, or nobody knows what became of one: whoever owns the store must end, and open it anew."""


class FileFigures(NamedTuple):
    """``used_pages``: all that were ever written. ``main_pages``: of the table of tables. ``map_bytes``: its room.

    ``readers``: places in the table of readers that were taken at one time.
    """

    page_bytes: int
    used_pages: int
    main_pages: int
    map_bytes: int
    readers: int


def page_faults(path: Path) -> list[str]:
    """What is wrong with the pages of the store's file in the folder ``path``, whatever lies in them.

    Every page is reached once or free, and each table counts right. Means nothing while somebody writes. Reads the file
    by itself: damage ends no process here.
    """
    try:
        faults: list[str] = verify(str(path))  # type: ignore[no-untyped-call]
    except (VerifyError, OSError, struct.error, LookupError, RecursionError) as error:
        faults = [f"the walk ended: {error}"]
    return faults


class Snapshot:
    """The tables as of one commit. One thread's alone."""

    def __init__(self, env: Any, tables: dict[str, Any]) -> None:
        """``env``: open, with its ``tables`` by name. Raises StorageFailed."""
        self._env = env
        self._tables = tables
        self._reader: Any = None
        self.damaged_reads = 0
        """How often something was read that is not what was written."""
        self.damage = ""
        """Where that was the last time, in words."""
        self._move_on()

    def tables(self) -> list[bytes]:
        """The names of all tables in the file: TABLES, in a sound store."""
        try:
            with self._reader.cursor() as cursor:
                return list(cursor.iternext(values=False))
        except lmdb.Error as error:
            raise self._unreadable("of tables", error) from None

    def written(self) -> int:
        """A number that every write to the file changes, in whatever process, whether it is in the snapshot or not."""
        return int(self._env.info()["last_txnid"])

    def file(self) -> FileFigures:
        """How large the file is, as of now."""
        info, main = self._env.info(), self._env.stat()
        return FileFigures(
            main["psize"],
            info["last_pgno"] + 1,
            main["leaf_pages"] + main["branch_pages"] + main["overflow_pages"],
            info["map_size"],
            info["num_readers"],
        )

    def copy_to(self, descriptor: int) -> None:
        """Write the newest commit as a file of its own, without free pages, beside a running writer too.

        Raises StorageFailed.
        """
        try:
            self._env.copyfd(descriptor, compact=True)
        except (lmdb.Error, OSError) as error:
            raise StorageFailed(
                f"the store cannot be copied: {error}; {want_of_room(error, descriptor) or WHEN_DAMAGED}"
            ) from None

    def count(self, table: str) -> int:
        """How many entries one of TABLES has."""
        try:
            entries: int = self._reader.stat(self._tables[table])["entries"]
        except lmdb.Error as error:
            raise self._unreadable(table, error) from None
        return entries

    def size(self, table: str) -> tuple[int, int, int]:
        """Of one of TABLES: pages that hold entries, pages that lead to them, pages of large records."""
        try:
            stat = self._reader.stat(self._tables[table])
        except lmdb.Error as error:
            raise self._unreadable(table, error) from None
        return stat["leaf_pages"], stat["branch_pages"], stat["overflow_pages"]

    def entries(self, table: str) -> Iterator[tuple[bytes, bytes]]:
        """Key and content of every entry of one of TABLES, in order of the keys."""
        for name, record in self.raw_entries(table):
            yield name, self._open(table, name, record)

    def raw_entries(self, table: str) -> Iterator[tuple[bytes, bytes]]:
        """The same as they are stored, not compared with their checksums."""
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
        """The highest number in a table; -1 when it is empty."""
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
            found: bytes | None = self._reader.get(FORMAT_KEY, db=self._tables["meta"])
        except lmdb.Error as error:
            raise self._unreadable("meta", error) from None
        return found

    def _damaged(self, words: str) -> StorageDamaged:
        """What to raise for damage, which is counted."""
        self.damaged_reads += 1
        self.damage = words
        return StorageDamaged(words)

    def _lacks(self, table: str, number: int, why: str = "") -> StorageDamaged:
        return self._damaged(f"the store lacks entry {number} of {table}{why}")

    def _unreadable(self, table: str, error: lmdb.Error) -> StorageDamaged:
        self._go_on()
        return self._damaged(f"the table {table} cannot be read: {error}; {WHEN_DAMAGED}")

    def _go_on(self) -> None:
        """After a page that cannot be read LMDB reads nothing more in this snapshot; who wants one commit keeps it."""

    def _let_go(self) -> None:
        """End the snapshot and keep its slot, which goes where the transaction itself does."""
        if self._reader is not None:
            self._reader.abort()
            self._reader = None

    def _move_on(self) -> None:
        """Take a snapshot of the newest commit where there is none. Raises StorageFailed."""
        try:
            self._reader = self._begin()
        except lmdb.Error as error:
            raise StorageFailed(f"the store gives no snapshot: {error}") from None

    def _begin(self) -> Any:
        try:
            return self._env.begin()
        except lmdb.MapResizedError:
            # The writer, in another process, has made the map larger than it is here.
            self._env.set_mapsize(0)
            return self._env.begin()


def shown_key(name: bytes) -> str:
    """The key of an entry as people read it: a number, or in hex."""
    return str(int.from_bytes(name, "big")) if len(name) == NUMBER_BYTES else name.hex()
