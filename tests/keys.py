"""Connection keys for tests, in the files that processes read. No assertions, no sockets."""

import shutil
from pathlib import Path
from typing import NamedTuple

import zmq

from dovetail.common.keys import KeyFiles, create_connection_key


class Ring(NamedTuple):
    """A validator's key, one that is allowed for each kind of caller, one for both, and one for nobody."""

    validator: KeyFiles
    allowed: Path
    processor: KeyFiles
    client: KeyFiles
    both: KeyFiles
    stranger: KeyFiles


def make_ring(folder: Path) -> Ring:
    """All of them, and the list."""
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


def put_on(socket: "zmq.Socket[bytes]", own: KeyFiles, server: KeyFiles) -> None:
    """Make a socket one with keys, before it connects."""
    socket.setsockopt(zmq.CURVE_SERVERKEY, server.public_key.encode())
    socket.setsockopt(zmq.CURVE_PUBLICKEY, own.public_key.encode())
    socket.setsockopt(zmq.CURVE_SECRETKEY, own.private.read_bytes().strip())


def put_on_server(socket: "zmq.Socket[bytes]", own: KeyFiles) -> None:
    """Make a socket one that asks for keys, before it binds. Without more it lets every key in."""
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, own.private.read_bytes().strip())
