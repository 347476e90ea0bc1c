"""Key files: 64 hex characters in NAME.priv (0600), the public key beside it in NAME.pub. No signing."""

import getpass
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from dovetail.errors import Refused
from dovetail.files import make_private_dir, write_whole
from dovetail.home import home, shown
from dovetail.output import program
from ledger.errors import InvalidKey
from ledger.ids import PublicKey
from ledger.signing import Signer

_KEY_FILE_BYTES_MAX: Final = 1024
_is_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}").fullmatch


class KeyFiles(NamedTuple):
    """A key pair just written."""

    private: Path
    public: Path
    public_key: PublicKey


def default_name() -> str:
    """The name of the user's own key: the login name, as far as it can be a file's name."""
    try:
        login = getpass.getuser()
    except (OSError, KeyError):
        # An account without a name, as containers have them.
        login = ""
    return re.sub(r"[^A-Za-z0-9._-]", "_", login).lstrip("._-")[:64] or "user"


def key_path(name_or_path: str | None, environ: Mapping[str, str]) -> Path:
    """Where a key is: a path when it holds a ``/`` or ends in ``.priv``, else a name under the user's keys folder.

    None is the user's own key. Raises Refused for a name that no key can have.
    """
    name = name_or_path or default_name()
    if "/" in name or name.endswith(".priv"):
        return Path(name).expanduser()
    if _is_name(name) is None:
        raise Refused(f"{name!r} is no key name: 1 to 64 letters, digits, '.', '_' or '-', a letter or digit first")
    return home(environ) / "keys" / f"{name}.priv"


def create_key(path: Path, *, overwrite: bool = False) -> KeyFiles:
    """Write a fresh key pair at ``path`` and beside it; folders 0700, private key 0600. Raises Refused."""
    make_private_dir(path.parent)
    # All but about one in 2^128 of these numbers are keys; Signer refuses the others.
    private_key = secrets.token_hex(32)
    public_key = Signer(private_key).public_key
    try:
        write_whole(path, f"{private_key}\n".encode(), mode=0o600, overwrite=overwrite)
    except FileExistsError:
        raise Refused(
            f"{shown(path)} exists and stays as it is; --force replaces it, and what only it may sign is lost"
        ) from None
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
            content = file.read(_KEY_FILE_BYTES_MAX)
    except FileNotFoundError:
        raise Refused(f"there is no key at {shown(path)}; make one: {program()} keygen {shown(path)}") from None
    except OSError as error:
        raise Refused(f"cannot read the key {shown(path)}: {error.strerror}") from None
    try:
        return Signer(content.decode("ascii").strip())
    except (UnicodeDecodeError, InvalidKey):
        raise Refused(f"{shown(path)} holds no private key of 64 hex characters") from None
