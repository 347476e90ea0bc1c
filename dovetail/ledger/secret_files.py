"""Who may read the file of a secret, and who may change a file that says whom to trust. No files are read here."""

import stat


def readable_by_others(mode: int, owner: int, reader: int) -> str | None:
    """Why a secret's file is read by too many, with its mode and what to do; None where it is not.

    ``mode`` is the file's, ``owner`` and ``reader`` are user ids: whose it is, who reads. Its owner alone may read it.
    Where it is root's and another user reads it, its group may too: so a service manager hands a file to a service.
    """
    handed = owner == 0 and reader != 0
    allowed = stat.S_IRWXU | (stat.S_IRGRP if handed else 0)
    mode = stat.S_IMODE(mode)
    if mode & ~allowed & 0o777:
        return f"others than its owner may read or change it (mode {mode:04o}): chmod {'640' if handed else '600'} it"
    return None


def changeable_by_others(mode: int, owner: int, reader: int) -> str | None:
    """Why others than its reader and root could change a file or folder, and what to do; None where they could not.

    ``mode`` is the file's, ``owner`` and ``reader`` are user ids: whose it is, who reads.
    """
    if owner not in (0, reader):
        return f"it belongs to user {owner}, who may change it: chown it to user {reader}, who reads it, or to root"
    mode = stat.S_IMODE(mode)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others than its owner may change it (mode {mode:04o}): chmod go-w it"
    return None
