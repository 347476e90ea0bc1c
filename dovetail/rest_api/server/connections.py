"""TCP connections of clients: how they are accepted, refused and closed. Nothing here depends on a resource.

uvicorn implements HTTP/1.1. This module adds error answers in the API's shape to input that is not HTTP, and time
limits for clients that do not finish their request or do not read their answer.
"""

import asyncio
import contextlib
import resource
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final
from uuid import uuid4

import h11
import structlog
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from dovetail.rest_api.config import split_bind
from dovetail.rest_api.errors import ApiError, Problem
from dovetail.rest_api.metrics import Metrics
from dovetail.rest_api.request.call import ApiContext
from dovetail.rest_api.server.parsing import Parser

log = structlog.get_logger(__name__)

BACKLOG: Final = 2048

DESCRIPTORS_RESERVED: Final = 64
"""File descriptors kept for other uses than clients: the socket to the validator, log files, /proc."""

LINGER_S: Final = 2
"""How long the rest of a refused request is read and discarded, so that the client receives its answer."""

REFUSED: Final = "refused"
"""The key in a request's state that marks a request as answered, counted and logged here, not by its handler."""


class Listener(socket.socket):
    """Accepts connections while file descriptors are free, and answers the others with 503."""

    def __init__(self, family: int, metrics: Metrics) -> None:
        # asyncio sets TCP_NODELAY only if a socket names its protocol. Without TCP_NODELAY each answer on a kept-alive
        # connection waits 40 ms for an acknowledgement.
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.descriptor_max = soft - DESCRIPTORS_RESERVED if soft != resource.RLIM_INFINITY else None
        """Connections with a higher descriptor are refused. The system assigns the lowest free descriptor."""
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
        error = ApiError(Problem.NOT_READY, "this REST API has as many connections as it may have open files")
        self._metrics.count_refusal(error.status)
        with connection, contextlib.suppress(OSError):
            connection.setblocking(False)
            # The answer fits into an empty send buffer. A client that has sent its request may see a reset instead.
            connection.send(_raw_answer(error, uuid4().hex))
        # Ends this round of asyncio's accept loop; the next round accepts the other waiting connections.
        raise BlockingIOError


def listen(bind: str, metrics: Metrics) -> Listener:
    """Listen on HOST:PORT, and count refused connections in ``metrics``. Raises OSError that names HOST:PORT."""
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


class _AnswerTransport(asyncio.Transport):
    """The transport that uvicorn writes an answer to; ``close`` calls the given function.

    The head of an answer is sent together with the first part of the body, because two packets would wake the client
    twice.
    """

    def __init__(self, transport: asyncio.Transport, cycle: RequestResponseCycle, close: Callable[[], None]) -> None:
        super().__init__()
        self._transport = transport
        self._cycle = cycle
        self._close = close
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
        self._close()


class _Flow(FlowControl):
    """uvicorn's control of reading, which resumes nothing while a connection waits for its turn."""

    _is_held = False

    def hold(self) -> None:
        self._is_held = True
        self._transport.pause_reading()

    def release(self) -> None:
        self._is_held = False
        if not self.read_paused:
            self._transport.resume_reading()

    def resume_reading(self) -> None:
        if self._is_held:
            self.read_paused = False
        else:
            super().resume_reading()


class Protocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with a time limit for everything that the client has to do.

    ``timeout_keep_alive`` limits the time to the first byte of a request, ``request_s_max`` the time from there to its
    last byte, ``answer_s_max`` the time to read the answer. Handlers have limits of their own.

    A connection whose client has sent more than one turn parses (``parsing``) is not read until its turns have come.
    """

    conn: Parser
    flow: _Flow
    _waits_for_turn = False
    _discards_input = False
    _request_timer: asyncio.TimerHandle | None = None
    _answer_timer: asyncio.TimerHandle | None = None

    @property
    def _context(self) -> ApiContext:
        context = self.app_state["context"]
        assert isinstance(context, ApiContext)
        return context

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.conn = Parser(self.config.h11_max_incomplete_event_size or 0, self._context.config.limits)
        self.flow = _Flow(transport)
        self._start_keep_alive_timer()

    def data_received(self, data: bytes) -> None:
        if self._discards_input:
            return
        super().data_received(data)
        # uvicorn stops reading after a pipelined request, and would not notice that the client disconnects.
        waiting = len(self.conn.trailing_data[0])
        if self.conn.their_state is h11.DONE and waiting <= (self.config.h11_max_incomplete_event_size or 0):
            self.flow.resume_reading()

    def handle_events(self) -> None:
        self.conn.begin_turn()
        self._handle_events()
        if self.conn.is_cut and not self._discards_input:
            # Held again each time: uvicorn resumes some transports directly.
            self.flow.hold()
            if not self._waits_for_turn:
                self._waits_for_turn = True
                self._context.turns.add(self._go_on)

    def _go_on(self) -> None:
        self._waits_for_turn = False
        self.flow.release()
        if not self._discards_input and not self.transport.is_closing():
            self.handle_events()

    def _handle_events(self) -> None:
        before, was_answered_early = self.cycle, self._is_answered_early()
        super().handle_events()
        if self.cycle is not None and self.cycle is not before:
            # The task of the new request has not started yet, so nothing has been written.
            self.cycle.transport = _AnswerTransport(self.transport, self.cycle, self._close_after_answer)
        if self._discards_input:
            return
        if self.cycle is not before and {b"content-length", b"transfer-encoding"} <= {name for name, _ in self.headers}:
            # A proxy may have used the other header to find the end of the body (RFC 9112, 6.1).
            self._refuse(Problem.BAD_REQUEST, "both Content-Length and Transfer-Encoding are given")
            return
        if was_answered_early and not self._is_answered_early():
            self._cancel_request_timer()
        state = self.conn.their_state
        if state is h11.SEND_BODY or (state is h11.IDLE and self.conn.trailing_data[0]):
            if self._request_timer is None:
                self._request_timer = self.loop.call_later(self._context.config.request_s_max, self._refuse_timed_out)
            return
        self._cancel_request_timer()
        if state is h11.IDLE:
            self._start_keep_alive_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._cancel_answer_timer()
        if self._discards_input:
            self._unset_keepalive_if_required()
            return
        if self.flow.write_paused or self.transport.is_closing():
            self._start_answer_timer()
        if self._is_answered_early() and not self.transport.is_closing():
            # The answer is sent before the whole body has come. The rest of the body is discarded for a while, so that
            # the answer is not lost in a reset. If all of the body arrives in time, the connection stays open.
            self._cancel_request_timer()
            self._request_timer = self.loop.call_later(LINGER_S, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_answer_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.cycle is not None and self.cycle.response_complete and not self.transport.is_closing():
            self._cancel_answer_timer()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._start_answer_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_request_timer()
        self._cancel_answer_timer()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._refuse(Problem.BAD_REQUEST, self.conn.refusal)

    def _refuse_timed_out(self) -> None:
        seconds = self._context.config.request_s_max
        self._refuse(Problem.REQUEST_TIMEOUT, f"the request did not arrive whole within {seconds} seconds")

    def _refuse(self, problem: Problem, message: str) -> None:
        """Answer with an error, unless an answer has started, and close the connection."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            # An answer has started. The client would read a second one as the answer to its next request.
            self._discard_rest()
            self.transport.close()
            self._start_answer_timer()
            return
        # The parser may refuse a request before uvicorn knows it: then the cycle is that of an earlier request.
        if self.conn.our_state is h11.SEND_RESPONSE and self.cycle is not None and not self.cycle.response_complete:
            # The request's handler must not answer any more.
            self.cycle.scope["state"][REFUSED] = True
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        error = ApiError(problem, message)
        request_id = uuid4().hex
        client = (self.client or ("",))[0]
        log.info("request", request_id=request_id, status=error.status, reason=error.message, client=client)
        self._context.metrics.count_refusal(error.status)
        self.transport.write(_raw_answer(error, request_id))
        self._linger()

    def _close_after_answer(self) -> None:
        if self.conn.their_state is h11.SEND_BODY:
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        """Close the connection later: a close now would reset it before its client has read the answer."""
        self._discard_rest()
        self.transport.write_eof()
        self.flow.resume_reading()
        self._request_timer = self.loop.call_later(LINGER_S, self.transport.abort)

    def _discard_rest(self) -> None:
        """Ignore all further input, and let the server shut down without waiting for this connection."""
        self._discards_input = True
        self._cancel_request_timer()
        self.flow.release()
        self.connections.discard(self)

    def _is_answered_early(self) -> bool:
        """Whether the answer is complete, but the body of its request is not."""
        return self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY

    def _start_keep_alive_timer(self) -> None:
        if self.timeout_keep_alive_task is None and not self.transport.is_closing():
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _start_answer_timer(self) -> None:
        if self._answer_timer is None:
            self._answer_timer = self.loop.call_later(self._context.config.answer_s_max, self.transport.abort)

    def _cancel_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _cancel_answer_timer(self) -> None:
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None


def _raw_answer(error: ApiError, request_id: str) -> bytes:
    """An error answer as bytes, for a connection without a usable request; the connection ends after it."""
    body = error.body()
    headers = "".join(f"{name.lower()}: {value}\r\n" for name, value in error.headers.items())
    head = (
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        f"x-request-id: {request_id}\r\n{headers}connection: close\r\n\r\n"
    )
    return head.encode() + body
