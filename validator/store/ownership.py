"""Who owns a store and who reads it, by locks on files beside it.

LMDB's own lock is not enough: a reader opens the file of the data before it asks for that lock, and would find itself
with the old file beside the new one where that is put in its place meanwhile.
"""

import fcntl
import os
from pathlib import Path
from typing import IO, Final

from validator.store.snapshot import StorageFailed

OWNER_LOCK: Final = "owner.lock"
READERS_LOCK: Final = "readers.lock"


def own(path: Path) -> IO[bytes]:
    """Hold the store in the folder ``path`` for this process alone, until the file is closed or the process ends.

    Raises StorageFailed where another holds it.
    """
    return _hold(path / OWNER_LOCK, f"the store at {path} is in use by another validator: stop that first")


def read_shared(path: Path) -> IO[bytes] | None:
    """Keep the store's file in the folder ``path`` where it is, until the file is closed or the process ends.

    Waits where it is being replaced. None where nobody may write to the folder: nor can anybody replace it then.
    """
    try:
        file = os.fdopen(os.open(path / READERS_LOCK, os.O_RDONLY | os.O_CREAT, 0o600), "rb")
    except OSError:
        return None
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def keep_readers_out(path: Path) -> IO[bytes]:
    """Let nobody open the store in the folder ``path`` for reading, until the file is closed.

    Raises StorageFailed where somebody reads it.
    """
    return _hold(
        path / READERS_LOCK, f"another process reads the store at {path}: wait until it has ended, and try again"
    )


def _hold(lock: Path, held: str) -> IO[bytes]:
    """Lock a file alone, which is made where it is absent. Raises StorageFailed with ``held`` where another has it."""
    file = os.fdopen(os.open(lock, os.O_RDONLY | os.O_CREAT, 0o600), "rb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise StorageFailed(held) from None
    return file
