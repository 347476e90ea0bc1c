"""Tells libzmq whether a key may connect to a restricted port, once for each connection.

Request and reply follow ZAP (ZeroMQ RFC 27); the peer has proven its key by then. ``rights`` checks the rights of a
key, message by message.
"""

from typing import Final

import zmq
from zmq.utils import z85

from dovetail.ledger.connection_keys import ConnectionPublicKey
from dovetail.validator.transport.access import Caller
from dovetail.validator.transport.connections import ThrottledWarning
from dovetail.validator.transport.sockets import DrainedSocket

DOMAIN: Final = b"validator"
_ENDPOINT: Final = "inproc://zeromq.zap.01"
_VERSION: Final = b"1.0"


class Authenticator:
    """Answers for every restricted socket of ``context``, in the event loop. Create it before the socket listens."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", callers: dict[ConnectionPublicKey, Caller]) -> None:
        self._callers = callers
        self._refused = ThrottledWarning("connection refused")
        replier = context.socket(zmq.REP)
        replier.bind(_ENDPOINT)
        self._socket = DrainedSocket(replier, self._answer)

    def close(self) -> None:
        self._socket.close()

    def _answer(self) -> None:
        for _, request_id, _, address, _, mechanism, *credentials in self._socket.received():
            key = z85.encode(credentials[0]).decode("ascii") if mechanism == b"CURVE" else ""
            if ConnectionPublicKey(key) in self._callers:
                # The key becomes the user id of every message of this connection.
                verdict = [b"200", b"OK", key.encode("ascii"), b""]
            else:
                reason = f"the key {key} is not in allowed_keys"
                self._refused.warn(address=address.decode("ascii", "replace"), reason=reason)
                verdict = [b"400", b"this key is not allowed", b"", b""]
            self._socket.send([_VERSION, request_id, *verdict])
