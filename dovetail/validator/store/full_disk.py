"""Recognises a full disk, or a lack of address space, behind an error of LMDB or the system.

LMDB reports a write that the disk accepts only in part as "Input/output error".
"""

import errno
import os
import resource
from pathlib import Path
from typing import Final

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The error codes for a file that cannot grow."""
_LITTLE_BYTES: Final = 64 * 1024
"""With less free space the disk counts as full: a commit's own pages need more."""


def lack_of_room(error: Exception, where: Path | int, wanted_bytes: int = 0) -> str:
    """A sentence about the lack of space; empty if space is not the cause.

    ``where``: a path or descriptor on the disk; ``wanted_bytes``: the size of the failed write.
    """
    code = error.errno if isinstance(error, OSError) else getattr(error, "code", None)
    try:
        disk = os.statvfs(where)
    except OSError:
        free = None
    else:
        free = disk.f_bavail * disk.f_frsize
    if code not in NO_ROOM and (free is None or free > max(_LITTLE_BYTES, wanted_bytes)):
        return ""
    return f"there is no room on the disk{'' if free is None else f', {free} bytes are free'}: make room"


def lack_of_address_space(error: Exception) -> str:
    """A sentence about the lack of address space for the store's map; empty if that is not the cause."""
    code = error.errno if isinstance(error, OSError) else getattr(error, "code", None)
    if code != errno.ENOMEM:
        return ""
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    if allowed == resource.RLIM_INFINITY:
        return "the system gives this process no more address space: see to its limits of memory and of mappings"
    return (
        f"this process may have {allowed} bytes of address space (RLIMIT_AS), and the map of the store, which takes no"
        " memory, needs more: raise the limit (ulimit -v unlimited, LimitAS=infinity in a unit file, or of the running"
        f" process: prlimit --pid {os.getpid()} --as=unlimited)"
    )
