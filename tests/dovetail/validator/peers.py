"""Peers of the gateway on real sockets, in the test's event loop. No assertions, and no waits by the clock."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import zmq

from dovetail.common.keys import KeyFiles
from dovetail.ledger.limits import Limits
from dovetail.validator.transport.gateway import Gateway, Request
from dovetail.validator.transport.sockets import DrainedSocket
from protos.validator_pb2 import Message as Envelope
from tests.keys import use_keys

TEST_SECONDS_MAX = 20
UNANSWERED = 1_999
"""A message type that the gateway accepts and does not answer."""

LIMITS = replace(Limits(), message_bytes_max=1_000_000, peer_messages_max=1_000)


def run(test: Callable[[], Coroutine[Any, Any, None]], seconds_max: float = TEST_SECONDS_MAX) -> None:
    """Run a test in a loop of its own, with a time limit."""

    async def bounded() -> None:
        async with asyncio.timeout(seconds_max):
            await test()

    asyncio.run(bounded())


class OpenPort:
    """A gateway that answers every request with its own type and content, and records it."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.seen: list[Request] = []
        self.disconnected = asyncio.Event()
        self.gateway = Gateway("tcp://127.0.0.1:*", limits, self._sweep, self.disconnected.set)

    def _sweep(self) -> None:
        for request in self.gateway.requests():
            self.seen.append(request)
            if request.message_type not in (Envelope.PING_REQUEST, UNANSWERED):
                self.gateway.send(request.identity, request.message_type, request.correlation_id, request.content)


class Peer:
    """A DEALER socket whose frames arrive in a queue.

    ``keys``: its own and the validator's. ``events``: the events of its ``monitor``.
    """

    def __init__(
        self,
        endpoint: str,
        identity: bytes = b"",
        keys: tuple[KeyFiles, KeyFiles] | None = None,
        events: int = 0,
        bytes_max: int = -1,
    ) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        dealer = self._context.socket(zmq.DEALER)
        dealer.set(zmq.LINGER, 0)
        dealer.set(zmq.SNDHWM, 0)
        dealer.set(zmq.MAXMSGSIZE, bytes_max)
        if identity:
            dealer.set(zmq.IDENTITY, identity)
        if keys is not None:
            use_keys(dealer, *keys)
        if events:
            self.monitor = dealer.get_monitor_socket(events)
        dealer.connect(endpoint)
        self.arrived: asyncio.Queue[list[bytes]] = asyncio.Queue()
        self._dealer = dealer
        self.socket = DrainedSocket(dealer, self._readable)

    def _readable(self) -> None:
        for frames in self.socket.received():
            self.arrived.put_nowait(frames)

    def send(self, message_type: int, correlation_id: str, content: bytes = b"") -> None:
        envelope = Envelope(message_type=message_type, correlation_id=correlation_id, content=content)  # type: ignore[arg-type]
        self.socket.send([envelope.SerializeToString()])

    async def receive(self) -> Envelope:
        (content,) = await self.arrived.get()
        return Envelope.FromString(content)

    async def ping(self, correlation_id: str = "ping") -> Envelope:
        """Send a ping, and skip all messages that come before its answer."""
        self.send(Envelope.PING_REQUEST, correlation_id)
        while True:
            envelope = await self.receive()
            if envelope.message_type == Envelope.PING_RESPONSE and envelope.correlation_id == correlation_id:
                return envelope

    def leave(self) -> None:
        """Close the socket after all messages are sent."""
        self._dealer.close(10_000)
        self.close()

    def close(self) -> None:
        if hasattr(self, "monitor"):
            self._dealer.disable_monitor()
            self.monitor.close(0)
        self.socket.close()
        self._context.term()


@asynccontextmanager
async def open_port(*identities: bytes, limits: Limits = LIMITS) -> AsyncIterator[tuple[OpenPort, list[Peer]]]:
    """An open port, and one peer for each identity."""
    port = OpenPort(limits)
    peers = [Peer(port.gateway.endpoint, identity) for identity in identities]
    try:
        yield port, peers
    finally:
        for peer in peers:
            peer.close()
        port.gateway.close()
