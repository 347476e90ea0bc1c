"""Reads the files of connection keys. ``connection_keys`` checks their contents."""

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
    """The secret key in the file ``path`` of the setting ``setting``.

    Raises InvalidKey, also if the file cannot be read, or if others can read it. The message names the setting and the
    path, never a secret.
    """
    content, status = _read(setting, path)
    try:
        return decode_secret(content, path.name, mode=status.st_mode, owner=status.st_uid, reader=os.geteuid())
    except InvalidKey as error:
        raise InvalidKey(f"{setting} {path}: {error}") from None


def read_public(setting: str, path: Path) -> ConnectionPublicKey:
    """The public key in the file ``path`` of the setting ``setting``. Raises InvalidKey."""
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
