"""The validator's door: whether its port is open or kept, and who may come in by which key.

An open door lets everybody in who reaches it, so it is for loopback. A kept door has a key of its own, and a list of
the keys that may connect. Reads key files; sockets are the gateway's, what each key may say is ``rights``'.
"""

import ipaddress
import os
import stat
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

import zmq

from dovetail.ledger.connection_keys import (
    KEY_FILE_BYTES_MAX,
    PUBLIC_SUFFIX,
    ConnectionPublicKey,
    ConnectionSecret,
    decode_public,
)
from dovetail.ledger.errors import InvalidKey
from dovetail.ledger.key_files import read_secret
from dovetail.ledger.secret_files import changeable_by_others
from dovetail.validator.config import ValidatorConfig

ALLOWED_KEYS_MAX: Final = 10_000


class CannotOpen(Exception):
    """The door cannot be as it is configured; the message says what to do."""


class Right(Enum):
    """What a key is allowed for, by the folder of the list that it stands in."""

    PROCESSOR = "processors"
    CLIENT = "clients"


class Caller(NamedTuple):
    """Whose key it is: the name of its file in the list, and what it is allowed for."""

    name: str
    rights: frozenset[Right]


class DoorKey(NamedTuple):
    """The validator's own connection key."""

    secret: ConnectionSecret
    public: ConnectionPublicKey


@dataclass(frozen=True)
class Door:
    """``key``: None for an open door. ``insecure``: it may be open to the network, since somebody said so."""

    key: DoorKey | None = None
    callers: dict[ConnectionPublicKey, Caller] = field(default_factory=dict)
    insecure: bool = False

    def check_address(self, bind: str) -> None:
        """Raises CannotOpen where an open door would listen on another address than loopback."""
        if self.key is None and not self.insecure and not is_local(bind):
            raise CannotOpen(
                f"cannot listen on {bind} without keys: it is no loopback address, and whoever reaches it could"
                " register as a processor and judge; make keys with `dovetail keygen --connection` and set"
                " connection_key and allowed_keys (docs/keys.md), or say --insecure (insecure = true) on a network"
                " where you trust everybody"
            )


OPEN: Final = Door()
"""For loopback."""


def read_door(config: ValidatorConfig) -> Door:
    """The door that a configuration describes, its key files read. Raises CannotOpen."""
    if not config.connection_key:
        if config.allowed_keys:
            raise CannotOpen(
                f"allowed_keys is {config.allowed_keys} and connection_key is empty: without a key of its own the"
                " validator cannot ask others for theirs; make one with `dovetail keygen --connection`"
            )
        door = Door(insecure=config.insecure)
    else:
        if config.insecure:
            raise CannotOpen(f"insecure is true and connection_key is {config.connection_key}: choose one of them")
        if not config.allowed_keys:
            raise CannotOpen(
                f"connection_key is {config.connection_key} and allowed_keys is empty, so nobody could connect: name"
                " the folder with the public keys of processors and clients (docs/keys.md)"
            )
        door = Door(_read_key(Path(config.connection_key)), _read_list(Path(config.allowed_keys)))
    door.check_address(config.bind)
    return door


def is_local(bind: str) -> bool:
    """Whether only this machine reaches an endpoint: a path, a loopback address, or ``localhost``."""
    transport, is_endpoint, address = bind.partition("://")
    if transport != "tcp":
        return transport in ("ipc", "inproc") or not is_endpoint
    host = address.rpartition(":")[0]
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _read_key(path: Path) -> DoorKey:
    try:
        secret = read_secret("connection_key", path)
    except InvalidKey as error:
        raise CannotOpen(str(error)) from None
    return DoorKey(secret, ConnectionPublicKey(zmq.curve_public(secret.reveal()).decode("ascii")))


def _read_list(folder: Path) -> dict[ConnectionPublicKey, Caller]:
    callers: dict[ConnectionPublicKey, Caller] = {}
    # Whoever may change this folder could put others in the place of those in it.
    _entries(folder)
    for right in Right:
        for path in _entries(folder / right.value):
            if path.suffix != PUBLIC_SUFFIX:
                continue
            if not path.stem.isprintable():
                # Bytes that are no UTF-8 among them: such a name could be neither logged nor told.
                raise CannotOpen(
                    f"allowed key {path.name!a} in {folder / right.value}: the name of the file is the key's name"
                    " in the log, and this one cannot be printed; rename it"
                )
            key = _read_public(path)
            known = callers.get(key, Caller(path.stem, frozenset()))
            callers[key] = known._replace(rights=known.rights | {right})
            if len(callers) > ALLOWED_KEYS_MAX:
                raise CannotOpen(f"allowed_keys {folder} holds more than {ALLOWED_KEYS_MAX} keys")
    if not callers:
        raise CannotOpen(
            f"allowed_keys {folder} holds no key, so nobody could connect: copy the NAME.pub of each processor into"
            f" {folder / Right.PROCESSOR.value}, and of each REST API into {folder / Right.CLIENT.value}"
        )
    return callers


def _entries(folder: Path) -> list[Path]:
    """What lies in a folder of the list; nothing where it is not there."""
    try:
        _refuse_changeable(f"allowed_keys folder {folder}", folder)
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CannotOpen(f"cannot read allowed_keys {folder}: {error.strerror}") from None


def _read_public(path: Path) -> ConnectionPublicKey:
    try:
        # A pipe would be waited for where it is opened. Links are followed, since who deploys files may make them.
        if not stat.S_ISREG(path.stat().st_mode):
            raise InvalidKey("it is no regular file: put the public key itself there, or remove it")
        with path.open("rb") as file:
            _refuse_changeable(f"allowed key {path}", file.fileno())
            return decode_public(file.read(KEY_FILE_BYTES_MAX + 1), path.name)
    except OSError as error:
        raise CannotOpen(f"cannot read the allowed key {path}: {error.strerror}") from None
    except InvalidKey as error:
        raise CannotOpen(f"allowed key {path}: {error}") from None


def _refuse_changeable(named: str, at: Path | int) -> None:
    """Who can write the list decides who judges transactions: raises CannotOpen where others can."""
    if os.statvfs(at).f_flag & os.ST_RDONLY:
        # As Kubernetes mounts its secrets, with modes that let everybody write.
        return
    found = os.stat(at)
    if fault := changeable_by_others(found.st_mode, found.st_uid, os.geteuid()):
        raise CannotOpen(f"{named}: {fault}")
