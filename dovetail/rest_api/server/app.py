"""The HTTP server: dispatch by the table of routes, the outermost middleware, start and orderly end.

Nothing here knows a resource. Process signals belong to whoever calls ``serve``.
"""

import asyncio
import contextlib
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Generator
from typing import Final
from uuid import uuid4

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dovetail.rest_api.config import RestConfig
from dovetail.rest_api.errors import CLIENT_GONE, ApiError, ClientGone, Problem
from dovetail.rest_api.metrics import Metrics
from dovetail.rest_api.request import links
from dovetail.rest_api.request.call import Call, Door
from dovetail.rest_api.request.queries import shown
from dovetail.rest_api.routes import ENDPOINTS, Endpoint
from dovetail.rest_api.server.connections import BACKLOG, REFUSED, Protocol, listen

log = structlog.get_logger(__name__)

_HEADER_BYTES_BASE: Final = 64 * 1024
_ID_IN_QUERY_BYTES: Final = 132
_LOGGED_CHARACTERS_MAX: Final = 256
_KEEP_ALIVE_S: Final = 75
_GRACE_S: Final = 5

_is_request_id = re.compile(r"[A-Za-z0-9._~:+/=@-]{1,128}").fullmatch


def create_app(config: RestConfig) -> Starlette:
    """The ASGI application. Its lifespan opens and closes the connection to the validator (``app.state.door``)."""
    door = Door(config)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[dict[str, Door]]:
        door.validator.open()
        try:
            # What ``connections`` has to know, too.
            yield {"door": door}
        finally:
            door.validator.close()

    app = Starlette(
        routes=[Route(endpoint.path, _Dispatch(door, endpoint)) for endpoint in ENDPOINTS],
        middleware=[Middleware(_Outermost, door.metrics)],
        exception_handlers={ApiError: _answer_error},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.router.default = _no_such_path
    app.state.door = door
    return app


async def serve(config: RestConfig, *, on_ready: Callable[[], None], on_waiting: Callable[[str], None]) -> None:
    """Serve until cancelled; then end in order: who waits is answered 503, open requests get a few seconds.

    ``on_ready`` is called once, when the API listens and has a connection to the validator; ``on_waiting`` before
    that, with what it waits for. Raises OSError that names the address when it cannot listen, ValueError when the
    validator's address is none.
    """
    app = create_app(config)
    door: Door = app.state.door
    listener = listen(config.bind, door.metrics)
    try:
        # Before the server starts: it would turn a refusal into the end of the process.
        door.validator.open()
    except ValueError:
        listener.close()
        raise
    server = _Server(_server_config(app, config))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    telling = asyncio.create_task(_tell(server, door, on_ready, on_waiting))
    try:
        await asyncio.wait({serving, telling}, return_when=asyncio.FIRST_COMPLETED)
        if telling.done():
            telling.result()
        await asyncio.shield(serving)
    finally:
        telling.cancel()
        door.validator.close()
        server.should_exit = True
        await asyncio.gather(serving, telling, return_exceptions=True)
        listener.close()


class _Server(uvicorn.Server):
    """uvicorn that leaves the process's signals alone and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _server_config(app: Starlette, config: RestConfig) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        # A request that is none is told of in ``connections``, every other below.
        log_level="error",
        access_log=False,
        server_header=False,
        # Forwarding headers are read by ``links`` alone.
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
        # As many ids as GET /batch_status allows must fit into a request line.
        h11_max_incomplete_event_size=_HEADER_BYTES_BASE + config.limits.status_ids_max * _ID_IN_QUERY_BYTES,
    )


async def _tell(server: _Server, door: Door, on_ready: Callable[[], None], on_waiting: Callable[[str], None]) -> None:
    await server.listening.wait()
    if not door.validator.connected:
        on_waiting(f"the validator at {door.config.validator}")
        await door.validator.wait_connected()
    on_ready()


class _Dispatch:
    """The ASGI end of one endpoint: picks the handler by method."""

    def __init__(self, door: Door, endpoint: Endpoint) -> None:
        self.path = endpoint.path
        self._door = door
        self._handlers = endpoint.handlers
        self._allow = ", ".join(endpoint.methods)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        handler = self._handlers.get("GET" if method == "HEAD" else method)
        if handler is not None:
            response = await handler(Call(self._door, Request(scope, receive)))
        elif method == "OPTIONS":
            response = Response(status_code=204, headers={"Allow": self._allow})
        else:
            message = f"{shown(method)} is not a method of {shown(scope['path'])}; allowed: {self._allow}"
            raise ApiError(Problem.METHOD_NOT_ALLOWED, message, headers={"Allow": self._allow})
        await response(scope, receive, send)


async def _no_such_path(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        raise ApiError(Problem.PATH_NOT_FOUND, f"there is no {shown(scope['path'])}")


async def _answer_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


class _Outermost:
    """Around everything: the request id, one log line and the figures of a request, an answer even to a bug."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        if REFUSED in state:
            # ``connections`` has answered it, counted it and told of it; the same below.
            return
        scope = links.origin_form(scope)
        request_id = Headers(scope=scope).get("x-request-id", "")
        if not _is_request_id(request_id):
            request_id = uuid4().hex
        state["request_id"] = request_id
        status = 0
        self._metrics.began()
        began = time.perf_counter()

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            elif scope["method"] == "HEAD":
                message = {**message, "body": b""}
            await send(message)

        try:
            await self._app(scope, receive, send_on)
        except ClientGone:
            if REFUSED not in state:
                log.info("client left before its answer", request_id=request_id)
        except Exception:
            log.exception("bug in the REST API", request_id=request_id)
            if status:
                raise
            error = ApiError(Problem.UNKNOWN, f"a bug in the REST API; its log holds request {request_id}")
            await error.response()(scope, receive, send_on)
        finally:
            self._metrics.ended()
            if REFUSED not in state:
                self._record(scope, request_id, status or CLIENT_GONE, time.perf_counter() - began)

    def _record(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        # What the router has found stands in the scope.
        found = scope.get("endpoint")
        self._metrics.answered(found.path if isinstance(found, _Dispatch) else "", scope["method"], status, seconds)
        log.info(
            "request",
            request_id=request_id,
            method=scope["method"][:_LOGGED_CHARACTERS_MAX],
            path=scope["path"][:_LOGGED_CHARACTERS_MAX],
            status=status,
            ms=round(seconds * 1000, 2),
            client=(scope.get("client") or ("",))[0],
        )
