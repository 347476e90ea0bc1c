"""Reads the files of connection keys, for the processes that show one and may not import each other.

The one place of this package that touches files. What they may hold is ``connection_keys``' business.
"""

import os
from pathlib import Path

from dovetail.ledger.connection_keys import (
    KEY_FILE_BYTES_MAX,
    ConnectionPublicKey,
    ConnectionSecret,
    decode_public,
    decode_secret,
)
from dovetail.ledger.errors import InvalidKey


def read_secret(setting: str, path: Path) -> ConnectionSecret:
    """The secret key in the file that ``setting`` names.

    Raises InvalidKey with both and what to do, never with a secret; also for a file that cannot be read, or that others
    can.
    """
    content, found = _read(setting, path)
    try:
        return decode_secret(content, path.name, mode=found.st_mode, owner=found.st_uid, reader=os.geteuid())
    except InvalidKey as error:
        raise InvalidKey(f"{setting} {path}: {error}") from None


def read_public(setting: str, path: Path) -> ConnectionPublicKey:
    """The public key in the file that ``setting`` names. Raises InvalidKey, as ``read_secret`` does."""
    content, _ = _read(setting, path)
    try:
        return decode_public(content, path.name)
    except InvalidKey as error:
        raise InvalidKey(f"{setting} {path}: {error}") from None


def _read(setting: str, path: Path) -> tuple[bytes, os.stat_result]:
    try:
        with path.open("rb") as file:
            return file.read(KEY_FILE_BYTES_MAX + 1), os.fstat(file.fileno())
    except OSError as error:
        raise InvalidKey(f"cannot read {setting} {path}: {error.strerror}") from None
