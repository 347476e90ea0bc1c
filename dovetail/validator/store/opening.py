"""Creates and opens the file of a store, and refuses a file that is not whole."""

import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import lmdb

from dovetail.validator.store.full_disk import NO_ROOM
from dovetail.validator.store.length import DATA, require_whole
from dovetail.validator.store.permissions import make_file, make_where_absent
from dovetail.validator.store.records import FORMAT, FORMAT_KEY, TABLES
from dovetail.validator.store.snapshot import StorageFailed

READERS_MAX: Final = 512
"""The most read snapshots of a store at a time, in all processes together."""

_SPARE_SNAPSHOTS: Final = 1
"""An ended snapshot keeps its slot among READERS_MAX for the next snapshot, so that no other process takes the slot."""

LOCK: Final = "lock.mdb"
"""The name of LMDB's table of readers in a store's folder."""

_LOCK_BYTES: Final = (READERS_MAX + 2) * 64
"""The size that LMDB gives the table: a header, and a slot for each reader."""

_MAKING: Final = f"{DATA}.new"


def make(folder: Path, map_bytes: int) -> None:
    """Create a store without blocks in ``folder``, which the caller owns. The file gets its name once it is synced.

    Raises lmdb.Error and OSError, and then leaves no file.
    """
    made, path = folder / _MAKING, folder / DATA
    # A killed process may have left a file of this name.
    made.unlink(missing_ok=True)
    try:
        os.close(make_file(made))
        env = lmdb.open(str(made), subdir=False, lock=False, map_size=map_bytes, max_dbs=len(TABLES), mode=0o600)
        try:
            tables = {name: env.open_db(name.encode()) for name in TABLES}
            with env.begin(write=True) as transaction:
                transaction.put(FORMAT_KEY, FORMAT, db=tables["meta"])
        finally:
            env.close()
        sync_file(made)
        made.rename(path)
        try:
            for parent in (folder, folder.parent):
                sync_folder(parent)
        except OSError:
            path.unlink()
            raise
    except (lmdb.Error, OSError):
        made.unlink(missing_ok=True)
        raise


def open_file(folder: Path, **options: Any) -> tuple[Any, dict[str, Any]]:
    """The environment of the existing store in ``folder``, and its tables by name.

    Raises StorageFailed if the file is no whole store; also raises lmdb.Error and OSError.
    """
    require_whole(folder)
    # LMDB would create the lock file with this process's owner. If its creation fails here, LMDB refuses to open the
    # store or works without a lock file.
    with suppress(OSError):
        make_where_absent(folder / LOCK)
    _make_room(folder / LOCK)
    with ExitStack() as undo:
        env = lmdb.open(
            str(folder),
            max_dbs=len(TABLES),
            max_readers=READERS_MAX,
            max_spare_txns=_SPARE_SNAPSHOTS,
            create=False,
            mode=0o600,
            **options,
        )
        undo.callback(env.close)
        # Killed processes leave their slots behind.
        env.reader_check()
        try:
            tables = {name: env.open_db(name.encode(), create=False) for name in TABLES}
        except lmdb.NotFoundError:
            raise StorageFailed(
                f"what lies at {folder} is no store, or one of another release, or damaged: `dovetail store repair`"
                f" saves what it can find in it, or restore a backup; where there never was a ledger in that folder,"
                f" remove its {DATA}"
            ) from None
        undo.pop_all()
    return env, tables


def _make_room(lock: Path) -> None:
    """Allocate the whole table of readers: LMDB maps it, and a full disk would kill the process on access.

    Raises OSError if there is no space; LMDB reports all other errors.
    """
    try:
        # Do not open a complete file: closing it would drop the locks of other environments of this process.
        if lock.stat().st_size >= _LOCK_BYTES:
            return
        descriptor = os.open(lock, os.O_RDWR)
        try:
            os.posix_fallocate(descriptor, 0, _LOCK_BYTES)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise OSError(error.errno, error.strerror, str(lock)) from None


def sync_file(path: Path) -> None:
    """Return when the contents of a file are on disk. Raises OSError."""
    _sync(path, os.O_RDWR)


def sync_folder(path: Path) -> None:
    """Return when the names in a folder are on disk. Raises OSError."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
