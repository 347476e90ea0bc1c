"""The keys by which this REST API and its validator know each other, from their files. No connection, no requests."""

import os
from pathlib import Path
from typing import NamedTuple

import zmq

from dovetail.ledger.connection_keys import ConnectionPublicKey, ConnectionSecret
from dovetail.ledger.errors import InvalidKey
from dovetail.ledger.key_files import read_public, read_secret


class Keys(NamedTuple):
    """This REST API's own key pair, and the validator's public key."""

    secret: ConnectionSecret
    public: ConnectionPublicKey
    validator: ConnectionPublicKey
    secret_file: str
    validator_file: str

    def put_on(self, socket: "zmq.Socket[bytes]") -> None:
        """Before it connects."""
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.validator.encode("ascii"))
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.public.encode("ascii"))
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.secret.reveal())

    def read_again(self) -> tuple["Keys", str]:
        """The keys that the files hold by then; where one cannot be read, these, and what is wrong with it."""
        try:
            return read_keys(self.secret_file, self.validator_file), ""
        except ValueError as error:
            return self, str(error)


def read_keys(connection_key: str | os.PathLike[str], validator_key: str | os.PathLike[str]) -> Keys:
    """The keys in a file of a secret connection key, and in one of the validator's public key.

    Raises ValueError with the file, and never with a secret.
    """
    try:
        secret = read_secret("connection_key", Path(connection_key))
        validator = read_public("validator_key", Path(validator_key))
    except InvalidKey as error:
        raise ValueError(str(error)) from None
    public = ConnectionPublicKey(zmq.curve_public(secret.reveal()).decode("ascii"))
    # Absolute, for a program that goes to another folder meanwhile.
    return Keys(secret, public, validator, str(Path(connection_key).absolute()), str(Path(validator_key).absolute()))


def why_not_let_in(keys: Keys | None, event: int) -> str:
    """What a failed handshake means, by the event that the socket's monitor tells, and what to look at."""
    if keys is None:
        return "the handshake failed; perhaps it asks for keys, of which this REST API has none"
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        return f"it refused this key: {keys.public} must be in its allowed_keys, under clients"
    return f"the handshake failed; perhaps it has no keys, or its public key is not that in {keys.validator_file}"
