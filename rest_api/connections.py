"""TCP connections of clients: how they are accepted, refused and ended. What is asked over them is not known here.

uvicorn does the protocol; here is what it leaves open: an answer in the error shape to what is no HTTP, and an end to
clients that neither read their answer nor stop sending.
"""

import asyncio
import contextlib
import resource
import socket
from typing import Any, Final
from uuid import uuid4

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from rest_api.config import split_bind
from rest_api.errors import ApiError, Problem

log = structlog.get_logger(__name__)

BACKLOG: Final = 2048

_DESCRIPTORS_RESERVED: Final = 64
"""For what is no client: the socket to the validator when it reconnects, log files, /proc."""

_LINGER_S: Final = 2
_STALL_S: Final = 60


class Listener(socket.socket):
    """Accepts as long as descriptors last, and refuses the rest at once: to fail at accept would end nothing."""

    def __init__(self, family: int) -> None:
        # The protocol is named so that asyncio, which looks at it, sets TCP_NODELAY: without it each answer on a
        # kept-alive connection waits 40 ms for an acknowledgement.
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.descriptor_max = soft - _DESCRIPTORS_RESERVED if soft != resource.RLIM_INFINITY else None
        """Connections with a higher descriptor are refused: the system gives out the lowest that is free."""
        self._is_full = False

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        if self.descriptor_max is None or connection.fileno() <= self.descriptor_max:
            self._is_full = False
            return connection, address
        if not self._is_full:
            log.warning("connections refused, open files are at their limit", descriptor_max=self.descriptor_max)
        self._is_full = True
        error = ApiError(Problem.NOT_READY, "this REST API has as many connections as it may have open files")
        with connection, contextlib.suppress(OSError):
            connection.setblocking(False)
            # Fits into an empty send buffer; a client that sent its request already may be told by a reset alone.
            connection.send(_plain_answer(503, "Service Unavailable", error, uuid4().hex, "retry-after: 1\r\n"))
        # Ends this round of accepting; what still waits begins the next one.
        raise BlockingIOError


def listen(bind: str) -> Listener:
    """Listen on HOST:PORT. Raises OSError that names it."""
    host, port = split_bind(bind)
    listener = Listener(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        return listener
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen on {bind}: {error.strerror or error}") from None


class Protocol(H11Protocol):
    """uvicorn's HTTP/1.1, with ends to what would go on for ever."""

    _discards = False
    _stall: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        if self._discards:
            return
        super().data_received(data)
        # uvicorn stops reading behind a pipelined request, and would not see that a client that waits has left.
        waiting = len(self.conn.trailing_data[0])
        if self.conn.their_state is h11.DONE and waiting <= (self.config.h11_max_incomplete_event_size or 0):
            self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_stall()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        # Whoever does not read would hold his answer in memory.
        self._stall = self.loop.call_later(_STALL_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._end_stall()
        super().resume_writing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.more_body and not self.transport.is_closing():
            # Answered before the request's body was read. What still comes is discarded for a while, so that the
            # answer is not lost in a reset; then the connection ends, unless the client went on with another request.
            self.loop.call_later(_LINGER_S, self._end_unread, self.cycle)

    def send_400_response(self, msg: str) -> None:
        self._discards = True
        self.connections.discard(self)
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            # The request has its answer, or a part of it: a second one would be taken for the next request's.
            self.transport.close()
            return
        if self.conn.our_state is h11.SEND_RESPONSE:
            # Its handler has nobody left to answer.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        error = ApiError(
            Problem.BAD_REQUEST,
            f"this is no HTTP/1.1 request, or its head has over {self.config.h11_max_incomplete_event_size} bytes",
        )
        request_id = uuid4().hex
        client = (self.client or ("",))[0]
        log.info("request", request_id=request_id, status=400, reason=error.message, client=client)
        self.transport.write(_plain_answer(400, "Bad Request", error, request_id))
        # Closing on a client that still sends would reset the connection, and the answer be lost with it.
        self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(_LINGER_S, self.transport.abort)

    def _end_unread(self, cycle: RequestResponseCycle) -> None:
        if self.cycle is cycle:
            self.transport.abort()

    def _end_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None


def _plain_answer(status: int, phrase: str, error: ApiError, request_id: str, headers: str = "") -> bytes:
    """An error as it stands on the wire, for where there is no request to answer; the connection ends after it."""
    body = error.body()
    head = (
        f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        f"x-request-id: {request_id}\r\n{headers}connection: close\r\n\r\n"
    )
    return head.encode() + body
