"""Target: requests to the REST API, as the HTTP server passes them on, with a validator that answers.

``tests.dovetail.rest_api.server.test_hostile`` tests bytes that are not HTTP.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from structlog.testing import capture_logs

from protos.node_pb2 import ConfigEntry
from tests.conformance.schema_check import check
from tests.dovetail.rest_api.server.test_hostile import ANSWERS
from tests.dovetail.rest_api.support import Api, NodeStatus, Type, running_api
from tests.system.fuzz.target import Input, Target, chunk

_METHODS: Final = ("GET", "POST", "HEAD", "OPTIONS", "PUT")
_PATHS: Final = (
    "/batches", "/batches/", "/batch_status", "/state", "/state/", "/blocks", "/blocks/", "/transactions",
    "/transactions/", "/receipts", "/peers", "/status/config", "/status/families", "/status/processors",
    "/status/system", "/stats/validator", "/stats/gossip", "/healthz", "/readyz", "/docs", "/",
)  # fmt: skip
_HEADERS: Final = (
    b"content-type", b"x-request-id", b"forwarded", b"x-forwarded-host", b"x-forwarded-proto", b"x-forwarded-path",
    b"host", b"accept", b"content-length",
)  # fmt: skip
_MEDIA_TYPES: Final = (b"", b"application/octet-stream", b"application/json", b"text/plain")
_ANSWERS: Final = {
    Type.NODE_STATUS_REQUEST: (
        Type.NODE_STATUS_RESPONSE,
        lambda _: NodeStatus(
            status="OK",
            timestamp="2001-02-03T04:05:06.789Z",
            head_id="f" * 128,
            config=[ConfigEntry(key="limits.block_transactions_max", number=5_000)],
        ),
    )
}
"""Further answers of the validator, beyond those for ``test_hostile``."""

_not_in_a_target = re.compile(rb"[^!-~]|[#?]")
_not_in_a_header = re.compile(rb"[\0-\x08\n-\x1f\x7f]")


class Requests(Target):
    """Input: method, path, the rest of the path, query, media type, headers, body."""

    name = "rest"

    def __init__(self, folder: Path) -> None:
        self._runner = asyncio.Runner()
        self._running: AbstractAsyncContextManager[Api] = running_api(ANSWERS | _ANSWERS)
        self._api = self._runner.run(self._running.__aenter__())
        transport: Any = self._api.http._transport
        self._app = transport.app

    def close(self) -> None:
        self._runner.run(self._running.__aexit__(None, None, None))
        self._runner.close()

    def seeds(self) -> Iterator[bytes]:
        queries = (b"", b"count=3&head=" + b"a" * 128, b"min=1&max=5&id=" + b"b" * 128, b"address=1cf126&wait=false")
        for path in range(len(_PATHS)):
            yield bytes((0, path)) + chunk(b"") + chunk(queries[path % len(queries)]) + b"\0\0"
        yield bytes((0, 4)) + chunk(b"1cf126" + b"0" * 64) + chunk(b"") + b"\0\0"
        yield bytes((0, 6)) + chunk(b"7") + chunk(b"") + b"\0\0"
        yield bytes((1, 0)) + chunk(b"") + chunk(b"wait=1") + b"\1\0" + b"\x0a\x02\x0a\x00"
        yield bytes((1, 2)) + chunk(b"") + chunk(b"") + b"\2\0" + b'["' + b"b" * 128 + b'"]'
        forwarded = b"\2" + chunk(b'host="x";proto=https;path=/p') + b"\3" + chunk(b"example")
        yield bytes((0, 5)) + chunk(b"") + chunk(b"") + b"\0\2" + forwarded

    def run(self, data: bytes) -> None:
        source = Input(data)
        method = _METHODS[source.byte() % len(_METHODS)]
        path = _PATHS[source.byte() % len(_PATHS)].encode() + _not_in_a_target.sub(b"_", source.chunk())
        query = _not_in_a_target.sub(b"_", source.chunk())
        media_type = _MEDIA_TYPES[source.byte() % len(_MEDIA_TYPES)]
        headers = [(b"content-type", media_type)] if media_type else []
        for _ in range(source.byte() % 6):
            name = _HEADERS[source.byte() % len(_HEADERS)]
            # The value as h11 passes it on: without bytes that a field cannot hold.
            headers.append((name, _not_in_a_header.sub(b"", source.chunk()).strip()))
        body = source.rest()
        with capture_logs() as lines:
            status, answered, content = self._runner.run(self._ask(method, path, query, headers, body))
        assert not [line for line in lines if line["log_level"] in ("error", "critical")], lines
        assert status != 500, content
        check(method, (path + b"?" + query).decode("ascii"), status, answered, content)

    async def _ask(
        self, method: str, path: bytes, query: bytes, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 8008),
        }
        left = [{"type": "http.request", "body": body, "more_body": False}]
        status = 0
        answered: dict[str, str] = {}
        content = bytearray()

        async def receive() -> Any:
            if left:
                return left.pop()
            # The client stays connected until it has its answer.
            return await asyncio.get_running_loop().create_future()

        async def send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                answered.update({name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]})
            else:
                content.extend(message.get("body", b""))

        await self._app(scope, receive, send)
        return status, answered, bytes(content)
