"""Who owns a store and who reads it, by locks on files beside it.

LMDB's own lock is not enough: a reader opens the file of the data before it asks for that lock, and would find itself
with the old file beside the new one where that is put in its place meanwhile.
"""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from dovetail.validator.store.full_disk import want_of_room
from dovetail.validator.store.owner import make_where_absent, want_of_permission
from dovetail.validator.store.snapshot import StorageFailed

OWNER_LOCK: Final = "owner.lock"
READERS_LOCK: Final = "readers.lock"

_REPLACING_S_MAX: Final = 10
"""Replacing takes a moment: what was made is on disk before."""
_LOOK_S: Final = 0.02


class StoreInUse(StorageFailed):
    """Another process holds the store, or reads it."""


def own(path: Path) -> IO[bytes]:
    """Hold the store in the folder ``path`` for this process alone, until the file is closed or the process ends.

    Raises StoreInUse where another holds it, and StorageFailed.
    """
    return _hold(path / OWNER_LOCK, f"the store at {path} is in use by another validator: stop that first")


def read_shared(path: Path) -> IO[bytes] | None:
    """Keep the store's file in the folder ``path`` where it is, until the file is closed or the process ends.

    Waits where it is being replaced, _REPLACING_S_MAX at most. None where there is no lock and this process may make
    none: who replaces the file asks for LMDB's own lock too. Raises StorageFailed where there is one that may not be
    opened or taken.
    """
    lock = path / READERS_LOCK
    try:
        file = _open(lock)
    except OSError as error:
        if not os.path.exists(lock):
            return None
        raise cannot_lock(lock, error) from None
    until = time.monotonic() + _REPLACING_S_MAX
    while _is_taken(file, fcntl.LOCK_SH, lock):
        if time.monotonic() > until:
            file.close()
            raise StoreInUse(
                f"the file of the store at {path} is being replaced (store compact, store repair), and that has not"
                f" ended after {_REPLACING_S_MAX} s: look whether that process is stopped, and try again"
            )
        time.sleep(_LOOK_S)
    return file


def keep_readers_out(path: Path) -> IO[bytes]:
    """Let nobody open the store in the folder ``path`` for reading, until the file is closed.

    Raises StoreInUse where somebody reads it, and StorageFailed.
    """
    return _hold(
        path / READERS_LOCK, f"another process reads the store at {path}: wait until it has ended, and try again"
    )


def _hold(lock: Path, held: str) -> IO[bytes]:
    """Lock a file alone, which is made where it is absent. Raises StoreInUse with ``held``, and StorageFailed."""
    while True:
        try:
            file = _open(lock)
        except OSError as error:
            raise cannot_lock(lock, error) from None
        if _is_taken(file, fcntl.LOCK_EX, lock):
            file.close()
            raise StoreInUse(held)
        if is_at(file, lock):
            return file
        # Who had it meanwhile removed it: another file of that name is the lock.
        file.close()


def is_at(file: IO[bytes], path: Path) -> bool:
    """Whether an open file is the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def _is_taken(file: IO[bytes], how: int, lock: Path) -> bool:
    """Take a lock unless another has it. Raises StorageFailed, and closes the file, where there are no locks."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        file.close()
        raise no_locks(lock, error) from None
    return False


def no_locks(lock: Path, error: OSError) -> StorageFailed:
    """What to raise where a file cannot be locked, though nobody else has the lock."""
    return StorageFailed(
        f"the file system of {lock} gives no locks ({error.strerror}): put the data folder on a local one"
    )


def _open(lock: Path) -> IO[bytes]:
    """A lock's file, which is made where it is absent. Raises OSError."""
    with suppress(FileNotFoundError):
        return lock.open("rb")
    make_where_absent(lock)
    return lock.open("rb")


def cannot_lock(lock: Path, error: OSError) -> StorageFailed:
    """What to raise where the file of a lock in a store's folder can neither be opened nor made."""
    want = want_of_permission(error, lock.parent) or want_of_room(error, lock.parent)
    return StorageFailed(f"cannot lock {lock}: {error.strerror}{want and f'; {want}'}")
