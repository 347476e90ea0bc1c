"""The ROUTER socket to which processors and clients connect, and the envelope of every message.

The gateway decodes envelopes, answers pings, notices closed connections and passes everything else on. Who may send
which message is checked in ``rights``; contents are decoded by the recipients.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, NamedTuple

import structlog
import zmq
from google.protobuf.message import DecodeError

from dovetail.ledger.limits import Limits
from dovetail.validator.transport.access import OPEN, AccessPolicy, CannotOpen
from dovetail.validator.transport.authenticator import DOMAIN, Authenticator
from dovetail.validator.transport.connections import EVENTS, Connections
from dovetail.validator.transport.sockets import DrainedSocket
from protos.validator_pb2 import Message as Envelope

_PORT_MAX: Final = 65_535
_MONITOR: Final = "inproc://monitor"

log = structlog.get_logger("validator.gateway")


class Request(NamedTuple):
    """One message of a peer. Its answer repeats identity and correlation id.

    ``key``: the public connection key that the peer has proven; empty at an open port.
    """

    identity: bytes
    message_type: int
    correlation_id: str
    content: bytes
    key: str = ""


class Delivery(Enum):
    """The outcome of sending a message."""

    SENT = "handed to the peer's connection"
    FULL = "the peer does not read; the message is dropped"
    TOO_LARGE = "the message is over message_bytes_max; it is dropped"
    GONE = "the peer is not connected; the message is dropped"


class CannotBind(Exception):
    """The gateway cannot listen on the address; the message says why."""


class Gateway:
    """Listens on ``bind``. Calls ``on_sweep`` when requests wait; the callback reads them with ``requests``."""

    def __init__(
        self,
        bind: str,
        limits: Limits,
        on_sweep: Callable[[], None],
        on_disconnect: Callable[[], None],
        access: AccessPolicy = OPEN,
    ) -> None:
        try:
            access.check_address(bind)
        except CannotOpen as error:
            raise CannotBind(str(error)) from None
        port = bind.rpartition(":")[2]
        if port.isascii() and port.isdigit() and int(port[:9]) > _PORT_MAX:
            # libzmq would accept the number and listen on another port.
            raise CannotBind(f"cannot listen on {bind}: the highest port is {_PORT_MAX}")
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        router = self._context.socket(zmq.ROUTER)
        router.set(zmq.LINGER, 0)
        router.set(zmq.ROUTER_MANDATORY, 1)
        router.set(zmq.SNDHWM, limits.peer_messages_max)
        # This limit holds for each connection. Messages beyond the limit stay with their sender.
        router.set(zmq.RCVHWM, limits.connection_unread_messages_max)
        router.set(zmq.MAXMSGSIZE, limits.message_bytes_max)
        router.set(zmq.HEARTBEAT_IVL, limits.processor_ping_ms)
        router.set(zmq.HEARTBEAT_TIMEOUT, limits.processor_silence_ms)
        router.set(zmq.IPV6, int("[" in bind))
        router.set(zmq.HANDSHAKE_IVL, limits.handshake_ms_max)
        self._authenticator: Authenticator | None = None
        if access.key is not None:
            router.set(zmq.CURVE_SERVER, 1)
            router.set(zmq.CURVE_SECRETKEY, access.key.secret.reveal())
            router.set(zmq.ZAP_DOMAIN, DOMAIN)
            self._authenticator = Authenticator(self._context, access.callers)
        router.monitor(_MONITOR, EVENTS)
        monitor = self._context.socket(zmq.PAIR)
        # The number is not limited (0). With a limit, libzmq's thread could wait for this thread, while ``close`` in
        # this thread waits for libzmq's thread.
        monitor.set(zmq.RCVHWM, 0)
        monitor.connect(_MONITOR)
        try:
            router.bind(bind)
        except zmq.ZMQError as error:
            if self._authenticator is not None:
                self._authenticator.close()
            router.disable_monitor()
            self._context.destroy(linger=0)
            raise CannotBind(f"cannot listen on {bind}: {error.strerror}") from None
        self.endpoint = str(router.get_string(zmq.LAST_ENDPOINT)).rstrip("\0")
        """The endpoint, with the real port in place of a wildcard."""
        self.connections = Connections(limits, restricted=access.key is not None)
        self.connections.set_endpoint(self.endpoint)
        self._router = router
        self._message_bytes_max = limits.message_bytes_max
        self._on_disconnect = on_disconnect
        self._socket = DrainedSocket(router, on_sweep)
        # Reading the user id costs time for each message; an open port has no user ids.
        self._received = self._socket.received if access.key is None else self._socket.received_with_user
        self._monitor = DrainedSocket(monitor, self._connections_changed)

    def requests(self) -> Iterator[Request]:
        """The waiting requests. Answers pings; drops and logs frames that are no message."""
        for frames in self._received():
            try:
                identity, content = frames
                envelope = Envelope.FromString(content)
            except (ValueError, DecodeError):
                log.info("dropped what is no message", frames=len(frames), bytes=sum(map(len, frames)))
                continue
            message_type = envelope.message_type
            if message_type == Envelope.PING_REQUEST:
                self.send(identity, Envelope.PING_RESPONSE, envelope.correlation_id, b"")
            yield Request(identity, message_type, envelope.correlation_id, envelope.content, self._socket.user)

    def send(self, identity: bytes, message_type: int, correlation_id: str, content: bytes) -> Delivery:
        """Send one message, without waiting.

        A message over ``message_bytes_max`` is not sent: its recipient would close the connection, and everybody behind
        it, such as the clients of a REST API, would fail with it.
        """
        envelope = Envelope(
            message_type=message_type,  # type: ignore[arg-type]
            correlation_id=correlation_id,
            content=content,
        )
        frame = envelope.SerializeToString()
        if len(frame) > self._message_bytes_max:
            log.error("a message over message_bytes_max is not sent", message_type=message_type, bytes=len(frame))
            return Delivery.TOO_LARGE
        try:
            self._socket.send([identity, frame])
        except zmq.Again:
            log.warning("peer does not read, a message to it is dropped", message_type=message_type)
            return Delivery.FULL
        except zmq.ZMQError:
            return Delivery.GONE
        return Delivery.SENT

    def close(self) -> None:
        self._router.disable_monitor()
        self._monitor.close()
        self._socket.close()
        if self._authenticator is not None:
            self._authenticator.close()
        self._context.term()

    def _connections_changed(self) -> None:
        # Read all events: unread ones do not signal the descriptor again. So ``sum``, not ``any``.
        if sum(map(self.connections.handle_event, self._monitor.received())):
            self._on_disconnect()
