"""Whether a node's folder and addresses are free, looked at before any process starts. Takes nothing for itself."""

import contextlib
import errno
import fcntl
import socket
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from dovetail.common.errors import Refused
from dovetail.common.home import shown
from dovetail.node.genesis import STORE_NAME

_WHAT_TO_DO: Final = (
    "a node may be running already: use it, stop it, or choose another --data-dir, --validator and --rest"
)


def refuse_if_taken(data_dir: Path, validator: str, rest: str) -> None:
    """Raise Refused when another process has the store of ``data_dir`` or listens at one of the addresses.

    ``validator``: tcp://HOST:PORT; ``rest``: HOST:PORT. What else is wrong with them the parts say themselves.
    """
    if _is_locked(data_dir / STORE_NAME / "owner.lock"):
        raise Refused(f"the store in {shown(data_dir)} is in use by another validator; {_WHAT_TO_DO}")
    for part, address in (("validator", validator), ("rest-api", rest)):
        if _is_listened_at(address.removeprefix("tcp://").replace("*", "0.0.0.0")):
            raise Refused(f"{part}: cannot listen on {address}: Address already in use; {_WHAT_TO_DO}")


def _is_locked(path: Path) -> bool:
    """Whether a process holds the lock that the validator's store takes for itself."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _is_listened_at(address: str) -> bool:
    parts = urlsplit(f"//{address}")
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return False
    return any(_is_bound(family, place) for family, _, _, _, place in found)


def _is_bound(family: int, place: tuple[Any, ...]) -> bool:
    # An address family that this machine has not is no reason to refuse here.
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
        # As the parts have it: connections of an ended node that linger do not keep its address.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            probe.bind(place)
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
