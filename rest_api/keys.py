"""The keys by which this REST API and its validator know each other, from their files. No connection, no requests."""

import os
from pathlib import Path
from typing import NamedTuple

import zmq

from ledger.connection_keys import (
    KEY_FILE_BYTES_MAX,
    ConnectionPublicKey,
    ConnectionSecret,
    decode_public,
    decode_secret,
)
from ledger.errors import InvalidKey


class Keys(NamedTuple):
    """This REST API's own key pair, and the validator's public key."""

    secret: ConnectionSecret
    public: ConnectionPublicKey
    validator: ConnectionPublicKey
    validator_file: str

    def put_on(self, socket: "zmq.Socket[bytes]") -> None:
        """Before it connects."""
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.validator.encode("ascii"))
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.public.encode("ascii"))
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.secret.reveal())


def read_keys(connection_key: str | os.PathLike[str], validator_key: str | os.PathLike[str]) -> Keys:
    """The keys in a file of a secret connection key, and in one of the validator's public key.

    Raises ValueError with the file, and never with a secret.
    """
    path, validator_path = Path(connection_key), Path(validator_key)
    content, found = _content("connection_key", path)
    try:
        secret = decode_secret(content, path.name, mode=found.st_mode, owner=found.st_uid, reader=os.geteuid())
        public = ConnectionPublicKey(zmq.curve_public(secret.reveal()).decode("ascii"))
    except InvalidKey as error:
        raise ValueError(f"connection_key {path}: {error}") from None
    try:
        validator = decode_public(_content("validator_key", validator_path)[0], validator_path.name)
    except InvalidKey as error:
        raise ValueError(f"validator_key {validator_path}: {error}") from None
    return Keys(secret, public, validator, str(validator_path))


def why_not_let_in(keys: Keys | None, event: int) -> str:
    """What a failed handshake means, by the event that the socket's monitor tells, and what to look at."""
    if keys is None:
        return "the handshake failed; perhaps it asks for keys, of which this REST API has none"
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        return f"it refused this key: {keys.public} must be in its allowed_keys, under clients"
    return f"the handshake failed; perhaps it has no keys, or its public key is not that in {keys.validator_file}"


def _content(name: str, path: Path) -> tuple[bytes, os.stat_result]:
    try:
        with path.open("rb") as file:
            return file.read(KEY_FILE_BYTES_MAX + 1), os.fstat(file.fileno())
    except OSError as error:
        raise ValueError(f"cannot read {name} {path}: {error.strerror}") from None
