"""Whose the files of a store are: the owner's of its folder, also where root makes them; and what to say where not.

Root's maintenance on a user's store would leave files behind that the user's validator may not open.
"""

import errno
import os
import pwd
from contextlib import suppress
from pathlib import Path
from typing import Final

_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM})


def make_file(path: Path) -> int:
    """Make a file for the owner of its folder alone; a descriptor to read and write. Raises OSError."""
    # Never what is there already, nor what a link leads to: that may be anybody's.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    _give(descriptor, path.parent)
    return descriptor


def make_where_absent(path: Path) -> None:
    """Make an empty file as ``make_file`` does. Raises OSError."""
    with suppress(FileExistsError):
        os.close(make_file(path))


def make_folder(path: Path, *, exist_ok: bool = False) -> None:
    """Make a folder for the owner of the one that it is in. Raises OSError; FileExistsError for a file in any case."""
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


def want_of_permission(error: Exception, store: Path, *used: Path) -> str:
    """What to say of permission to write or read, in words; empty where it is not what is wanting.

    ``used``: the files of the ``store`` that are read and written, of which LMDB does not say which was refused.
    """
    code = error.errno if isinstance(error, OSError) else getattr(error, "code", None)
    if code == errno.EROFS:
        return f"{store} is on a read-only file system: mount it for writing, or restore a backup of it elsewhere"
    if code not in _FORBIDDEN:
        return ""
    named = getattr(error, "filename", None)
    refused = [path for path in used if not os.access(path, os.R_OK | os.W_OK, effective_ids=True)]
    path, found = _nearest(Path(named) if named else [*refused, store][0])
    me = os.geteuid()
    if found.st_uid == me:
        return (
            f"{path} has the mode {found.st_mode & 0o7777:04o}: its owner, user {_named(me)}, must be allowed to read"
            " and write it"
        )
    chown = f"chown -R {me} {store}" if path.is_relative_to(store) else f"chown {me} {path}"
    return (
        f"{path} belongs to user {_named(found.st_uid)}, this process is user {_named(me)}: run it as user"
        f" {_named(found.st_uid)}, or, where the store is to be user {_named(me)}'s, `{chown}`"
    )


def _nearest(path: Path) -> tuple[Path, os.stat_result]:
    """The file, or the folder above it that hides it or may not be written to."""
    while True:
        try:
            return path, path.stat()
        except OSError:
            path = path.parent


def _give(descriptor: int, folder: Path) -> None:
    owner = folder.stat()
    if os.fstat(descriptor).st_uid != owner.st_uid:
        # Root may; who else writes into another's folder keeps what is made.
        with suppress(OSError):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _named(user: int) -> str:
    try:
        return f"{user} ({pwd.getpwuid(user).pw_name})"
    except KeyError:
        return str(user)
