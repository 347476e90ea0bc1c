"""TCP connections of clients: how they are accepted, refused and ended. What is asked over them is not known here.

uvicorn does the protocol; here is what it leaves open: an answer in the error shape to what is no HTTP, and an end to
clients that neither come to the end of their request nor read their answer.
"""

import asyncio
import contextlib
import resource
import socket
from collections.abc import Callable
from typing import Any, Final
from uuid import uuid4

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from dovetail.rest_api.config import split_bind
from dovetail.rest_api.errors import ApiError, Problem
from dovetail.rest_api.metrics import Metrics
from dovetail.rest_api.request.call import Door

log = structlog.get_logger(__name__)

BACKLOG: Final = 2048

_DESCRIPTORS_RESERVED: Final = 64
"""For what is no client: the socket to the validator when it reconnects, log files, /proc."""

_LINGER_S: Final = 2

REFUSED: Final = "refused"
"""In the state of a request's scope: it was answered, counted and told of here, and its handler answers nobody."""


class Listener(socket.socket):
    """Accepts as long as descriptors last, and refuses the rest at once: to fail at accept would end nothing."""

    def __init__(self, family: int, metrics: Metrics) -> None:
        # The protocol is named so that asyncio, which looks at it, sets TCP_NODELAY: without it each answer on a
        # kept-alive connection waits 40 ms for an acknowledgement.
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.descriptor_max = soft - _DESCRIPTORS_RESERVED if soft != resource.RLIM_INFINITY else None
        """Connections with a higher descriptor are refused: the system gives out the lowest that is free."""
        self._is_full = False
        self._metrics = metrics

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        if self.descriptor_max is None or connection.fileno() <= self.descriptor_max:
            self._is_full = False
            return connection, address
        if not self._is_full:
            log.warning("connections refused, open files are at their limit", descriptor_max=self.descriptor_max)
        self._is_full = True
        self._metrics.refused(503)
        error = ApiError(Problem.NOT_READY, "this REST API has as many connections as it may have open files")
        with connection, contextlib.suppress(OSError):
            connection.setblocking(False)
            # Fits into an empty send buffer; a client that sent its request already may be told by a reset alone.
            connection.send(_plain_answer(503, "Service Unavailable", error, uuid4().hex))
        # Ends this round of accepting; what still waits begins the next one.
        raise BlockingIOError


def listen(bind: str, metrics: Metrics) -> Listener:
    """Listen on HOST:PORT, and count in ``metrics`` who is refused. Raises OSError that names it."""
    host, port = split_bind(bind)
    listener = Listener(socket.AF_INET6 if ":" in host else socket.AF_INET, metrics)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        return listener
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen on {bind}: {error.strerror or error}") from None


class _Answering(asyncio.Transport):
    """What a request's cycle sees of its connection: uvicorn writes to it, and ends it as ``end`` does.

    The head of an answer goes with what follows it: sent apart, each would wake the client.
    """

    def __init__(self, transport: asyncio.Transport, cycle: RequestResponseCycle, end: Callable[[], None]) -> None:
        super().__init__()
        self._transport = transport
        self._cycle = cycle
        self._end = end
        self._head: bytes | bytearray | memoryview | None = None
        self._has_head = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._cycle.response_started and not self._has_head:
            self._has_head, self._head = True, data
        elif self._head is None:
            self._transport.write(data)
        else:
            self._transport.write(b"".join((self._head, data)))
            self._head = None

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        if self._head is not None:
            self.write(b"")
        self._end()


