"""Gives the files of a store to the owner of its folder, and explains missing permissions.

Without this, maintenance by root would leave files in a user's store that the user's validator may not open.
"""

import errno
import os
import pwd
from contextlib import suppress
from pathlib import Path
from typing import Final

_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM})


def make_file(path: Path) -> int:
    """Create a file that only the owner of its folder may use. Returns its descriptor. Raises OSError."""
    # O_EXCL refuses existing files and links, which may belong to anybody.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    _give(descriptor, path.parent)
    return descriptor


def make_where_absent(path: Path) -> None:
    """Create an empty file with ``make_file`` unless it exists. Raises OSError."""
    with suppress(FileExistsError):
        os.close(make_file(path))


def make_folder(path: Path, *, exist_ok: bool = False) -> None:
    """Create a folder that belongs to its parent's owner. Raises OSError, also FileExistsError if a file is there."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if exist_ok and path.is_dir():
            return
        raise
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _give(descriptor, path.parent)
    finally:
        os.close(descriptor)


def lack_of_permission(error: Exception, store: Path, *used: Path) -> str:
    """A sentence about missing permissions; empty if permission is not the cause.

    ``used``: the files of the ``store`` that LMDB opens, since LMDB's error does not name the refused file.
    """
    code = error.errno if isinstance(error, OSError) else getattr(error, "code", None)
    if code == errno.EROFS:
        return f"{store} is on a read-only file system: mount it for writing, or restore a backup of it elsewhere"
    if code not in _FORBIDDEN:
        return ""
    named = getattr(error, "filename", None)
    refused = [path for path in used if not os.access(path, os.R_OK | os.W_OK, effective_ids=True)]
    path, status = _nearest(Path(named) if named else [*refused, store][0])
    me = os.geteuid()
    if status.st_uid == me:
        return (
            f"{path} has the mode {status.st_mode & 0o7777:04o}: its owner, user {_named(me)}, must be allowed to read"
            " and write it"
        )
    chown = f"chown -R {me} {store}" if path.is_relative_to(store) else f"chown {me} {path}"
    return (
        f"{path} belongs to user {_named(status.st_uid)}, this process is user {_named(me)}: run it as user"
        f" {_named(status.st_uid)}, or, where the store is to be user {_named(me)}'s, `{chown}`"
    )


def _nearest(path: Path) -> tuple[Path, os.stat_result]:
    """The file, or the nearest folder above it that this process can see."""
    while True:
        try:
            return path, path.stat()
        except OSError:
            path = path.parent


def _give(descriptor: int, folder: Path) -> None:
    owner = folder.stat()
    if os.fstat(descriptor).st_uid != owner.st_uid:
        # Only root may change owners. Any other account keeps the file.
        with suppress(OSError):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _named(user: int) -> str:
    try:
        return f"{user} ({pwd.getpwuid(user).pw_name})"
    except KeyError:
        return str(user)
