"""Connection keys, which authenticate processes on the validator's port, and the contents of their files.

A key of CurveZMQ (ZeroMQ RFC 26) has 32 bytes, written as 40 characters of Z85 (RFC 32) in a file of one line. It signs
nothing on the ledger. This module neither reads files nor generates keys.
"""

import functools
import re
from typing import Final, NewType

from dovetail.ledger.errors import InvalidKey
from dovetail.ledger.secret_files import readable_by_others

ConnectionPublicKey = NewType("ConnectionPublicKey", str)
"""40 characters of Z85; no secret."""

KEY_FILE_BYTES_MAX: Final = 1024
SECRET_SUFFIX: Final = ".priv"
PUBLIC_SUFFIX: Final = ".pub"
_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_KEY_CHARACTERS: Final = 40
_GROUP_CHARACTERS: Final = 5
"""A group of five characters encodes 32 bits. Five characters have more combinations, so some groups are invalid."""

_is_signing_key = re.compile(r"[0-9a-f]{64}|0[23][0-9a-f]{64}").fullmatch


class ConnectionSecret:
    """The secret half of a connection key. Its ``repr`` hides the key."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> bytes:
        """The 40 characters of the key."""
        return self._text.encode("ascii")

    def __repr__(self) -> str:
        return "ConnectionSecret(…)"


def decode_secret(content: bytes, name: str, *, mode: int, owner: int, reader: int) -> ConnectionSecret:
    """The secret key in a file with this ``name``, ``mode`` and ``owner`` (user id), read by the user ``reader``.

    Raises InvalidKey, also if the name is that of a public key or if others can read the file
    (``readable_by_others``). The error's text never holds the content.
    """
    if name.endswith(PUBLIC_SUFFIX):
        raise InvalidKey(f"its name is that of a public key: name the {SECRET_SUFFIX} file that was made with it")
    text = _key_text(content, "secret")
    if fault := readable_by_others(mode, owner, reader):
        raise InvalidKey(fault)
    return ConnectionSecret(text)


def decode_public(content: bytes, name: str) -> ConnectionPublicKey:
    """The public key in a file with this ``name``. Raises InvalidKey, also if the name is that of a secret key."""
    if name.endswith(SECRET_SUFFIX):
        raise InvalidKey(f"its name is that of a secret key: name the {PUBLIC_SUFFIX} file beside it")
    return ConnectionPublicKey(_key_text(content, "public"))


def _is_z85_key(text: str) -> bool:
    if len(text) != _KEY_CHARACTERS or not set(text) <= set(_Z85):
        return False
    groups = (text[start : start + _GROUP_CHARACTERS] for start in range(0, _KEY_CHARACTERS, _GROUP_CHARACTERS))
    return all(functools.reduce(_read_digit, group, 0) < 2**32 for group in groups)


def _read_digit(value: int, digit: str) -> int:
    return value * len(_Z85) + _Z85.index(digit)


def _key_text(content: bytes, kind: str) -> str:
    text = content[: KEY_FILE_BYTES_MAX + 1].decode("ascii", "replace").strip()
    if len(content) <= KEY_FILE_BYTES_MAX and _is_z85_key(text):
        return text
    # Files of signing keys have the same suffixes, so this mistake is likely.
    but = "; it holds a key that signs" if _is_signing_key(text) else ""
    raise InvalidKey(f"it holds no {kind} connection key of 40 Z85 characters{but}")
