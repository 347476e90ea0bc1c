"""The locks of a store's owner and its readers, on files beside the data file.

LMDB's own lock is not enough: a reader opens the data file before it takes that lock, and would keep the old file if
the file is replaced in between.
"""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from dovetail.validator.store.full_disk import lack_of_room
from dovetail.validator.store.permissions import lack_of_permission, make_where_absent
from dovetail.validator.store.snapshot import StorageFailed

OWNER_LOCK: Final = "owner.lock"
READERS_LOCK: Final = "readers.lock"

_REPLACING_S_MAX: Final = 10
_POLL_S: Final = 0.02


class StoreInUse(StorageFailed):
    """Another process owns or reads the store."""


def own(path: Path) -> IO[bytes]:
    """Own the store in the folder ``path`` until the file is closed or the process ends.

    Raises StoreInUse if another process owns it, and StorageFailed.
    """
    return _hold(path / OWNER_LOCK, f"the store at {path} is in use by another validator: stop that first")


def read_shared(path: Path) -> IO[bytes] | None:
    """Prevent the replacement of the store's file in the folder ``path`` until the returned file is closed.

    Waits at most _REPLACING_S_MAX while the file is being replaced, then raises StoreInUse. Returns None if there is no
    lock file and this process may not create one: a process that replaces the store's file takes LMDB's own lock too.
    Raises StorageFailed if the lock file cannot be opened or locked.
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
        time.sleep(_POLL_S)
    return file


def keep_readers_out(path: Path) -> IO[bytes]:
    """Prevent reads of the store in the folder ``path`` until the returned file is closed.

    Raises StoreInUse if another process reads it, and StorageFailed.
    """
    return _hold(
        path / READERS_LOCK, f"another process reads the store at {path}: wait until it has ended, and try again"
    )


def _hold(lock: Path, held: str) -> IO[bytes]:
    """Lock a file exclusively, and create it if absent. Raises StoreInUse with ``held``, and StorageFailed."""
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
        # The previous holder removed the file: a new file of that name is the lock now.
        file.close()


def is_at(file: IO[bytes], path: Path) -> bool:
    """Whether an open file is the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def _is_taken(file: IO[bytes], how: int, lock: Path) -> bool:
    """Take a lock; True if another process holds it. Closes the file and raises StorageFailed if locks do not work."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        file.close()
        raise no_locks(lock, error) from None
    return False


def no_locks(lock: Path, error: OSError) -> StorageFailed:
    """The error for a file that cannot be locked though no process holds the lock."""
    return StorageFailed(
        f"the file system of {lock} gives no locks ({error.strerror}): put the data folder on a local one"
    )


def _open(lock: Path) -> IO[bytes]:
    """Open a lock's file, and create it if absent. Raises OSError."""
    with suppress(FileNotFoundError):
        return lock.open("rb")
    make_where_absent(lock)
    return lock.open("rb")


def cannot_lock(lock: Path, error: OSError) -> StorageFailed:
    """The error for a lock file in a store's folder that can neither be opened nor created."""
    want = lack_of_permission(error, lock.parent) or lack_of_room(error, lock.parent)
    return StorageFailed(f"cannot lock {lock}: {error.strerror}{want and f'; {want}'}")
