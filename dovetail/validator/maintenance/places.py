"""Where maintenance keeps what it is making, and how that takes the place of what was: whole, or not at all.

What is being made lies under one name each beside what it is for, and is locked by who makes it. So a later run knows
what a killed one left, and removes it.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from dovetail.validator.maintenance.apart import Step, Tell
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
"""In a store's folder: what is being made, and the files that repairs have put aside."""

_COPY_BYTES: Final = 1024 * 1024

Finish = Callable[[], None]
"""Called when what is made takes its place next: to interrupt that, or what is said of it, would tell nobody which."""


@contextmanager
def being_made(folder: Path, removed: list[Path], *, handed_over: bool = True) -> Iterator[Path]:
    """A folder to make something in; gone afterwards, unless it was renamed. What a killed run left goes first.

    ``removed`` gets its name where that was so. ``handed_over``: it belongs to the owner of the folder that it is in,
    and so does what is made in it. Raises StorageFailed.
    """
    try:
        with _claimed(folder, removed, handed_over) as lock:
            try:
                yield folder
            finally:
                # Where it was renamed, another run may be making one of that name.
                if is_at(lock, folder / OWNER_LOCK):
                    shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        lack = lack_of_room(error, folder.parent)
        raise StorageFailed(f"cannot write {folder}: {error.strerror}{lack and f'; {lack}'}") from None


def _claimed(folder: Path, removed: list[Path], handed_over: bool) -> IO[bytes]:
    """Make the folder; its lock, held. Raises StorageFailed and OSError."""
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
    """What killed runs have left in a store's folder."""
    return [folder for folder in (store / COMPACTING, store / REPAIRING) if folder.exists()]


def put_aside(store: Path) -> list[Path]:
    """The damaged files that repairs have kept; not the store's own, which a killed one has given such a name too."""
    return sorted(path for path in store.glob(DAMAGED) if not _is_live(path))


def _is_live(path: Path) -> bool:
    try:
        return path.samefile(path.with_name(DATA))
    except FileNotFoundError:
        return False


def require_unread(store: Path) -> None:
    """Raises StorageFailed where others have the store open: ``swap_in`` would, once all the work is done."""
    with keep_readers_out(store), _nobody_reads(store):
        pass


def swap_in(made: Path, store: Path, finish: Finish, *, keep: bool) -> Path | None:
    """Let the file of the folder ``made`` be the store's, in one step; ``keep``: the old one under another name.

    The caller owns the store. Raises StorageFailed where others have it open.
    """
    kept = None
    # Before the lock, for which readers wait.
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
    """Hold LMDB's own lock on its table of readers, which everybody shares who has the store open."""
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


def copy_file(source: Path, target: Path, tell: Tell) -> None:
    """Copy a file, synced on return; the new one is for its owner alone. Raises OSError."""
    total, done = source.stat().st_size, 0
    with source.open("rb") as old, os.fdopen(make_file(target), "wb") as new:
        while piece := old.read(_COPY_BYTES):
            new.write(piece)
            done += len(piece)
            tell(Step("copying, MiB", done >> 20, total >> 20))
        new.flush()
        os.fsync(new.fileno())


def rename_folder(folder: Path, target: Path, finish: Finish) -> None:
    """Give a finished folder its name, on disk on return. Raises StorageFailed where something has that name."""
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
