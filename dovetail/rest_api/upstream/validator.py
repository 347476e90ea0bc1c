"""The connection to the validator: one DEALER socket in the event loop, and a future for each pending request.

This module handles envelopes, correlation ids and the state of the connection. Handlers know the messages (WIRE.md).
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
from dovetail.rest_api.upstream.keys import Keys, handshake_failure, read_keys
from protos import node_pb2
from protos.validator_pb2 import Message as Envelope

log = structlog.get_logger(__name__)

AnswerT = TypeVar("AnswerT", bound=Message)

_RECONNECT_MS: Final = (100, 300)
RECONNECT_MS_MAX: Final = 2_000
_HEARTBEAT_MS: Final = 5_000
_SILENCE_MS_MAX: Final = 15_000
_EVENTS: Final = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)


class ValidatorConnection:
    """Sends requests to the validator and awaits the answers, in the event loop that called ``open``.

    ZeroMQ reconnects by itself. Without a connection, requests are refused with code 18. They are never kept and sent
    later, so that a client may rely on the 503.
    """

    def __init__(self, config: RestConfig) -> None:
        self._config = config
        self._pending: dict[str, tuple[int, asyncio.Future[bytes]]] = {}
        self._pending_bytes = 0
        self._count = 0
        self._is_connected = asyncio.Event()
        self._keys: Keys | None = None
        self._last_reason = ""
        self._last_keys_fault = ""
        self._reconnect_timer: asyncio.TimerHandle | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._socket: zmq.Socket[bytes]
        self._monitor: zmq.Socket[bytes]

    @property
    def connected(self) -> bool:
        """Whether there is a connection, according to the last monitor event."""
        return self._is_connected.is_set()

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    async def wait_connected(self) -> None:
        await self._is_connected.wait()

    def open(self) -> None:
        """Start to connect; a second call has no effect. Call it from the event loop.

        Raises ValueError if the configured address or a key file is unusable.
        """
        if self._context is not None:
            return
        config = self._config
        self._keys = read_keys(config.connection_key, config.validator_key) if config.connection_key else None
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        # No message is queued without a connection, and a lost connection drops its queue.
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.IPV6, int(needs_ipv6(self._config.validator)))
        self._socket.setsockopt(zmq.SNDHWM, self._config.requests_in_flight_max)
        self._socket.setsockopt(zmq.RCVHWM, self._config.requests_in_flight_max)
        self._socket.setsockopt(zmq.MAXMSGSIZE, self._config.limits.message_bytes_max)
        # libzmq adds a random part of this interval at every attempt, and doubles the interval up to the maximum.
        self._socket.setsockopt(zmq.RECONNECT_IVL, random.randint(*_RECONNECT_MS))
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _SILENCE_MS_MAX)
        if self._keys is not None:
            self._keys.configure(self._socket)
        self._monitor = self._socket.get_monitor_socket(_EVENTS)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket.fileno(), self._receive_all)
        loop.add_reader(self._monitor.fileno(), self._handle_monitor_events)
        try:
            self._socket.connect(self._config.validator)
        except zmq.ZMQError as error:
            self.close()
            raise ValueError(f"validator: {self._config.validator!r} is no address to connect to: {error}") from None
        # The descriptor does not signal events from before the readers were added.
        self._handle_monitor_events()

    def close(self) -> None:
        """Close, and refuse pending requests with code 18. Has no effect on a closed connection."""
        if self._context is None:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._monitor.fileno())
        loop.remove_reader(self._socket.fileno())
        if self._reconnect_timer is not None:
            self._reconnect_timer.cancel()
        self._fail_pending("the REST API is stopping")
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
        """Send one request and return its answer, decoded as ``answer``.

        The correlation id begins with ``request_id``, so that the validator's log lines contain that id. Raises
        ApiError 15 if too many requests are pending or the validator refuses this API's key; 17 without an answer
        within ``timeout_s``; 18 without a connection; 20 for an answer of another type or an undecodable one.

        ``is_wait``: the validator holds the request. After a cancellation or a timeout it gets a StatusWaitCancel.
        """
        self._count += 1
        correlation_id = f"{request_id}.{self._count}"
        message = Envelope(message_type=asked, correlation_id=correlation_id, content=content)
        frame = message.SerializeToString()
        self._send_request(frame)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._pending[correlation_id] = (answered, future)
        self._pending_bytes += len(frame)
        if asked == Envelope.CLIENT_BATCH_SUBMIT_REQUEST and len(self._pending) == 1:
            # No other request is pending, so give this core to ZeroMQ's thread, which then sends the message at once.
            os.sched_yield()
        try:
            # A send may clear the descriptor's signal for frames that have arrived.
            self._receive_all()
            async with asyncio.timeout(timeout_s):
                received = await future
        except TimeoutError:
            raise ApiError(Problem.TIMED_OUT, f"the validator gave no answer within {timeout_s:g} seconds") from None
        finally:
            del self._pending[correlation_id]
            self._pending_bytes -= len(frame)
            if is_wait and future.cancelled():
                self._cancel_wait(correlation_id)
        try:
            return answer.FromString(received)
        except DecodeError:
            text = f"the validator's answer of {len(received)} bytes is no {answer.DESCRIPTOR.name}"
            raise ApiError(Problem.INVALID_RESPONSE, text) from None

    def _cancel_wait(self, correlation_id: str) -> None:
        """Tell the validator that nobody awaits this answer any more."""
        if self._context is not None and self.connected:
            wait = node_pb2.StatusWaitCancel(correlation_id=correlation_id).SerializeToString()
            message = Envelope(message_type=Envelope.STATUS_WAIT_CANCEL, correlation_id=correlation_id, content=wait)
            # If this message cannot be sent, the wait ends at its own time limit.
            self._send(message.SerializeToString())

    def _send_request(self, frame: bytes) -> None:
        if self._context is not None:
            # A disconnection that is not handled yet must not fail a request that is sent on the next connection.
            self._handle_monitor_events()
        if not self.connected:
            raise ApiError(
                Problem.DISCONNECTED,
                f"no connection to the validator at {self._config.validator}; the REST API reconnects by itself",
            )
        if len(frame) > self._config.limits.message_bytes_max:
            # The validator would close the connection, and all requests in flight would fail.
            raise ApiError(
                Problem.TOO_LARGE,
                f"the request has {len(frame)} bytes; the validator takes {self._config.limits.message_bytes_max}",
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
            # A send rarely looks for new connections. Reading the socket's events always does.
            if not self._events() & zmq.POLLOUT:
                return False
            self._socket.send(frame, zmq.NOBLOCK)
        return True

    def _events(self) -> int:
        return int(self._socket.getsockopt(zmq.EVENTS))

    def _receive_all(self) -> None:
        """Receive every waiting frame, because the descriptor signals only the first one."""
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
        # The frame may be large, and the message holds a copy of its content.
        del frame
        correlation_id = message.correlation_id
        if message.message_type == Envelope.PING_REQUEST:
            pong = Envelope(message_type=Envelope.PING_RESPONSE, correlation_id=correlation_id)
            self._send(pong.SerializeToString())
            return
        # An answer without a pending request comes after a timeout or a cancellation.
        answered, future = self._pending.get(correlation_id, (0, None))
        if future is None or future.done():
            return
        if message.message_type == answered:
            future.set_result(message.content)
        else:
            future.set_exception(self._refusal(message, answered))

    def _refusal(self, message: Envelope, answered: int) -> ApiError:
        """The error for an answer of another type than ``answered``. A refused key is logged once per connection."""
        if message.message_type == Envelope.NOT_ALLOWED:
            with contextlib.suppress(DecodeError):
                reason = node_pb2.NotAllowed.FromString(message.content).message
                if not self._last_reason:
                    self._last_reason = reason
                    log.error("not served by the validator", validator=self._config.validator, reason=reason)
                return ApiError(Problem.NOT_READY, f"the validator does not serve this REST API: {reason}")
        text = f"the validator answered with a message of type {message.message_type} instead of {answered}"
        return ApiError(Problem.INVALID_RESPONSE, text)

    def _handle_monitor_events(self) -> None:
        while True:
            try:
                frames = self._monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            event = parse_monitor_message(frames)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                # This makes the socket use the new connection, see _send.
                self._events()
                self._is_connected.set()
                self._last_reason = ""
                log.info("connected to the validator", validator=self._config.validator)
            elif event == zmq.EVENT_DISCONNECTED and not self.connected:
                pass  # The handshake failed, and its own event has been logged.
            elif event == zmq.EVENT_DISCONNECTED:
                log.warning("lost the validator", validator=self._config.validator, waiting=len(self._pending))
                # Answers that have arrived are still delivered.
                self._receive_all()
                self._fail_pending(f"the connection to the validator at {self._config.validator} was lost")
            else:
                self._on_handshake_failed(event)

    def _on_handshake_failed(self, event: int) -> None:
        """Log the reason, unless it equals the last logged reason, and make sure that another attempt follows."""
        reason = handshake_failure(self._keys, event)
        if reason != self._last_reason:
            self._last_reason = reason
            log.error("not let in by the validator", validator=self._config.validator, reason=reason)
        if (event != zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL or self._keys is not None) and self._reconnect_timer is None:
            # ZeroMQ itself tries again only after NO_DETAIL, and only with the keys that it has.
            loop = asyncio.get_running_loop()
            self._reconnect_timer = loop.call_later(RECONNECT_MS_MAX / 1000, self._reconnect)

    def _reconnect(self) -> None:
        self._reconnect_timer = None
        self._handle_monitor_events()
        if self.connected:
            return
        if self._keys is not None:
            # An operator may have corrected the files.
            self._keys, fault = self._keys.reload()
            if fault and fault != self._last_keys_fault:
                log.error("a connection key cannot be read, the one from before is used", reason=fault)
            self._last_keys_fault = fault
            self._keys.configure(self._socket)
        # ZeroMQ may have dropped the endpoint already.
        with contextlib.suppress(zmq.ZMQError):
            self._socket.disconnect(self._config.validator)
        self._socket.connect(self._config.validator)

    def _fail_pending(self, reason: str) -> None:
        self._is_connected.clear()
        for _, future in self._pending.values():
            if not future.done():
                future.set_exception(ApiError(Problem.DISCONNECTED, reason))
