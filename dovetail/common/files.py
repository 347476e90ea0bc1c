"""Private folders, and writes that never leave half a file."""

import os
import secrets
from pathlib import Path

from dovetail.common.errors import Refused


def make_private_dir(path: Path) -> None:
    """Make ``path`` and its missing parents with mode 0700. Raises Refused."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        for folder in reversed(missing):
            folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise Refused(f"cannot make the folder {path}: {error.strerror}") from None
    if not path.is_dir():
        raise Refused(f"{path} is not a folder")


def write_whole(path: Path, content: bytes, *, mode: int, overwrite: bool = False) -> None:
    """Write a file that gets its name only when its content is synced to disk.

    Raises Refused and, without ``overwrite``, FileExistsError.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if overwrite:
                os.replace(partial, path)
            else:
                # Unlike a rename, a link fails if the name exists, so only one of two writers wins.
                os.link(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except FileExistsError:
        raise
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}") from None
