"""Key files: the private key in NAME.priv (0600), the public key beside it in NAME.pub. No signing.

Signing keys are 64 hex characters. Connection keys, which authenticate processes, are 40 characters of Z85.
"""

import getpass
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import zmq

from dovetail.common.errors import Refused
from dovetail.common.files import make_private_dir, write_whole
from dovetail.common.home import home, shown
from dovetail.common.output import program
from dovetail.ledger.connection_keys import ConnectionPublicKey
from dovetail.ledger.errors import InvalidKey
from dovetail.ledger.ids import PublicKey
from dovetail.ledger.secret_files import readable_by_others
from dovetail.ledger.signing import Signer

KEYS: Final = "keys"
CONNECTION_KEYS: Final = "connection-keys"
"""The folders under ``home()`` for signing keys and connection keys."""

_KEY_FILE_BYTES_MAX: Final = 1024
_is_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}").fullmatch


class KeyFiles(NamedTuple):
    """A key pair that was written."""

    private: Path
    public: Path
    public_key: PublicKey | ConnectionPublicKey


def default_name() -> str:
    """The name of the user's own key: the login name without characters that a file name cannot have."""
    try:
        login = getpass.getuser()
    except (OSError, KeyError):
        # In a container the account may have no name.
        login = ""
    return re.sub(r"[^A-Za-z0-9._-]", "_", login).lstrip("._-")[:64] or "user"


def key_path(name_or_path: str | None, environ: Mapping[str, str], folder: str = KEYS) -> Path:
    """The file of a key: a path if it holds a ``/`` or ends in ``.priv``, else a name in the user's ``folder``.

    None means the user's own key. Raises Refused for a name that no key can have.
    """
    name = name_or_path or default_name()
    if "/" in name or name.endswith(".priv"):
        return Path(name).expanduser()
    if _is_name(name) is None:
        raise Refused(f"{name!r} is no key name: 1 to 64 letters, digits, '.', '_' or '-', a letter or digit first")
    return home(environ) / folder / f"{name}.priv"


def create_key(path: Path, *, overwrite: bool = False) -> KeyFiles:
    """Write a new key pair, the public key beside ``path``; folders 0700, private key 0600. Raises Refused."""
    # About one in 2^128 of these numbers is not a valid key. Signer refuses such a number.
    private_key = secrets.token_hex(32)
    return _write(path, private_key, Signer(private_key).public_key, "the old one can sign nothing more", overwrite)


def create_connection_key(path: Path, *, overwrite: bool = False) -> KeyFiles:
    """Write a new connection key pair, as ``create_key`` does. Raises Refused."""
    public_key, private_key = (half.decode("ascii") for half in zmq.curve_keypair())
    lost = "every list of allowed keys needs the new public key"
    return _write(path, private_key, ConnectionPublicKey(public_key), lost, overwrite)


def _write(
    path: Path, private_key: str, public_key: PublicKey | ConnectionPublicKey, lost: str, overwrite: bool
) -> KeyFiles:
    make_private_dir(path.parent)
    try:
        write_whole(path, f"{private_key}\n".encode(), mode=0o600, overwrite=overwrite)
    except FileExistsError:
        raise Refused(f"{shown(path)} exists and stays as it is; --force replaces it, and {lost}") from None
    public = path.with_suffix(".pub")
    write_whole(public, f"{public_key}\n".encode(), mode=0o644, overwrite=True)
    return KeyFiles(path, public, public_key)


def ensure_key(path: Path) -> bool:
    """Make the key at ``path`` if there is none. Returns whether a key was made. Raises Refused."""
    if path.exists():
        return False
    create_key(path)
    return True


def load_signer(path: Path) -> Signer:
    """The signing key in a file. Raises Refused; the reason never quotes the file."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            content = file.read(_KEY_FILE_BYTES_MAX)
    except FileNotFoundError:
        raise Refused(f"there is no key at {shown(path)}; make one: {program()} keygen {shown(path)}") from None
    except OSError as error:
        raise Refused(f"cannot read the key {shown(path)}: {error.strerror}") from None
    try:
        signer = Signer(content.decode("ascii").strip())
    except (UnicodeDecodeError, InvalidKey):
        raise Refused(f"{shown(path)} holds no private key of 64 hex characters") from None
    if fault := readable_by_others(found.st_mode, found.st_uid, os.geteuid()):
        raise Refused(f"the key {shown(path)} stays unused: {fault}")
    return signer
