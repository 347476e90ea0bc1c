"""Key files: the private key in NAME.priv (0600), the public key beside it in NAME.pub. No signing.

Keys that sign are 64 hex characters; connection keys, by which processes know each other, 40 of Z85.
"""

import getpass
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

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
"""Folders under the user's own: of keys that sign, and of those by which processes know each other."""

_KEY_FILE_BYTES_MAX: Final = 1024
_is_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}").fullmatch


class KeyFiles(NamedTuple):
    """A key pair just written."""

    private: Path
    public: Path
    public_key: PublicKey | ConnectionPublicKey


def default_name() -> str:
    """The name of the user's own key: the login name, as far as it can be a file's name."""
    try:
        login = getpass.getuser()
    except (OSError, KeyError):
        # An account without a name, as containers have them.
        login = ""
    return re.sub(r"[^A-Za-z0-9._-]", "_", login).lstrip("._-")[:64] or "user"


def key_path(name_or_path: str | None, environ: Mapping[str, str], folder: str = KEYS) -> Path:
    """Where a key is: a path when it holds a ``/`` or ends in ``.priv``, else a name under the user's ``folder``.

    None is the user's own key. Raises Refused for a name that no key can have.
    """
    name = name_or_path or default_name()
    if "/" in name or name.endswith(".priv"):
        return Path(name).expanduser()
    if _is_name(name) is None:
        raise Refused(f"{name!r} is no key name: 1 to 64 letters, digits, '.', '_' or '-', a letter or digit first")
    return home(environ) / folder / f"{name}.priv"


def create_key(path: Path, *, overwrite: bool = False) -> KeyFiles:
    """Write a fresh key pair at ``path`` and beside it; folders 0700, private key 0600. Raises Refused."""
    # All but about one in 2^128 of these numbers are keys; Signer refuses the others.
    private_key = secrets.token_hex(32)
    return _write(path, private_key, Signer(private_key).public_key, "what only it may sign is lost", overwrite)


def create_connection_key(path: Path, *, overwrite: bool = False) -> KeyFiles:
    """Write a fresh connection key pair, as ``create_key`` does. Raises Refused."""
    import zmq

    public_key, private_key = (half.decode("ascii") for half in zmq.curve_keypair())
    lost = "whoever lists its public key must list the new one"
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
    """Make the key at ``path`` when there is none; whether one was made. Raises Refused."""
    if path.exists():
        return False
    create_key(path)
    return True


def load_signer(path: Path) -> Signer:
    """The key in a file. Raises Refused, never with the file's content in the text."""
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
