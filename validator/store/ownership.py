"""Who owns a store: one process, by a lock on a file beside it. Whether others read it is LMDB's to know."""

import fcntl
import os
from pathlib import Path
from typing import IO, Final

from validator.store.snapshot import StorageFailed

OWNER_LOCK: Final = "owner.lock"


def own(path: Path) -> IO[bytes]:
    """Hold the store in the folder ``path`` for this process alone, until the file is closed or the process ends.

    Raises StorageFailed where another holds it.
    """
    file = os.fdopen(os.open(path / OWNER_LOCK, os.O_WRONLY | os.O_CREAT, 0o600), "ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise StorageFailed(f"the store at {path} is in use by another validator") from None
    return file
