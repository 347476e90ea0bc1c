"""The connection to the validator: one DEALER in the event loop, and the futures of those who wait for an answer.

Knows envelopes, correlation ids and the state of the connection. What the messages mean is the routes' business.
"""

import asyncio
import contextlib
import os
import random
from typing import Final, TypeVar

import structlog
import zmq
from google.protobuf.message import DecodeError, Message
from zmq.utils.monitor import parse_monitor_message

from dovetail.ledger.hosts import needs_ipv6
from dovetail.rest_api.config import RestConfig
from dovetail.rest_api.errors import ApiError, Problem
from dovetail.rest_api.upstream.keys import Keys, read_keys, why_not_let_in
from protos import node_pb2
from protos.validator_pb2 import Message as Envelope

log = structlog.get_logger(__name__)

AnswerT = TypeVar("AnswerT", bound=Message)

_RECONNECT_MS: Final = (100, 300)
_RECONNECT_MS_MAX: Final = 2_000
_HEARTBEAT_MS: Final = 5_000
_SILENCE_MS_MAX: Final = 15_000
_EVENTS: Final = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)


class Validator:
    """Asks and waits. Everything happens in the event loop that called ``open``.

    ZeroMQ reconnects by itself; while it does, and the moment that a connection is lost, requests are refused with
    code 18 and not kept for later: a client that was told 503 must be able to believe it.
    """

    def __init__(self, config: RestConfig) -> None:
        self._config = config
        self._pending: dict[str, tuple[int, asyncio.Future[bytes]]] = {}
        self._pending_bytes = 0
        self._count = 0
        self._is_connected = asyncio.Event()
        self._keys: Keys | None = None
        self._said = ""
        self._keys_fault = ""
        self._again: asyncio.TimerHandle | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._socket: zmq.Socket[bytes]
        self._monitor: zmq.Socket[bytes]

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._is_connected.is_set()

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answer."""
        return len(self._pending)

    async def wait_connected(self) -> None:
        """Return once there is a connection."""
        await self._is_connected.wait()

    def open(self) -> None:
        """Begin to connect, once; call from the event loop.

        Raises ValueError when the configured address is none, or a key file holds no key that may be used.
        """
        if self._context is not None:
            return
        config = self._config
        self._keys = read_keys(config.connection_key, config.validator_key) if config.connection_key else None
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        # Nothing is queued for a connection that is not there, and a lost connection takes its queue along.
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.IPV6, int(needs_ipv6(self._config.validator)))
        self._socket.setsockopt(zmq.SNDHWM, self._config.requests_in_flight_max)
        self._socket.setsockopt(zmq.RCVHWM, self._config.requests_in_flight_max)
        self._socket.setsockopt(zmq.MAXMSGSIZE, self._config.limits.message_bytes_max)
        # libzmq adds a random part of this interval to every try and doubles it up to the maximum.
        self._socket.setsockopt(zmq.RECONNECT_IVL, random.randint(*_RECONNECT_MS))
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MS_MAX)
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _SILENCE_MS_MAX)
        if self._keys is not None:
            self._keys.put_on(self._socket)
        self._monitor = self._socket.get_monitor_socket(_EVENTS)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket.fileno(), self._drain)
        loop.add_reader(self._monitor.fileno(), self._drain_monitor)
        try:
            self._socket.connect(self._config.validator)
        except zmq.ZMQError as error:
            self.close()
            raise ValueError(f"validator: {self._config.validator!r} is no address to connect to: {error}") from None
        # What came before the readers stood raises no edge.
        self._drain_monitor()

    def close(self) -> None:
        """Refuse whoever still waits, with code 18, and close. Does nothing when it is not open."""
        if self._context is None:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._monitor.fileno())
        loop.remove_reader(self._socket.fileno())
        if self._again is not None:
            self._again.cancel()
        self._lose("the REST API is stopping")
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(0)
        self._context.term()
        self._context = None

    async def request(
        self,
        asked: Envelope.MessageType,
        content: bytes,
        answered: Envelope.MessageType,
        answer: type[AnswerT],
        *,
        request_id: str,
        timeout_s: float,
        is_wait: bool = False,
    ) -> AnswerT:
        """The answer to one question, decoded as ``answer``.

        The correlation id begins with ``request_id``, so that the validator's log lines carry it. Raises ApiError: 15
        too many wait already, or this API's key has not the right to ask; 17 no answer within ``timeout_s``; 18 no
        connection, or connection lost; 20 the answer is of another type or not decodable. Cancelling forgets the
        question; one that the validator was asked to hold (``is_wait``) it is told to forget as well, also when the
        time is over.
        """
        received = await self._exchange(asked, content, answered, request_id, timeout_s, is_wait)
        try:
            return answer.FromString(received)
        except DecodeError:
            text = f"the validator's answer of {len(received)} bytes is no {answer.DESCRIPTOR.name}"
            raise ApiError(Problem.INVALID_RESPONSE, text) from None

    async def _exchange(
        self,
        asked: Envelope.MessageType,
        content: bytes,
        answered: Envelope.MessageType,
        request_id: str,
        timeout_s: float,
        is_wait: bool,
    ) -> bytes:
        self._count += 1
        correlation_id = f"{request_id}.{self._count}"
        message = Envelope(message_type=asked, correlation_id=correlation_id, content=content)
        frame = message.SerializeToString()
        self._send_request(frame)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._pending[correlation_id] = (answered, future)
        self._pending_bytes += len(frame)
        if asked == Envelope.CLIENT_BATCH_SUBMIT_REQUEST and len(self._pending) == 1:
            # Nobody else waits: ZeroMQ's thread, which is often woken on this core, sends it before the rest is done.
            os.sched_yield()
        try:
            # A send may swallow the edge of frames that arrived meanwhile.
            self._drain()
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise ApiError(Problem.TIMED_OUT, f"the validator gave no answer within {timeout_s:g} seconds") from None
        finally:
            del self._pending[correlation_id]
            self._pending_bytes -= len(frame)
            if is_wait and future.cancelled():
                self._take_back(correlation_id)

    def _take_back(self, correlation_id: str) -> None:
        """Free the validator of a wait that nobody is left to hear the end of."""
        if self._context is not None and self.connected:
            wait = node_pb2.StatusWaitCancel(correlation_id=correlation_id).SerializeToString()
            message = Envelope(message_type=Envelope.STATUS_WAIT_CANCEL, correlation_id=correlation_id, content=wait)
            # Not sent, it ends by itself when its time is over.
            self._send(message.SerializeToString())

    def _send_request(self, frame: bytes) -> None:
        if self._context is not None:
            # A loss that is not known yet must not fall on a request that travels on the next connection.
            self._drain_monitor()
        if not self.connected:
            raise ApiError(
                Problem.DISCONNECTED,
                f"no connection to the validator at {self._config.validator}; the REST API reconnects by itself",
            )
        if (
            len(self._pending) >= self._config.requests_in_flight_max
            or self._pending_bytes + len(frame) > self._config.request_bytes_in_flight_max
        ):
            raise ApiError(
                Problem.NOT_READY,
                f"{len(self._pending)} requests of this REST API ({self._pending_bytes} bytes) wait for the validator"
                " already, which is its limit",
            )
        if not self._send(frame):
            raise ApiError(Problem.DISCONNECTED, f"the validator at {self._config.validator} takes no more requests")

    def _send(self, frame: bytes) -> bool:
        try:
            self._socket.send(frame, zmq.NOBLOCK)
        except zmq.Again:
            # A send looks for new pipes only now and then; asking for the events always does.
            if not self._events() & zmq.POLLOUT:
                return False
            self._socket.send(frame, zmq.NOBLOCK)
        return True

    def _events(self) -> int:
        return int(self._socket.getsockopt(zmq.EVENTS))

    def _drain(self) -> None:
        """Take every frame that waits: the descriptor tells of the first one only."""
        while True:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._receive(frames)

    def _receive(self, frames: list[bytes]) -> None:
        frame = frames.pop()
        try:
            message = Envelope.FromString(frame)
        except DecodeError:
            log.warning("frame is no message", frames=len(frames) + 1, bytes=len(frame))
            return
        # It may be large, and the message has its own copy.
        del frame
        correlation_id = message.correlation_id
        if message.message_type == Envelope.PING_REQUEST:
            pong = Envelope(message_type=Envelope.PING_RESPONSE, correlation_id=correlation_id)
            self._send(pong.SerializeToString())
            return
        # An answer that nobody waits for came late: its client is gone, or was told that it timed out.
        answered, future = self._pending.get(correlation_id, (0, None))
        if future is None or future.done():
            return
        if message.message_type == answered:
            future.set_result(message.content)
        else:
            future.set_exception(self._refusal(message, answered))

    def _refusal(self, message: Envelope, answered: int) -> ApiError:
        """What an answer of another type than ``answered`` means; a key without the right is logged once."""
        if message.message_type == Envelope.NOT_ALLOWED:
            with contextlib.suppress(DecodeError):
                reason = node_pb2.NotAllowed.FromString(message.content).message
                if not self._said:
                    self._said = reason
                    log.error("not served by the validator", validator=self._config.validator, reason=reason)
                return ApiError(Problem.NOT_READY, f"the validator does not serve this REST API: {reason}")
        text = f"the validator answered with a message of type {message.message_type} instead of {answered}"
        return ApiError(Problem.INVALID_RESPONSE, text)

    def _drain_monitor(self) -> None:
        while True:
            try:
                frames = self._monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            event = parse_monitor_message(frames)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                # Makes the socket take up the new pipe, see _send.
                self._events()
                self._is_connected.set()
                self._said = ""
                log.info("connected to the validator", validator=self._config.validator)
            elif event == zmq.EVENT_DISCONNECTED and not self.connected:
                pass  # Its handshake failed, and that has been said.
            elif event == zmq.EVENT_DISCONNECTED:
                log.warning("lost the validator", validator=self._config.validator, waiting=len(self._pending))
                # Answers that did arrive count.
                self._drain()
                self._lose(f"the connection to the validator at {self._config.validator} was lost")
            else:
                self._not_let_in(event)

    def _not_let_in(self, event: int) -> None:
        """A handshake failed: say why, once for each reason, and go on trying."""
        reason = why_not_let_in(self._keys, event)
        if reason != self._said:
            self._said = reason
            log.error("not let in by the validator", validator=self._config.validator, reason=reason)
        if (event != zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL or self._keys is not None) and self._again is None:
            # Only after that one ZeroMQ tries again by itself, and with the keys that it has.
            loop = asyncio.get_running_loop()
            self._again = loop.call_later(_RECONNECT_MS_MAX / 1000, self._connect_again)

    def _connect_again(self) -> None:
        self._again = None
        self._drain_monitor()
        if self.connected:
            return
        if self._keys is not None:
            self._read_keys_again(self._keys).put_on(self._socket)
        # It may have gone by itself.
        with contextlib.suppress(zmq.ZMQError):
            self._socket.disconnect(self._config.validator)
        self._socket.connect(self._config.validator)

    def _read_keys_again(self, keys: Keys) -> Keys:
        """Somebody may have mended a file."""
        self._keys, fault = keys.read_again()
        if fault and fault != self._keys_fault:
            log.error("a connection key cannot be read, the one from before is used", reason=fault)
        self._keys_fault = fault
        return self._keys

    def _lose(self, reason: str) -> None:
        self._is_connected.clear()
        for _, future in self._pending.values():
            if not future.done():
                future.set_exception(ApiError(Problem.DISCONNECTED, reason))
