"""A simulated disk: LMDB's environment in memory, as far as the store uses it, with faults.

The store above is the real one. A write changes the tables in place and keeps a log to undo it, so that no table is
copied. A committed write is on the disk once it is synced. A crash undoes all writes that are not synced.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import lmdb

from dovetail.ledger.limits import Limits
from dovetail.validator.store import Store, records

_PAGE_BYTES: Final = 4096
_MAP_BYTES: Final = 1 << 40


class Crashed(Exception):
    """The machine crashed during a write."""


class Fault(Enum):
    """What the disk does with one write."""

    NONE = "the write is synced"
    REFUSED = "the disk refuses a page of the write: nothing is kept"
    NOT_SYNCED = "the disk refuses the sync: nothing is kept"
    CRASH_BEFORE = "the machine crashes before the sync"
    CRASH_AFTER = "the machine crashes after the sync, before the write returns"


class _Table:
    """Records by key, and the keys in order."""

    __slots__ = ("keys", "name", "records")

    def __init__(self, name: str) -> None:
        self.name = name
        self.records: dict[bytes, bytes] = {}
        self.keys: list[bytes] = []

    def set(self, key: bytes, value: bytes | None) -> None:
        """Set the record of a key. None removes the record."""
        if value is None:
            if self.records.pop(key, None) is not None:
                del self.keys[bisect_left(self.keys, key)]
        else:
            if key not in self.records:
                if self.keys and key < self.keys[-1]:
                    insort(self.keys, key)
                else:
                    self.keys.append(key)
            self.records[key] = value


class _Contents(Mapping[bytes, bytes]):
    """The records of a table by key, without their checksums."""

    def __init__(self, table: _Table) -> None:
        self._table = table

    def __getitem__(self, key: bytes) -> bytes:
        content = records.opened(self._table.name, key, self._table.records[key])
        assert content is not None, "nothing damages this disk"
        return content

    def __contains__(self, key: object) -> bool:
        return key in self._table.records

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._table.records)

    def __reversed__(self) -> Iterator[bytes]:
        return reversed(self._table.records)

    def __len__(self) -> int:
        return len(self._table.records)


_Undo = list[tuple[_Table, bytes, bytes | None]]


class Disk:
    """``fault`` is called at each write and returns the write's fault.

    ``on_synced`` is called after each synced write.
    """

    def __init__(
        self, fault: Callable[[], Fault] = lambda: Fault.NONE, on_synced: Callable[[], None] = lambda: None
    ) -> None:
        self._fault = fault
        self._on_synced = on_synced
        self._tables: dict[str, _Table] = {}
        self._unsynced: _Undo = []
        self.writes = 0

    def open_store(self, folder: Path, limits: Limits) -> Store:
        """The real store on this disk. ``folder`` holds the store's lock, and a file through which it tests syncs."""
        if not self._table("meta").records:
            # A file in the folder may belong to another simulated disk.
            (folder / "data.mdb").unlink(missing_ok=True)
        with patch.object(lmdb, "open", self._open):
            return Store(folder, limits)

    def crash(self) -> None:
        """Undo the writes that were not synced."""
        _undo(self._unsynced)

    def records(self, table: str) -> "_Contents":
        """The records of a table, without checksums."""
        return _Contents(self._table(table))

    def _open(self, path: str, *, subdir: bool = True, sync: bool = True, **options: object) -> "_Environment":
        if not subdir:
            # A new store gets this file in its folder. All of the store's writes stay in memory.
            Path(path).write_bytes(b"nothing that LMDB would open")
        return _Environment(self, sync)

    def _table(self, name: str) -> _Table:
        return self._tables.setdefault(name, _Table(name))

    def _commit(self, undo: _Undo, fault: Fault, sync: bool) -> None:
        if fault is Fault.NOT_SYNCED:
            _undo(undo)
            raise lmdb.DiskError("Input/output error")
        self._unsynced += undo
        if fault is Fault.CRASH_BEFORE:
            self.crash()
            raise Crashed(fault.value)
        if sync:
            self._unsynced.clear()
        self.writes += 1
        self._on_synced()
        if fault is Fault.CRASH_AFTER:
            self.crash()
            raise Crashed(fault.value)


def _undo(log: _Undo) -> None:
    while log:
        table, key, before = log.pop()
        table.set(key, before)


