"""Rules on the modes and owners of files with secrets and with lists of trusted keys. Reads no files.

Each function gets a file's ``mode`` and ``owner``, and the user id ``reader`` of the process.
"""

import stat


def readable_by_others(mode: int, owner: int, reader: int) -> str | None:
    """Why too many accounts can read a secret's file, with its mode and what to do; None if only its owner can.

    If root owns the file and the reader is not root, the file's group may read it too, because service managers pass
    secrets this way.
    """
    handed = owner == 0 and reader != 0
    allowed = stat.S_IRWXU | (stat.S_IRGRP if handed else 0)
    mode = stat.S_IMODE(mode)
    if mode & ~allowed & 0o777:
        return f"others than its owner may read or change it (mode {mode:04o}): chmod {'640' if handed else '600'} it"
    return None


def changeable_by_others(mode: int, owner: int, reader: int) -> str | None:
    """Why accounts other than the reader and root can change a file or folder, and what to do; None if none can."""
    if owner not in (0, reader):
        return f"it belongs to user {owner}, who may change it: chown it to user {reader}, who reads it, or to root"
    mode = stat.S_IMODE(mode)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others than its owner may change it (mode {mode:04o}): chmod go-w it"
    return None
