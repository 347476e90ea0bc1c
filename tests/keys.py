"""Connection keys for tests, as files. No assertions, no sockets."""

import shutil
from pathlib import Path
from typing import NamedTuple

import zmq

from dovetail.common.keys import KeyFiles, create_connection_key


class Ring(NamedTuple):
    """The validator's key; keys allowed as processor, as client and as both; a stranger's key, which is not allowed."""

    validator: KeyFiles
    allowed: Path
    processor: KeyFiles
    client: KeyFiles
    both: KeyFiles
    stranger: KeyFiles


def make_ring(folder: Path) -> Ring:
    """Make the keys and the folder of allowed keys."""
    made = {
        name: create_connection_key(folder / f"{name}.priv")
        for name in ("validator", "processor", "client", "both", "stranger")
    }
    allowed = folder / "allowed"
    allowed.mkdir(mode=0o755)
    for right, names in (("processors", ("processor", "both")), ("clients", ("client", "both"))):
        (allowed / right).mkdir(mode=0o755)
        for name in names:
            shutil.copy(made[name].public, allowed / right)
    return Ring(allowed=allowed, **made)


def use_keys(socket: "zmq.Socket[bytes]", own: KeyFiles, server: KeyFiles) -> None:
    """Give a client's socket its keys. Call this before the socket connects."""
    socket.setsockopt(zmq.CURVE_SERVERKEY, server.public_key.encode())
    socket.setsockopt(zmq.CURVE_PUBLICKEY, own.public_key.encode())
    socket.setsockopt(zmq.CURVE_SECRETKEY, own.private.read_bytes().strip())


def use_server_key(socket: "zmq.Socket[bytes]", own: KeyFiles) -> None:
    """Make a socket require keys. It accepts any key. Call this before the socket binds."""
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, own.private.read_bytes().strip())
