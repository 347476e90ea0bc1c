"""Staging folders for new files of a store, and the atomic step that puts such a file in place.

A staging folder has a fixed name beside its target and is locked by its process. So a later run recognises and removes
the folder of a killed run.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from dovetail.validator.maintenance.child import OnStep, Step
from dovetail.validator.store import StorageFailed
from dovetail.validator.store.full_disk import lack_of_room
from dovetail.validator.store.length import DATA
from dovetail.validator.store.locks import (
    OWNER_LOCK,
    READERS_LOCK,
    StoreInUse,
    cannot_lock,
    is_at,
    keep_readers_out,
    no_locks,
    own,
)
from dovetail.validator.store.opening import LOCK, sync_file, sync_folder
from dovetail.validator.store.permissions import make_file, make_folder, make_where_absent

COMPACTING: Final = "compacting"
REPAIRING: Final = "repairing"
DAMAGED: Final = "damaged-*.mdb"
"""Names in a store's folder: the staging folders, and the files that repairs have put aside."""

_COPY_BYTES: Final = 1024 * 1024

Finish = Callable[[], None]
"""Called right before the new file is put in place. From then on, an interrupt would leave the outcome unclear."""


@contextmanager
def staging_folder(folder: Path, removed: list[Path], *, handed_over: bool = True) -> Iterator[Path]:
    """A new folder that is removed afterwards, unless it was renamed. Removes what a killed run left there before.

    ``removed`` receives the path of such a leftover. ``handed_over``: the folder and the files in it belong to the
    owner of the parent folder. Raises StorageFailed.
    """
    try:
        with _claimed(folder, removed, handed_over) as lock:
            try:
                yield folder
            finally:
                # After a rename, the folder of this name may be another run's.
                if is_at(lock, folder / OWNER_LOCK):
                    shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        lack = lack_of_room(error, folder.parent)
        raise StorageFailed(f"cannot write {folder}: {error.strerror}{lack and f'; {lack}'}") from None


def _claimed(folder: Path, removed: list[Path], handed_over: bool) -> IO[bytes]:
    """Create the folder and return its held lock. Raises StorageFailed and OSError."""
    try:
        if folder.exists():
            with own(folder):
                shutil.rmtree(folder)
            removed.append(folder)
        if handed_over:
            make_folder(folder)
        else:
            folder.mkdir(mode=0o700)
        return own(folder)
    except (StoreInUse, FileExistsError):
        raise StorageFailed(f"another run is making {folder} now: wait until it has ended") from None


def leftovers(store: Path) -> list[Path]:
    """The staging folders that killed runs left in a store's folder."""
    return [folder for folder in (store / COMPACTING, store / REPAIRING) if folder.exists()]


def put_aside(store: Path) -> list[Path]:
    """The damaged files that repairs kept. Omits links to the store's current file, which a killed repair leaves."""
    return sorted(path for path in store.glob(DAMAGED) if not _is_live(path))


def _is_live(path: Path) -> bool:
    try:
        return path.samefile(path.with_name(DATA))
    except FileNotFoundError:
        return False


def require_unread(store: Path) -> None:
    """Raises StorageFailed if another process has the store open.

    ``swap_in`` checks this, too, but only after all the work.
    """
    with keep_readers_out(store), _nobody_reads(store):
        pass


def swap_in(made: Path, store: Path, finish: Finish, *, keep: bool) -> Path | None:
    """Replace the store's file, in one step, by the file in the folder ``made``. The caller owns the store.

    ``keep``: keep the old file under another name, and return its path. Raises StorageFailed if another process has
    the store open.
    """
    kept = None
    # Sync before the lock is taken, because readers wait for the lock.
    sync_file(made / DATA)
    with keep_readers_out(store), _nobody_reads(store):
        for path in filter(_is_live, store.glob(DAMAGED)):
            path.unlink()
        finish()
        if keep:
            kept = next(path for n in range(1, 10**6) if not (path := store / DAMAGED.replace("*", str(n))).exists())
            os.link(store / DATA, kept)
            sync_folder(store)
        os.replace(made / DATA, store / DATA)
        sync_folder(store)
    return kept


@contextmanager
def _nobody_reads(store: Path) -> Iterator[None]:
    """Hold LMDB's lock on its table of readers, which every process with an open store shares."""
    lock = store / LOCK
    try:
        make_where_absent(lock)
        file = lock.open("rb+")
    except OSError as error:
        raise cannot_lock(lock, error) from None
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise no_locks(lock, error) from None
            raise StorageFailed(
                f"another process reads the store at {store}: wait until it has ended, and try again"
            ) from None
        yield


def copy_file(source: Path, target: Path, on_step: OnStep) -> None:
    """Copy a file. The copy is readable for its owner only, and synced on return. Raises OSError."""
    total, done = source.stat().st_size, 0
    with source.open("rb") as old, os.fdopen(make_file(target), "wb") as new:
        while piece := old.read(_COPY_BYTES):
            new.write(piece)
            done += len(piece)
            on_step(Step("copying, MiB", done >> 20, total >> 20))
        new.flush()
        os.fsync(new.fileno())


def rename_folder(folder: Path, target: Path, finish: Finish) -> None:
    """Rename a finished folder. Synced on return. Raises StorageFailed if the name is taken."""
    for path in folder.iterdir():
        if path.name in (LOCK, READERS_LOCK):
            path.unlink()
    sync_folder(folder)
    finish()
    try:
        os.rename(folder, target)
    except OSError as error:
        raise StorageFailed(f"cannot give {folder} the name {target}: {error.strerror}") from None
    sync_folder(target.parent)
