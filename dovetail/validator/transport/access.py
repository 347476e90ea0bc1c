"""The access policy of the validator's port: open, or restricted to the connection keys of a list.

An open port accepts every connection, so it belongs on loopback. A restricted port has a key of its own and a list of
allowed keys. This module reads the key files; ``gateway`` has the sockets, ``rights`` checks single messages.
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
    """The configured access policy is unusable; the message says what to do."""


class Right(Enum):
    """What a listed key may do. Each value is the name of a folder below ``allowed_keys``."""

    PROCESSOR = "processors"
    CLIENT = "clients"


class Caller(NamedTuple):
    """The holder of an allowed key. ``name``: the stem of the key's file."""

    name: str
    rights: frozenset[Right]


class ServerKey(NamedTuple):
    secret: ConnectionSecret
    public: ConnectionPublicKey


@dataclass(frozen=True)
class AccessPolicy:
    """``key``: None for an open port. ``insecure``: an open port may listen on any address."""

    key: ServerKey | None = None
    callers: dict[ConnectionPublicKey, Caller] = field(default_factory=dict)
    insecure: bool = False

    def check_address(self, bind: str) -> None:
        """Raises CannotOpen when an open port would listen on an address other than loopback."""
        if self.key is None and not self.insecure and not is_local(bind):
            raise CannotOpen(
                f"cannot listen on {bind} without keys: it is no loopback address, and whoever reaches it could"
                " register as a processor and decide transactions; make keys with `dovetail keygen --connection` and"
                " set connection_key and allowed_keys (docs/how-to/keys.md), or use --insecure (insecure = true) on a"
                " network where you trust everybody"
            )


OPEN: Final = AccessPolicy()
"""The policy of an open port, for loopback addresses only."""


def read_access_policy(config: ValidatorConfig) -> AccessPolicy:
    """The access policy that a configuration describes, with its key files read. Raises CannotOpen."""
    if not config.connection_key:
        if config.allowed_keys:
            raise CannotOpen(
                f"allowed_keys is {config.allowed_keys} and connection_key is empty: without a key of its own the"
                " validator cannot ask others for theirs; make one with `dovetail keygen --connection`"
            )
        access = AccessPolicy(insecure=config.insecure)
    else:
        if config.insecure:
            raise CannotOpen(f"insecure is true and connection_key is {config.connection_key}: choose one of them")
        if not config.allowed_keys:
            raise CannotOpen(
                f"connection_key is {config.connection_key} and allowed_keys is empty, so nobody could connect: name"
                " the folder with the public keys of processors and clients (docs/how-to/keys.md)"
            )
        access = AccessPolicy(_read_key(Path(config.connection_key)), _read_list(Path(config.allowed_keys)))
    access.check_address(config.bind)
    return access


def is_local(bind: str) -> bool:
    """Whether only this machine can reach an endpoint: a path, a loopback address, or ``localhost``."""
    transport, is_endpoint, address = bind.partition("://")
    if transport != "tcp":
        return transport in ("ipc", "inproc") or not is_endpoint
    host = address.rpartition(":")[0]
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _read_key(path: Path) -> ServerKey:
    try:
        secret = read_secret("connection_key", path)
    except InvalidKey as error:
        raise CannotOpen(str(error)) from None
    return ServerKey(secret, ConnectionPublicKey(zmq.curve_public(secret.reveal()).decode("ascii")))


def _read_list(folder: Path) -> dict[ConnectionPublicKey, Caller]:
    callers: dict[ConnectionPublicKey, Caller] = {}
    # Whoever can write to this folder could replace the folders in it.
    _entries(folder)
    for right in Right:
        for path in _entries(folder / right.value):
            if path.suffix != PUBLIC_SUFFIX:
                continue
            if not path.stem.isprintable():
                # The name appears in the log and in answers. A name with bytes that are not UTF-8 fails here too.
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
    """The sorted entries of a folder of the list; empty if the folder does not exist."""
    try:
        _refuse_changeable(f"allowed_keys folder {folder}", folder)
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CannotOpen(f"cannot read allowed_keys {folder}: {error.strerror}") from None


def _read_public(path: Path) -> ConnectionPublicKey:
    try:
        # Opening a pipe would block. Links are followed: deployment tools create them.
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
    """Raises CannotOpen if other accounts can change the list: its writers decide who validates transactions."""
    if os.statvfs(at).f_flag & os.ST_RDONLY:
        # Kubernetes mounts secrets read-only, with modes that let everybody write.
        return
    status = os.stat(at)
    if fault := changeable_by_others(status.st_mode, status.st_uid, os.geteuid()):
        raise CannotOpen(f"{named}: {fault}")