class _Environment:
    """The environment that ``lmdb.open`` returns.

    It allows one writer, and snapshots that end before the next write.
    """

    def __init__(self, disk: Disk, sync: bool) -> None:
        self._disk = disk
        self._sync = sync
        self.snapshots = 0

    def open_db(self, name: bytes, **options: object) -> _Table:
        return self._disk._table(name.decode())

    def begin(self, write: bool = False) -> "_Transaction":
        return _Transaction(self._disk, self, write, self._sync)

    def reader_check(self) -> int:
        return 0

    def info(self) -> dict[str, int]:
        return {"last_pgno": 0, "map_size": _MAP_BYTES}

    def stat(self) -> dict[str, int]:
        return {"psize": _PAGE_BYTES}

    def close(self) -> None:
        """Do nothing: no file is open."""


class _Transaction:
    def __init__(self, disk: Disk, environment: _Environment, write: bool, sync: bool) -> None:
        self._disk = disk
        self._environment = environment
        self._sync = sync
        self._fault = disk._fault() if write else Fault.NONE
        self._undo: _Undo | None = [] if write else None
        self._open = True
        if write:
            assert not environment.snapshots, "a snapshot does not change under its reader"
        else:
            environment.snapshots += 1

    def __enter__(self) -> "_Transaction":
        return self

    def __exit__(self, error: type[BaseException] | None, *rest: object) -> None:
        if error is not None or self._undo is None:
            self.abort()
        else:
            self._open = False
            self._disk._commit(self._undo, self._fault, self._sync)

    def abort(self) -> None:
        if self._open:
            self._open = False
            if self._undo is None:
                self._environment.snapshots -= 1
            else:
                _undo(self._undo)

    def get(self, key: bytes, db: _Table) -> bytes | None:
        return db.records.get(key)

    def put(self, key: bytes, value: bytes, db: _Table) -> bool:
        self._set(db, key, value)
        return True

    def delete(self, key: bytes, db: _Table) -> bool:
        there = key in db.records
        if there:
            self._set(db, key, None)
        return there

    def stat(self, db: _Table) -> dict[str, int]:
        pages = sum(map(len, db.records.values())) // _PAGE_BYTES
        return {
            "psize": _PAGE_BYTES,
            "entries": len(db.keys),
            "branch_pages": 0,
            "leaf_pages": 1,
            "overflow_pages": pages,
        }

    def cursor(self, db: _Table) -> "_Cursor":
        return _Cursor(self, db)

    def _set(self, table: _Table, key: bytes, value: bytes | None) -> None:
        assert self._undo is not None, "a reader writes nothing"
        if self._fault is Fault.REFUSED:
            raise lmdb.DiskError("No space left on device")
        self._undo.append((table, key, table.records.get(key)))
        table.set(key, value)


class _Cursor:
    def __init__(self, transaction: _Transaction, table: _Table) -> None:
        self._transaction = transaction
        self._table = table
        self._at: bytes | None = None

    def __enter__(self) -> "_Cursor":
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing: there is nothing to release."""

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return ((key, self._table.records[key]) for key in list(self._table.keys))

    def first(self) -> bool:
        self._at = self._table.keys[0] if self._table.keys else None
        return self._at is not None

    def last(self) -> bool:
        self._at = self._table.keys[-1] if self._table.keys else None
        return self._at is not None

    def set_range(self, key: bytes) -> bool:
        place = bisect_left(self._table.keys, key)
        self._at = self._table.keys[place] if place < len(self._table.keys) else None
        return self._at is not None

    def next(self) -> bool:
        assert self._at is not None, "the cursor stands at an entry"
        return self.set_range(self._at + b"\0")

    def key(self) -> bytes:
        return self._at or b""

    def value(self) -> bytes:
        return self._table.records[self._at] if self._at is not None else b""

    def item(self) -> tuple[bytes, bytes]:
        return self.key(), self.value()

    def delete(self) -> bool:
        return self._at is not None and self._transaction.delete(self._at, self._table)

    def putmulti(self, entries: Iterable[tuple[bytes, bytes]], append: bool = False) -> tuple[int, int]:
        """Put entries.

        With ``append``, only entries after the last key are put. Returns how many were given, and how many put.
        """
        given = added = 0
        for key, value in entries:
            given += 1
            if not (append and self._table.keys and key <= self._table.keys[-1]):
                self._transaction.put(key, value, self._table)
                added += 1
        return given, added


def any_records(disk: Disk) -> dict[str, dict[bytes, Any]]:
    """All records on a disk, by table."""
    return {name: dict(table.records) for name, table in disk._tables.items()}
