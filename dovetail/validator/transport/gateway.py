"""The validator's door: one ROUTER on which processors and clients meet, and the envelope of every message.

It decodes envelopes, answers pings, notices closed connections, and hands everything else on. What the messages mean,
and who may send which, is not known here.
"""

import os
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, NamedTuple

import structlog
import zmq
from google.protobuf.message import DecodeError

from dovetail.ledger.limits import Limits
from dovetail.validator.transport.access import OPEN, CannotOpen, Door
from dovetail.validator.transport.authenticator import DOMAIN, Authenticator
from dovetail.validator.transport.connections import EVENTS, Connections
from dovetail.validator.transport.sockets import DrainedSocket
from protos.validator_pb2 import Message as Envelope

_PORT_MAX: Final = 65_535
_MONITOR: Final = "inproc://monitor"

log = structlog.get_logger("validator.gateway")


class Request(NamedTuple):
    """One message from a peer; whoever answers repeats identity and correlation id.

    ``key``: the public connection key that the peer has proven; empty at an open door.
    """

    identity: bytes
    message_type: int
    correlation_id: str
    content: bytes
    key: str = ""


class Delivery(Enum):
    """What became of a message that was to be sent."""

    SENT = "handed to the peer's connection"
    FULL = "the peer does not read; the message is dropped"
    GONE = "the peer is not connected; the message is dropped"


class CannotBind(Exception):
    """The address cannot be listened on; the message says why."""


class Gateway:
    """Listens on ``bind``. ``on_sweep`` is called when requests wait; it takes them with ``requests``."""

    def __init__(
        self,
        bind: str,
        limits: Limits,
        on_sweep: Callable[[], None],
        on_disconnect: Callable[[], None],
        door: Door = OPEN,
    ) -> None:
        try:
            door.check_address(bind)
        except CannotOpen as error:
            raise CannotBind(str(error)) from None
        port = bind.rpartition(":")[2]
        if port.isascii() and port.isdigit() and int(port[:9]) > _PORT_MAX:
            # libzmq would take it, and listen on another.
            raise CannotBind(f"cannot listen on {bind}: the highest port is {_PORT_MAX}")
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        router = self._context.socket(zmq.ROUTER)
        router.set(zmq.LINGER, 0)
        router.set(zmq.ROUTER_MANDATORY, 1)
        router.set(zmq.SNDHWM, limits.peer_messages_max)
        # Of each connection. What is beyond stays with its sender: no more is taken off that connection.
        router.set(zmq.RCVHWM, limits.connection_unread_messages_max)
        router.set(zmq.MAXMSGSIZE, limits.message_bytes_max)
        router.set(zmq.HEARTBEAT_IVL, limits.processor_ping_ms)
        router.set(zmq.HEARTBEAT_TIMEOUT, limits.processor_silence_ms)
        router.set(zmq.IPV6, int("[" in bind))
        router.set(zmq.HANDSHAKE_IVL, limits.handshake_ms_max)
        self._authenticator: Authenticator | None = None
        if door.key is not None:
            router.set(zmq.CURVE_SERVER, 1)
            router.set(zmq.CURVE_SECRETKEY, door.key.secret.reveal())
            router.set(zmq.ZAP_DOMAIN, DOMAIN)
            self._authenticator = Authenticator(self._context, door.callers)
        router.monitor(_MONITOR, EVENTS)
        monitor = self._context.socket(zmq.PAIR)
        # With a bound the library's own thread would wait for this one, and this one for it where the door closes.
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
        """Where it listens, with the port that a wildcard became."""
        self.connections = Connections(limits, kept=door.key is not None)
        self.connections.listens(self.endpoint)
        self._router = router
        self._on_disconnect = on_disconnect
        self._socket = DrainedSocket(router, on_sweep)
        # Who sent it costs a look at each message, which an open door can do without.
        self._arrived = self._socket.received if door.key is None else self._socket.received_with_user
        self._monitor = DrainedSocket(monitor, self._connections_changed)

    def requests(self) -> Iterator[Request]:
        """The waiting requests. Pings are answered here; what is no message is dropped and logged."""
        for frames in self._arrived():
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
        """Send one message, without waiting."""
        envelope = Envelope(
            message_type=message_type,  # type: ignore[arg-type]
            correlation_id=correlation_id,
            content=content,
        )
        try:
            self._socket.send([identity, envelope.SerializeToString()])
        except zmq.Again:
            log.warning("peer does not read, a message to it is dropped", message_type=message_type)
            return Delivery.FULL
        except zmq.ZMQError:
            return Delivery.GONE
        return Delivery.SENT

    def give_way(self) -> None:
        """Let what was sent go out before anything else is done here: for a message that somebody waits for alone.

        ZeroMQ's thread sends it, and the system likes to wake that on this core. Where another process of the same
        scheduling group is busy this costs its slice, a millisecond or more.
        """
        os.sched_yield()

    def close(self) -> None:
        self._router.disable_monitor()
        self._monitor.close()
        self._socket.close()
        if self._authenticator is not None:
            self._authenticator.close()
        self._context.term()

    def _connections_changed(self) -> None:
        # All of them: what is left unread raises no further edge.
        if sum(map(self.connections.take, self._monitor.received())):
            self._on_disconnect()
