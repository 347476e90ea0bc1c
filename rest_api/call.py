"""One HTTP request in the hands of its handler: its parameters, its body, its question to the validator.

What a particular resource is and how it answers stands in the routes.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from google.protobuf.message import Message
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ledger.limits import Limits
from protos import validator_pb2
from rest_api import links
from rest_api.config import RestConfig, networks
from rest_api.errors import ApiError, ClientGone, Problem
from rest_api.queries import Query, number
from rest_api.validator import AnswerT, Validator

MessageType = validator_pb2.Message.MessageType
ResultT = TypeVar("ResultT")


class Door:
    """What all requests of one API share."""

    def __init__(self, config: RestConfig) -> None:
        self.config = config
        self.validator = Validator(config)
        self.trusted = networks(config.trusted_proxies)
        # Just under the API's own timeout, so that the answer comes before it (seed specification, wait).
        self.own_wait_s = config.timeout_s * 95 // 100


class Call:
    """One request. ``base`` is the address that the client used, ``request_id`` what both processes log."""

    def __init__(self, door: Door, request: Request) -> None:
        self._door = door
        self._request = request
        self.request_id: str = request.state.request_id
        self.query = Query(request.scope["query_string"])
        self.path: str = request.scope["path"]
        self.base = links.base_url(request.scope, door.trusted)

    @property
    def limits(self) -> Limits:
        """The configured limits."""
        return self._door.config.limits

    @property
    def media_type(self) -> str:
        """The content type without its parameters, in lower case; empty when there is none."""
        return self._request.headers.get("content-type", "").split(";")[0].strip().lower()

    def named(self, parameter: str) -> str:
        """The decoded part of the path that stands for ``parameter``."""
        return str(self._request.path_params[parameter])

    def link(self) -> str:
        """The URL of this request, as the client sees it."""
        return links.url(self.base, self.path, self.query.pairs)

    def wait_s(self) -> int:
        """Seconds to wait for batches, 0 for not at all. Raises ApiError 55."""
        return self.query.wait_s(self._door.own_wait_s, self.limits.status_wait_s_max)

    async def body(self) -> bytes:
        """The request's body, refused before it is read whole when it is too large. Raises ApiError 36."""
        bytes_max = self.limits.body_bytes_max
        announced = number(self._request.headers.get("content-length", ""))
        if announced is not None and announced > bytes_max:
            raise _too_large(f"the body has {announced} bytes", bytes_max)
        chunks: list[bytes] = []
        size = 0
        try:
            async for chunk in self._request.stream():
                size += len(chunk)
                if size > bytes_max:
                    raise _too_large("the body does not end there", bytes_max)
                chunks.append(chunk)
        except ClientDisconnect:
            raise ClientGone from None
        return b"".join(chunks)

    async def ask(
        self,
        asked: MessageType,
        content: bytes | Message,
        answered: MessageType,
        answer: type[AnswerT],
        *,
        wait_s: int = 0,
    ) -> AnswerT:
        """The validator's answer. ``wait_s`` is how long the validator was asked to hold it. Raises as ``request``."""
        config = self._door.config
        return await self._door.validator.request(
            asked,
            content if isinstance(content, bytes) else content.SerializeToString(),
            answered,
            answer,
            request_id=self.request_id,
            timeout_s=max(config.timeout_s, wait_s + config.timeout_s - self._door.own_wait_s),
        )

    async def unless_gone(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """The result of ``work``, which is cancelled when the client closes its connection. Raises ClientGone.

        The request's body must have been read.
        """
        doing = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(self._left())
        try:
            await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise ClientGone
            return doing.result()
        finally:
            doing.cancel()
            leaving.cancel()
            await asyncio.gather(doing, leaving, return_exceptions=True)

    async def _left(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass


def json_response(content: object, status: int = 200) -> Response:
    """``content`` as the body of an answer."""
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def _too_large(what: str, bytes_max: int) -> ApiError:
    return ApiError(Problem.TOO_LARGE, f"{what}; at most {bytes_max} bytes are taken")
