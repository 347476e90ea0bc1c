"""One HTTP request as its handler sees it: parameters, body, and calls to the validator.

Nothing here depends on a resource; only handlers do.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from google.protobuf.message import Message
from starlette.requests import ClientDisconnect, Request

from dovetail.rest_api.answers.quota import ByteQuota
from dovetail.rest_api.config import RestConfig, networks
from dovetail.rest_api.errors import ApiError, ClientGone, Problem
from dovetail.rest_api.metrics import Metrics
from dovetail.rest_api.request import links
from dovetail.rest_api.request.queries import Query, number
from dovetail.rest_api.request.turns import Turns
from dovetail.rest_api.upstream.validator import AnswerT, ValidatorConnection
from protos.validator_pb2 import Message as Envelope

ResultT = TypeVar("ResultT")


class ApiContext:
    """The objects that all requests of one API share."""

    def __init__(self, config: RestConfig) -> None:
        self.config = config
        self.validator = ValidatorConnection(config)
        self.metrics = Metrics(self.validator)
        self.trusted = networks(config.trusted_proxies)
        # A little less than the API's own timeout, so that the answer comes first (seed specification, wait).
        self.default_wait_s = max(1, config.timeout_s * 95 // 100)
        self.body_quota = ByteQuota("bodies that are being read", config.body_bytes_in_flight_max)
        self.answer_quota = ByteQuota("answers that are being sent", config.answer_bytes_in_flight_max)
        self.turns = Turns()


class Call:
    """One request. ``base``: the URL by which the client reached the API; ``request_id``: the id in both logs."""

    def __init__(self, context: ApiContext, request: Request) -> None:
        self._context = context
        self._request = request
        self.config = context.config
        self.limits = context.config.limits
        self.metrics = context.metrics
        self.answer_quota = context.answer_quota
        self.request_id: str = request.state.request_id
        self.query = Query(request.scope["query_string"], self.limits)
        self.path: str = request.scope["path"]
        self.base = links.base_url(request.scope, context.trusted)

    @property
    def media_type(self) -> str:
        """The content type without its parameters, in lower case; empty if the header is absent."""
        return self._request.headers.get("content-type", "").split(";")[0].strip().lower()

    def path_parameter(self, name: str) -> str:
        """The decoded value of a parameter in the path."""
        return str(self._request.path_params[name])

    def link(self) -> str:
        """The URL of this request as the client sees it."""
        return links.url(self.base, self.path, self.query.pairs)

    def wait_s(self) -> int:
        """Seconds to wait for batches; 0: answer at once. Raises ApiError 55."""
        return self.query.wait_s(self._context.default_wait_s, self.limits.status_wait_s_max)

    async def body(self, bytes_max: int) -> bytes:
        """Read the request's body of at most ``bytes_max`` bytes.

        Raises ApiError 36 if the body is too large, ApiError 15 if all bodies together are, and ClientGone. The rest
        of a refused body is not read.
        """
        announced = number(self._request.headers.get("content-length", ""))
        if announced is not None and announced > bytes_max:
            raise _too_large(f"the body has {announced} bytes", bytes_max)
        # Not a list: a body in small pieces would hold many times its size.
        body = bytearray()
        quota = self._context.body_quota
        try:
            async for chunk in self._request.stream():
                if len(body) + len(chunk) > bytes_max:
                    raise _too_large("the body does not end there", bytes_max)
                # Only received bytes count: a client could announce any length without sending it.
                quota.reserve(len(chunk), own=len(body))
                body += chunk
        except ClientDisconnect:
            raise ClientGone from None
        finally:
            quota.release(len(body))
        return bytes(body)

    async def ask(
        self,
        asked: Envelope.MessageType,
        content: bytes | Message,
        answered: Envelope.MessageType,
        answer: type[AnswerT],
        *,
        wait_s: int = 0,
        timeout_s: float | None = None,
    ) -> AnswerT:
        """Ask the validator and return its answer. Raises as ``ValidatorConnection.request``.

        ``wait_s``: how long the validator may hold the request. ``timeout_s``: the time limit of the answer, if it is
        shorter than the API's own timeout.
        """
        own_s = max(self.config.timeout_s, wait_s + max(1, self.config.timeout_s - self._context.default_wait_s))
        return await self._context.validator.request(
            asked,
            content if isinstance(content, bytes) else content.SerializeToString(),
            answered,
            answer,
            request_id=self.request_id,
            timeout_s=own_s if timeout_s is None else min(own_s, timeout_s),
            is_wait=wait_s > 0,
        )

    async def unless_disconnected(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Await ``work``, and cancel it if the client closes its connection. Raises ClientGone.

        Read the request's body first.
        """
        # The work runs in the request's own task, because ten thousand requests may wait here.
        task = asyncio.current_task()
        assert task is not None
        is_over = is_gone = False

        def on_disconnect(_: object) -> None:
            nonlocal is_gone
            if not is_over:
                is_gone = True
                task.cancel()

        disconnect = asyncio.create_task(self._disconnected())
        disconnect.add_done_callback(on_disconnect)
        try:
            return await work
        except asyncio.CancelledError:
            if is_gone and not task.uncancel():
                raise ClientGone from None
            raise
        finally:
            is_over = True
            disconnect.cancel()

    async def _disconnected(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass

    def unknown_error(self, message: str) -> ApiError:
        """Code 10 with the id of this request: an answer of the validator that no other code describes."""
        return ApiError(Problem.UNKNOWN, f"{message} (request {self.request_id})")


def _too_large(what: str, bytes_max: int) -> ApiError:
    return ApiError(Problem.TOO_LARGE, f"{what}; at most {bytes_max} bytes are taken")
