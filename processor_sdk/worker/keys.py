"""The connection keys (CURVE) of a processor and its validator, read from files. No sockets, no registration."""

import os
from pathlib import Path
from typing import NamedTuple

import zmq

from dovetail.ledger.connection_keys import ConnectionPublicKey, ConnectionSecret
from dovetail.ledger.errors import InvalidKey
from dovetail.ledger.key_files import read_public, read_secret


class Keys(NamedTuple):
    """A processor's own key pair, and the validator's public key."""

    secret: ConnectionSecret
    public: ConnectionPublicKey
    validator: ConnectionPublicKey
    secret_file: str
    validator_file: str

    def set_on(self, socket: "zmq.Socket[bytes]") -> None:
        """Set the keys on a socket that is not connected yet."""
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.validator.encode("ascii"))
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.public.encode("ascii"))
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.secret.reveal())

    def reload(self) -> tuple["Keys", str]:
        """Read the files again. Returns the new keys and "", or these keys and the reason why a file is unreadable."""
        try:
            return read_keys(self.secret_file, self.validator_file), ""
        except ValueError as error:
            return self, str(error)


def read_keys(connection_key: str | os.PathLike[str], validator_key: str | os.PathLike[str]) -> Keys:
    """Read the processor's secret key file and the validator's public key file.

    Raises ValueError that names the file and never shows a secret.
    """
    try:
        secret = read_secret("connection_key", Path(connection_key))
        validator = read_public("validator_key", Path(validator_key))
    except InvalidKey as error:
        raise ValueError(str(error)) from None
    public = ConnectionPublicKey(zmq.curve_public(secret.reveal()).decode("ascii"))
    # The paths are absolute, because the program may change its current folder before ``reload``.
    return Keys(secret, public, validator, str(Path(connection_key).absolute()), str(Path(validator_key).absolute()))


def handshake_failure(keys: Keys | None, event: int) -> str:
    """What a failed handshake means and what to check. ``event``: from the socket's monitor."""
    if keys is None:
        return "the handshake failed; perhaps it asks for keys, of which this processor has none"
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        return f"the validator refused this key: {keys.public} must be in its allowed_keys, under processors"
    return f"the handshake failed; perhaps it has no keys, or its public key is not that in {keys.validator_file}"