class Protocol(H11Protocol):
    """uvicorn's HTTP/1.1, with ends to what would go on for ever.

    Whatever is the client's turn has a deadline: ``timeout_keep_alive`` for the first byte of a request,
    ``request_s_max`` from there to its last, ``answer_s_max`` for reading the answer. Only a handler may take its time.
    """

    _discards = False
    _request_end: asyncio.TimerHandle | None = None
    _answer_end: asyncio.TimerHandle | None = None

    @property
    def _door(self) -> Door:
        door = self.app_state["door"]
        assert isinstance(door, Door)
        return door

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()

    def data_received(self, data: bytes) -> None:
        if self._discards:
            return
        super().data_received(data)
        # uvicorn stops reading behind a pipelined request, and would not see that a client that waits has left.
        waiting = len(self.conn.trailing_data[0])
        if self.conn.their_state is h11.DONE and waiting <= (self.config.h11_max_incomplete_event_size or 0):
            self.flow.resume_reading()

    def handle_events(self) -> None:
        before, is_rest = self.cycle, self._is_answered_early()
        super().handle_events()
        if self.cycle is not None and self.cycle is not before:
            # Its task has not begun.
            self.cycle.transport = _Answering(self.transport, self.cycle, self._end)
        if self._discards:
            return
        if self.cycle is not before and {b"content-length", b"transfer-encoding"} <= {name for name, _ in self.headers}:
            # A proxy in front may have taken the other one for the end of the body (RFC 9112, 6.1).
            self._refuse(400, "Bad Request", Problem.BAD_REQUEST, "both Content-Length and Transfer-Encoding are given")
            return
        if is_rest and not self._is_answered_early():
            self._end_request()
        state = self.conn.their_state
        if state is h11.SEND_BODY or (state is h11.IDLE and self.conn.trailing_data[0]):
            if self._request_end is None:
                self._request_end = self.loop.call_later(self._door.config.request_s_max, self._refuse_late)
            return
        self._end_request()
        if state is h11.IDLE:
            self._await_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._end_answer()
        if self._discards:
            self._unset_keepalive_if_required()
            return
        if self.flow.write_paused or self.transport.is_closing():
            self._await_reader()
        if self._is_answered_early() and not self.transport.is_closing():
            # Answered before the request's body came. What still comes is discarded for a while, so that the answer is
            # not lost in a reset; when all of it did, the connection goes on.
            self._end_request()
            self._request_end = self.loop.call_later(_LINGER_S, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.cycle is not None and self.cycle.response_complete and not self.transport.is_closing():
            self._end_answer()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._await_reader()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_request()
        self._end_answer()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        bytes_max = self.config.h11_max_incomplete_event_size
        text = f"this is no HTTP/1.1 request, or its head has over {bytes_max} bytes"
        self._refuse(400, "Bad Request", Problem.BAD_REQUEST, text)

    def _refuse_late(self) -> None:
        text = f"the request did not arrive whole within {self._door.config.request_s_max} seconds"
        self._refuse(408, "Request Timeout", Problem.REQUEST_TIMEOUT, text)

    def _refuse(self, status: int, phrase: str, problem: Problem, message: str) -> None:
        """Tell the client what is wrong with what it sends, where that is not too late, and end the connection."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            # The request has its answer, or a part of it: a second one would be taken for the next request's.
            self._discard_rest()
            self.transport.close()
            self._await_reader()
            return
        if self.conn.our_state is h11.SEND_RESPONSE:
            # Its handler has nobody left to answer.
            self.cycle.scope["state"][REFUSED] = True
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        error = ApiError(problem, message)
        request_id = uuid4().hex
        client = (self.client or ("",))[0]
        log.info("request", request_id=request_id, status=status, reason=error.message, client=client)
        self._door.metrics.refused(status)
        self.transport.write(_plain_answer(status, phrase, error, request_id))
        self._linger()

    def _end(self) -> None:
        """End the connection behind its last answer."""
        if self.conn.their_state is h11.SEND_BODY:
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        """End the connection of a client that may still send: to close would reset it, and its answer be lost."""
        self._discard_rest()
        self.transport.write_eof()
        self.flow.resume_reading()
        self._request_end = self.loop.call_later(_LINGER_S, self.transport.abort)

    def _discard_rest(self) -> None:
        """Nothing that still comes is a request, nor does the server's end wait for this connection."""
        self._discards = True
        self._end_request()
        self.connections.discard(self)

    def _is_answered_early(self) -> bool:
        """Whether the answer is out and the body of its request not yet in."""
        return self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY

    def _await_request(self) -> None:
        if self.timeout_keep_alive_task is None and not self.transport.is_closing():
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _await_reader(self) -> None:
        """From now on, a client that does not read what is there for it holds it no longer than it may."""
        if self._answer_end is None:
            self._answer_end = self.loop.call_later(self._door.config.answer_s_max, self.transport.abort)

    def _end_request(self) -> None:
        if self._request_end is not None:
            self._request_end.cancel()
            self._request_end = None

    def _end_answer(self) -> None:
        if self._answer_end is not None:
            self._answer_end.cancel()
            self._answer_end = None


def _plain_answer(status: int, phrase: str, error: ApiError, request_id: str) -> bytes:
    """An error as it stands on the wire, for where there is no request to answer; the connection ends after it."""
    body = error.body()
    headers = "".join(f"{name.lower()}: {value}\r\n" for name, value in error.headers.items())
    head = (
        f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        f"x-request-id: {request_id}\r\n{headers}connection: close\r\n\r\n"
    )
    return head.encode() + body
