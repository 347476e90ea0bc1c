"""The keys of connections, by which processes know each other on the validator's port: what a key file may hold.

A key of CurveZMQ (ZeroMQ RFC 26): 32 bytes as 40 characters of Z85 (RFC 32), in a file of one line. It signs nothing on
the ledger. No files are read here, no key is made or computed.
"""

import functools
import re
from typing import Final, NewType

from dovetail.ledger.errors import InvalidKey
from dovetail.ledger.secret_files import readable_by_others

ConnectionPublicKey = NewType("ConnectionPublicKey", str)
"""40 characters of Z85. Who has it may be known to everybody."""

KEY_FILE_BYTES_MAX: Final = 1024
SECRET_SUFFIX: Final = ".priv"
PUBLIC_SUFFIX: Final = ".pub"
_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_KEY_CHARACTERS: Final = 40
_GROUP_CHARACTERS: Final = 5
"""Which stand for 32 bits: not every text is one."""

_is_signing_key = re.compile(r"[0-9a-f]{64}|0[23][0-9a-f]{64}").fullmatch


class ConnectionSecret:
    """The secret half of a connection key. What prints or logs it shows nothing of it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> bytes:
        """The 40 characters, for a socket."""
        return self._text.encode("ascii")

    def __repr__(self) -> str:
        return "ConnectionSecret(…)"


def decode_secret(content: bytes, name: str, *, mode: int, owner: int, reader: int) -> ConnectionSecret:
    """The secret key in a file of this ``name``.

    ``mode`` is the file's, ``owner`` and ``reader`` are user ids: whose it is, who reads.

    Raises InvalidKey, never with the content in the text; also where the name is a public key's, and where others could
    read it too (``readable_by_others``).
    """
    if name.endswith(PUBLIC_SUFFIX):
        raise InvalidKey(f"its name is that of a public key: name the {SECRET_SUFFIX} file that was made with it")
    text = _key_text(content, "secret")
    if fault := readable_by_others(mode, owner, reader):
        raise InvalidKey(fault)
    return ConnectionSecret(text)


def decode_public(content: bytes, name: str) -> ConnectionPublicKey:
    """The public key in a file of this ``name``. Raises InvalidKey; also where that is a secret's name."""
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
    # The one mistake that is easily made, since both kinds of files are called alike.
    but = "; it holds a key that signs" if _is_signing_key(text) else ""
    raise InvalidKey(f"it holds no {kind} connection key of 40 Z85 characters{but}")
