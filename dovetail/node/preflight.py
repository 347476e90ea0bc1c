"""Checks before any process of a node starts: keys that fit together, a free store, free addresses.

The checks open and change nothing.
"""

import contextlib
import errno
import fcntl
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from dovetail.common.errors import Refused
from dovetail.common.home import shown
from dovetail.node.config import Config
from dovetail.node.genesis import STORE_NAME
from dovetail.validator.transport.access import OPEN, AccessPolicy, CannotOpen, is_local, read_access_policy

_ADVICE: Final = "a node may be running already: use it, stop it, or choose another --data-dir, --validator and --rest"


def check_access(config: Config) -> None:
    """Raise Refused if the validator could not open its port, or if only some parts have connection keys."""
    try:
        access = read_access_policy(config.validator)
    except CannotOpen as error:
        raise Refused(f"validator: {error}") from None
    for table, part in (("rest_api", config.rest_api), ("processor", config.processor)):
        if access.key is not None and not part.connection_key:
            raise Refused(
                f"the validator asks for keys (validator.connection_key) and [{table}] has none: set its connection_key"
                " and validator_key (docs/how-to/keys.md)"
            )
        if access.key is None and part.connection_key:
            raise Refused(
                f"[{table}] has a connection_key and the validator has none, so it asks nobody for keys: set"
                " validator.connection_key and allowed_keys (docs/how-to/keys.md)"
            )


def replay_access_policy(config: Config, bind: str) -> AccessPolicy:
    """The access policy of a replay: open on loopback, elsewhere the validator's. Raises Refused."""
    if is_local(bind):
        return OPEN
    try:
        access = read_access_policy(replace(config.validator, bind=bind))
    except CannotOpen as error:
        raise Refused(f"--bind: {error}") from None
    if access.key is not None and not config.processor.connection_key:
        raise Refused(
            f"--bind {bind} asks for keys, and the processors that are started here have none: set connection_key and"
            " validator_key in [processor] (docs/how-to/keys.md)"
        )
    return access


def refuse_if_in_use(data_dir: Path, validator: str, rest: str) -> None:
    """Raise Refused if another process holds the store of ``data_dir`` or listens at one of the addresses.

    ``validator``: tcp://HOST:PORT; ``rest``: HOST:PORT. An address with another fault passes, because the parts
    refuse it.
    """
    if _is_locked(data_dir / STORE_NAME / "owner.lock"):
        raise Refused(f"the store in {shown(data_dir)} is in use by another validator; {_ADVICE}")
    for part, address in (("validator", validator), ("rest-api", rest)):
        if _is_bound(address.removeprefix("tcp://").replace("*", "0.0.0.0")):
            raise Refused(f"{part}: cannot listen on {address}: Address already in use; {_ADVICE}")


def _is_locked(path: Path) -> bool:
    """Whether a process holds the lock that a validator takes on its store."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _is_bound(address: str) -> bool:
    parts = urlsplit(f"//{address}")
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return False
    return any(_cannot_bind(family, sockaddr) for family, _, _, _, sockaddr in found)


def _cannot_bind(family: int, sockaddr: tuple[Any, ...]) -> bool:
    # An address family that this machine lacks is no reason to refuse.
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
        # The parts set this option too, so that lingering connections of an ended node do not block its address.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            probe.bind(sockaddr)
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
