"""Answers the socket library's question whether a key may come in, once for each connection of a kept door.

The question and its answer are ZAP (ZeroMQ RFC 27); the key has been proven by then. Nothing is known here of what a
key may say once it is in.
"""

from typing import Final

import zmq
from zmq.utils import z85

from dovetail.ledger.connection_keys import ConnectionPublicKey
from dovetail.validator.transport.access import Caller
from dovetail.validator.transport.connections import Seldom
from dovetail.validator.transport.sockets import DrainedSocket

DOMAIN: Final = b"validator"
_ENDPOINT: Final = "inproc://zeromq.zap.01"
_VERSION: Final = b"1.0"


class Authenticator:
    """Answers in the event loop for every kept socket of ``context``, from before it listens."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", callers: dict[ConnectionPublicKey, Caller]) -> None:
        self._callers = callers
        self._refused = Seldom("connection refused")
        replier = context.socket(zmq.REP)
        replier.bind(_ENDPOINT)
        self._socket = DrainedSocket(replier, self._answer)

    def close(self) -> None:
        self._socket.close()

    def _answer(self) -> None:
        for _, request_id, _, address, _, mechanism, *credentials in self._socket.received():
            key = z85.encode(credentials[0]).decode("ascii") if mechanism == b"CURVE" else ""
            if ConnectionPublicKey(key) in self._callers:
                # The user id of all that comes over this connection.
                verdict = [b"200", b"OK", key.encode("ascii"), b""]
            else:
                reason = f"the key {key} is not in allowed_keys"
                self._refused.warn(address=address.decode("ascii", "replace"), reason=reason)
                verdict = [b"400", b"this key is not allowed", b"", b""]
            self._socket.send([_VERSION, request_id, *verdict])
