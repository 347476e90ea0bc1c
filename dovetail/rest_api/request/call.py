"""One HTTP request in the hands of its handler: its parameters, its body, its question to the validator.

What a particular resource is and how it answers stands in the routes.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from google.protobuf.message import Message
from starlette.requests import ClientDisconnect, Request

from dovetail.ledger.limits import Limits
from dovetail.rest_api.answers.quota import Account
from dovetail.rest_api.config import RestConfig, networks
from dovetail.rest_api.errors import ApiError, ClientGone, Problem
from dovetail.rest_api.metrics import Metrics
from dovetail.rest_api.request import links
from dovetail.rest_api.request.queries import Query, number
from dovetail.rest_api.upstream.validator import AnswerT, Validator
from protos.validator_pb2 import Message as Envelope

ResultT = TypeVar("ResultT")


class Door:
    """What all requests of one API share."""

    def __init__(self, config: RestConfig) -> None:
        self.config = config
        self.validator = Validator(config)
        self.metrics = Metrics(self.validator)
        self.trusted = networks(config.trusted_proxies)
        # Just under the API's own timeout, so that the answer comes before it (seed specification, wait).
        self.own_wait_s = max(1, config.timeout_s * 95 // 100)
        self.bodies = Account("bodies that are being read", config.body_bytes_in_flight_max)
        self.answers = Account("answers that are being sent", config.answer_bytes_in_flight_max)


class Call:
    """One request. ``base`` is the address that the client used, ``request_id`` what both processes log."""

    def __init__(self, door: Door, request: Request) -> None:
        self._door = door
        self._request = request
        self.request_id: str = request.state.request_id
        self.query = Query(request.scope["query_string"], door.config.limits)
        self.path: str = request.scope["path"]
        self.base = links.base_url(request.scope, door.trusted)

    @property
    def config(self) -> RestConfig:
        """This API's configuration."""
        return self._door.config

    @property
    def metrics(self) -> Metrics:
        """This API's figures."""
        return self._door.metrics

    @property
    def answers(self) -> Account:
        """What the large answers from the ledger hold that are being sent."""
        return self._door.answers

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
        """The request's body. Raises ApiError 36 or 15, for one too large or too many; it is not read on."""
        bytes_max = self.limits.body_bytes_max
        announced = number(self._request.headers.get("content-length", ""))
        if announced is not None and announced > bytes_max:
            raise _too_large(f"the body has {announced} bytes", bytes_max)
        chunks: list[bytes] = []
        size = 0
        bodies = self._door.bodies
        try:
            async for chunk in self._request.stream():
                if size + len(chunk) > bytes_max:
                    raise _too_large("the body does not end there", bytes_max)
                # Only what came counts: to announce much costs a client nothing.
                bodies.take(len(chunk), own=size)
                size += len(chunk)
                chunks.append(chunk)
        except ClientDisconnect:
            raise ClientGone from None
        finally:
            bodies.give_back(size)
        return b"".join(chunks)

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
        """The validator's answer. Raises as ``Validator.request``.

        ``wait_s`` is how long the validator was asked to hold it; ``timeout_s``, when it is shorter than the API's own
        timeout, how long the answer may take.
        """
        config = self._door.config
        own_s = max(config.timeout_s, wait_s + max(1, config.timeout_s - self._door.own_wait_s))
        return await self._door.validator.request(
            asked,
            content if isinstance(content, bytes) else content.SerializeToString(),
            answered,
            answer,
            request_id=self.request_id,
            timeout_s=own_s if timeout_s is None else min(own_s, timeout_s),
            is_wait=wait_s > 0,
        )

    async def unless_gone(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """The result of ``work``, which is cancelled when the client closes its connection. Raises ClientGone.

        The request's body must have been read.
        """
        # No task for the work: ten thousand may wait here.
        working = asyncio.current_task()
        assert working is not None
        is_over = has_left = False

        def leave(_: object) -> None:
            nonlocal has_left
            if not is_over:
                has_left = True
                working.cancel()

        leaving = asyncio.create_task(self._left())
        leaving.add_done_callback(leave)
        try:
            return await work
        except asyncio.CancelledError:
            if has_left and not working.uncancel():
                raise ClientGone from None
            raise
        finally:
            is_over = True
            leaving.cancel()

    async def _left(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass


def _too_large(what: str, bytes_max: int) -> ApiError:
    return ApiError(Problem.TOO_LARGE, f"{what}; at most {bytes_max} bytes are taken")
