"""The HTTP server: dispatch by the table of routes, the outermost middleware, start and shutdown.

Nothing here depends on a resource. The caller of ``serve`` handles process signals.
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
from dovetail.rest_api.openapi.declarations.endpoint import Endpoint
from dovetail.rest_api.request import links
from dovetail.rest_api.request.call import ApiContext, Call
from dovetail.rest_api.request.queries import quoted
from dovetail.rest_api.routes import ENDPOINTS
from dovetail.rest_api.server.connections import BACKLOG, REFUSED, Protocol, listen

log = structlog.get_logger(__name__)

_HEADER_BYTES_BASE: Final = 64 * 1024
_ID_IN_QUERY_BYTES: Final = 132
_LOGGED_CHARACTERS_MAX: Final = 256
KEEP_ALIVE_S: Final = 75
_GRACE_S: Final = 5

_is_request_id = re.compile(r"[A-Za-z0-9._~:+/=@-]{1,128}").fullmatch


def create_app(config: RestConfig) -> Starlette:
    """Create the ASGI application. Its lifespan opens and closes the connection to the validator."""
    context = ApiContext(config)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[dict[str, ApiContext]]:
        context.validator.open()
        try:
            # ``connections`` reads the context from here.
            yield {"context": context}
        finally:
            context.validator.close()

    app = Starlette(
        routes=[Route(endpoint.path, _Dispatch(context, endpoint)) for endpoint in ENDPOINTS],
        middleware=[Middleware(_RequestMiddleware, context.metrics)],
        exception_handlers={ApiError: _answer_error},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.router.default = _no_such_path
    app.state.context = context
    return app


async def serve(config: RestConfig, *, on_ready: Callable[[], None], on_waiting: Callable[[str], None]) -> None:
    """Serve until cancelled. Then requests that wait for the validator get 503, and the others a few seconds to end.

    ``on_ready`` is called once, when the API listens and is connected to the validator; ``on_waiting`` before, with
    the name of the missing validator. Raises OSError if the API cannot listen, naming the address, and ValueError if
    the validator's address or a key file is unusable.
    """
    app = create_app(config)
    context: ApiContext = app.state.context
    listener = listen(config.bind, context.metrics)
    try:
        # Open the connection before the server starts: the server would end the process on an error.
        context.validator.open()
    except ValueError:
        listener.close()
        raise
    server = _Server(_server_config(app, config))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    reporting = asyncio.create_task(_report_readiness(server, context, on_ready, on_waiting))
    try:
        await asyncio.wait({serving, reporting}, return_when=asyncio.FIRST_COMPLETED)
        if reporting.done():
            reporting.result()
        await asyncio.shield(serving)
    finally:
        reporting.cancel()
        context.validator.close()
        server.should_exit = True
        await asyncio.gather(serving, reporting, return_exceptions=True)
        listener.close()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, and with an event that is set when it listens."""

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
        # ``connections`` and ``_RequestMiddleware`` log the requests.
        log_level="error",
        access_log=False,
        server_header=False,
        # ``links`` alone reads forwarding headers.
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
        # A request line has room for all ids that GET /batch_status allows.
        h11_max_incomplete_event_size=_HEADER_BYTES_BASE + config.limits.status_ids_max * _ID_IN_QUERY_BYTES,
    )


async def _report_readiness(
    server: _Server, context: ApiContext, on_ready: Callable[[], None], on_waiting: Callable[[str], None]
) -> None:
    await server.listening.wait()
    if not context.validator.connected:
        on_waiting(f"the validator at {context.config.validator}")
        await context.validator.wait_connected()
    on_ready()


class _Dispatch:
    """The ASGI application of one endpoint: calls the handler of the method."""

    def __init__(self, context: ApiContext, endpoint: Endpoint) -> None:
        self.path = endpoint.path
        self._context = context
        self._handlers = endpoint.handlers
        self._allow = ", ".join(endpoint.methods)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        handler = self._handlers.get("GET" if method == "HEAD" else method)
        if handler is not None:
            response = await handler(Call(self._context, Request(scope, receive)))
        elif method == "OPTIONS":
            response = Response(status_code=204, headers={"Allow": self._allow})
        else:
            message = f"{quoted(method)} is not a method of {quoted(scope['path'])}; allowed: {self._allow}"
            raise ApiError(Problem.METHOD_NOT_ALLOWED, message, headers={"Allow": self._allow})
        await response(scope, receive, send)


async def _no_such_path(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        raise ApiError(Problem.PATH_NOT_FOUND, f"there is no {quoted(scope['path'])}")


async def _answer_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


class _RequestMiddleware:
    """The outermost middleware: sets the request id, logs and counts each request, and answers 500 after a bug."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        if REFUSED in state:
            # ``connections`` has answered, counted and logged a request with this mark. The same holds below.
            return
        scope = links.origin_form(scope)
        request_id = Headers(scope=scope).get("x-request-id", "")
        if not _is_request_id(request_id):
            request_id = uuid4().hex
        state["request_id"] = request_id
        status = 0
        self._metrics.in_flight += 1
        started = time.perf_counter()

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
            self._metrics.in_flight -= 1
            if REFUSED not in state:
                self._record(scope, request_id, status or CLIENT_GONE, time.perf_counter() - started)

    def _record(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        # The router stores the endpoint in the scope.
        endpoint = scope.get("endpoint")
        route = endpoint.path if isinstance(endpoint, _Dispatch) else ""
        self._metrics.count_answer(route, scope["method"], status, seconds)
        log.info(
            "request",
            request_id=request_id,
            method=scope["method"][:_LOGGED_CHARACTERS_MAX],
            path=scope["path"][:_LOGGED_CHARACTERS_MAX],
            status=status,
            ms=round(seconds * 1000, 2),
            client=(scope.get("client") or ("",))[0],
        )
