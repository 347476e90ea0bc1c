"""How the file of a store is made, and how it is opened: whole, or not at all."""

import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import lmdb

from dovetail.validator.store.full_disk import NO_ROOM
from dovetail.validator.store.length import DATA, require_whole
from dovetail.validator.store.owner import make_file, make_where_absent
from dovetail.validator.store.records import FORMAT, FORMAT_KEY, TABLES
from dovetail.validator.store.snapshot import StorageFailed

READERS_MAX: Final = 512
"""Most read snapshots of one store at a time, over all processes: the validator's one, and those of its readers."""

_SPARE_SNAPSHOTS: Final = 1
"""What is let go keeps its slot among READERS_MAX for what is begun next: nobody can take it in between."""

LOCK: Final = "lock.mdb"
"""In a store's folder: LMDB's table of readers."""

_LOCK_BYTES: Final = (READERS_MAX + 2) * 64
"""How long LMDB makes it: what is common to all, and a place for each reader."""

_MAKING: Final = f"{DATA}.new"


def make(folder: Path, map_bytes: int) -> None:
    """Make a store without a block in ``folder``, which the caller owns. Its file has its name when it is on disk.

    Raises lmdb.Error and OSError, and then there is none.
    """
    made, path = folder / _MAKING, folder / DATA
    # Who was killed may have left one.
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
    """The environment of the store in ``folder``, which must be there, and its tables by name.

    Raises StorageFailed where the file is no whole store, lmdb.Error and OSError.
    """
    require_whole(folder)
    # LMDB would make it whoever runs this. Without, it refuses or does without a lock.
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
        # Who was killed left its slot behind.
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
    """Take room on the disk for the whole table of readers: LMDB maps it, and a full disk would end the process there.

    Raises OSError where there is no room; whatever else may be wrong is for LMDB to say.
    """
    try:
        # Not one of full length: another environment of this process would lose its locks when the file is closed.
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
    """Return when what was written to a file is on disk. Raises OSError."""
    _sync(path, os.O_RDWR)


def sync_folder(path: Path) -> None:
    """The same of the names in a folder."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
