"""Whether what a disk refused was refused for want of room, which LMDB tells as an error of the disk at times.

A write that the disk takes a part of is one: LMDB has no other name for it than Input/output error.
"""

import errno
import os
from pathlib import Path
from typing import Final

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What a system says where there is no room for a file to grow."""
_LITTLE_BYTES: Final = 64 * 1024
"""So much is as good as nothing: a commit's own pages take more."""


def want_of_room(error: Exception, where: Path | int, wanted_bytes: int = 0) -> str:
    """What to say of room, in words; empty where it is not what is wanting.

    ``where``: a path or descriptor on the disk; ``wanted_bytes``: how much there should have been room for.
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
