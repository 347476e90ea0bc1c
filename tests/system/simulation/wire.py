"""Simulated sockets: connections between peers and the running node, with delayed but ordered frames.

The gateway above is the real one, except for opening sockets. This module does not look into frames.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from random import Random

import zmq

from dovetail.ledger.limits import PROCESSOR_MESSAGE_BYTES_MAX
from dovetail.validator.transport.gateway import Gateway
from protos.validator_pb2 import Message as Envelope
from tests.system.simulation.clock import SimulatedLoop

OnFrame = Callable[[Envelope], None]
Watch = Callable[[bytes, Envelope], None]

_SWEEP_FRAMES_MAX = 40
"""Small, so that a sweep sometimes leaves frames behind."""


class Network:
    """Connects peers with the node.

    ``watch`` gets every frame that the node sends, and its receiver. At first no node listens.
    """

    def __init__(self, loop: SimulatedLoop, rng: Random, peer_messages_max: int, watch: Watch) -> None:
        self.loop = loop
        self.rng = rng
        self.watch = watch
        self.peer_messages_max = peer_messages_max
        self.delay_ms = rng.choice([(0, 1), (0, 5), (0, 40)])
        self.socket: NodeSocket | None = None
        self._numbers = count(1)

    def connect(self, name: str, on_frame: OnFrame, on_close: Callable[[], None]) -> "Connection | None":
        """Connect to the node; None while no node listens."""
        if self.socket is None:
            return None
        identity = f"{name}#{next(self._numbers)}".encode()
        connection = Connection(self, self.socket, identity, on_frame, on_close)
        self.socket.routes[identity] = connection
        return connection

    def has(self, identity: bytes) -> bool:
        """Whether the node has a connection of this identity."""
        return self.socket is not None and identity in self.socket.routes

    def after(self, earliest_ms: int) -> int:
        """The time at which a frame that is sent now arrives. It is not before ``earliest_ms``."""
        return max(self.loop.now_ms + self.rng.randint(*self.delay_ms), earliest_ms)

    def at(self, when_ms: int, call: Callable[[], None]) -> None:
        """Call a function at a given time. Calls at the same time run in the order in which they were requested."""
        if when_ms <= self.loop.now_ms:
            self.loop.call_soon(call)
        else:
            self.loop.call_at(when_ms / 1000, call)


class Connection:
    """One peer's connection to the node."""

    def __init__(
        self, network: Network, socket: "NodeSocket", identity: bytes, on_frame: OnFrame, on_close: Callable[[], None]
    ) -> None:
        self._network = network
        self._socket = socket
        self.identity = identity
        self._on_frame = on_frame
        self._on_close = on_close
        self._out: deque[bytes] = deque()
        self._in: deque[bytes] = deque()
        self._out_ms = self._in_ms = 0
        self.is_open = True
        self.reads = True
        """Whether the peer reads. If not, frames stay in its inbox."""
        self.missed = False
        """Whether a frame was dropped because the peer did not read."""

    def send(self, message_type: int, correlation_id: str, content: bytes) -> None:
        """Send a frame to the node. Do nothing if the connection is closed."""
        if self.is_open:
            envelope = Envelope(message_type=message_type, correlation_id=correlation_id, content=content)  # type: ignore[arg-type]
            self.send_raw(envelope.SerializeToString())

    def send_raw(self, frame: bytes) -> None:
        self._out.append(frame)
        self._out_ms = self._network.after(self._out_ms)
        self._network.at(self._out_ms, self._arrive)

    def close(self, *, flushed: bool) -> None:
        """Close the connection.

        With ``flushed``, frames on their way arrive before the end; otherwise they are lost.
        """
        if self.is_open:
            self.is_open = False
            if not flushed:
                self._out.clear()
            self._out_ms = self._network.after(self._out_ms)
            self._network.at(self._out_ms, self._end)

    def read_again(self) -> None:
        self.reads = True
        for _ in range(len(self._in)):
            self._network.loop.call_soon(self._take)

    def lose(self) -> None:
        """End the connection, because the node is gone. Some of the frames that the node sent last still arrive."""
        for _ in range(self._network.rng.randint(0, len(self._in)) if self._in else 0):
            self._take()
        self._in.clear()
        self._out.clear()
        if self.is_open:
            self.is_open = False
            self._network.loop.call_soon(self._on_close)

    # From the node

    def deliver(self, frame: bytes) -> None:
        """Deliver a frame from the node. Raises zmq.Again if too many frames wait for the peer."""
        if len(self._in) >= self._network.peer_messages_max:
            self.missed = True
            raise zmq.Again()
        self._in.append(frame)
        self._in_ms = self._network.after(self._in_ms)
        self._network.at(self._in_ms, self._take)

    def _take(self) -> None:
        if self.is_open and self.reads and self._in:
            self._on_frame(Envelope.FromString(self._in.popleft()))

    def _arrive(self) -> None:
        if self._out:
            self._socket.arrive(self.identity, self._out.popleft())

    def _end(self) -> None:
        self._socket.ended(self)


class NodeSocket:
    """Stands in for the gateway's ROUTER socket."""

    def __init__(self, network: Network, on_sweep: Callable[[], None], on_disconnect: Callable[[], None]) -> None:
        self._network = network
        self._on_sweep = on_sweep
        self._on_disconnect = on_disconnect
        self._inbox: deque[list[bytes]] = deque()
        self._announced = False
        self._closed = False
        self.routes: dict[bytes, Connection] = {}
        self.user = ""
        network.socket = self

    def received(self) -> Iterator[list[bytes]]:
        for _ in range(_SWEEP_FRAMES_MAX):
            if not self._inbox:
                return
            yield self._inbox.popleft()
        self._announce()

    def send(self, frames: list[bytes]) -> None:
        """Send a frame to a peer. Raises zmq.Again if the peer does not read, zmq.ZMQError if the peer is gone."""
        identity, frame = frames
        connection = self.routes.get(identity)
        if connection is None:
            raise zmq.ZMQError(zmq.EHOSTUNREACH)
        self._network.watch(identity, Envelope.FromString(frame))
        connection.deliver(frame)

    def close(self) -> None:
        """End all connections."""
        if not self._closed:
            self._closed = True
            self._network.socket = None
            for connection in self.routes.values():
                connection.lose()
            self.routes.clear()

    def arrive(self, identity: bytes, frame: bytes) -> None:
        if not self._closed:
            self._inbox.append([identity, frame])
            self._announce()

    def ended(self, connection: Connection) -> None:
        """Report the end of a connection, a moment before or after its route is removed."""
        if self._closed:
            return
        network = self._network

        def forget() -> None:
            self.routes.pop(connection.identity, None)

        def notice() -> None:
            if not self._closed:
                self._on_disconnect()

        network.at(network.loop.now_ms + network.rng.randint(0, 5), forget)
        network.at(network.loop.now_ms + network.rng.randint(0, 5), notice)

    def _announce(self) -> None:
        if not self._announced:
            self._announced = True
            self._network.loop.call_soon(self._sweep)

    def _sweep(self) -> None:
        self._announced = False
        if not self._closed:
            self._on_sweep()


class SimulatedGateway(Gateway):
    """The gateway on a simulated socket."""

    def __init__(self, network: Network, on_sweep: Callable[[], None], on_disconnect: Callable[[], None]) -> None:
        self._socket = NodeSocket(network, on_sweep, on_disconnect)  # type: ignore[assignment]
        self._received = self._socket.received
        self._message_bytes_max = PROCESSOR_MESSAGE_BYTES_MAX
        self.endpoint = "simulated"

    def close(self) -> None:
        self._socket.close()
