"""HTTP for the suite, and the checks that hold for every answer.

Requests, answers, raw connections, the transcript of a row. Rules of one resource do not belong here. This module must
not import the project's packages.
"""

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import httpx

DEADLINE_S: Final = 60.0
"""Far longer than any answer takes. A wait that reaches the deadline fails the row."""

NOT_JSON: Final = ("/docs", "/metrics")
MEMBERS: Final = ("data", "details", "head", "link", "paging")
_SHOWN_CHARACTERS: Final = 1500

_TARGET_CHARACTERS: Final = 32_000
"""The client library refuses longer URLs, so longer targets are sent over a raw connection."""


class Request(NamedTuple):
    """One request. ``target``: path and query as in the request line, with ``{names}`` filled in."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    content: bytes | None = None

    def shown(self) -> str:
        lines = [f"{self.method} {self.target}", *(f"{name}: {value}" for name, value in self.headers)]
        if self.content is not None:
            lines.append(_cut(self.content))
        return "\n".join(lines)


class Answer(NamedTuple):
    """One answer. ``headers``: values by lower-case name, the last value of a repeated header."""

    request: Request
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        return dict(self.json["error"])

    def shown(self) -> str:
        lines = [f"HTTP {self.status}", *(f"{name}: {value}" for name, value in self.headers.items())]
        return "\n".join([*lines, _cut(self.body)])


Checker = Callable[[Answer], None]


def _cut(content: bytes) -> str:
    text = content[:_SHOWN_CHARACTERS].decode("utf-8", "backslashreplace")
    return text if len(content) <= _SHOWN_CHARACTERS else f"{text}… ({len(content)} bytes)"


class Http:
    """The API under test. ``transcript`` covers the time since ``forget``; ``checker`` is called with every answer."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.host, self.port = _address(url)
        self.netloc = urlsplit(url).netloc
        self.checker: Checker | None = None
        self._said: list[tuple[Request, Answer | None]] = []
        # The client adds no headers to those of a row, and uses no proxy of the environment.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=8)
        self._client = httpx.Client(timeout=DEADLINE_S, trust_env=False, limits=limits)

    @property
    def is_loopback(self) -> bool:
        """Whether the node is on this machine, which a node trusts as a proxy by default."""
        return ip_address(socket.gethostbyname(self.host)).is_loopback if ":" not in self.host else self.host == "::1"

    def close(self) -> None:
        self._client.close()

    def forget(self) -> None:
        self._said.clear()

    def transcript(self) -> str:
        parts = []
        for request, answer in self._said[-6:]:
            parts.append(f"> {request.shown()}\n< {answer.shown() if answer else 'no answer'}")
        return "\n\n".join(parts)

    def ask(self, request: Request) -> Answer:
        """Send a request, wait for the answer, and check what holds for every answer."""
        if len(request.target) > _TARGET_CHARACTERS:
            with self.raw() as raw:
                raw.send(request.method, request.target, *request.headers, content=request.content or b"")
                return raw.answer()
        slot = len(self._said)
        self._said.append((request, None))
        answered = self._client.request(
            request.method, self.url + request.target, headers=list(request.headers), content=request.content
        )
        answer = Answer(
            request, answered.status_code, {name.lower(): value for name, value in answered.headers.items()},
            answered.content,
        )  # fmt: skip
        self._said[slot : slot + 1] = [(request, answer)]
        self._hold(answer)
        return answer

    def get(self, target: str, *headers: tuple[str, str]) -> Answer:
        return self.ask(Request("GET", target, headers))

    def follow(self, link: str) -> Answer:
        """GET a link of an answer. The link must lead to this API."""
        assert link.startswith(f"{self.url}/"), f"link {link!r} does not lead to {self.url}"
        return self.get(link.removeprefix(self.url))

    @contextmanager
    def raw(self) -> Iterator["Raw"]:
        """A connection for requests that no client library sends."""
        with socket.create_connection((self.host, self.port), DEADLINE_S) as connection:
            yield Raw(self, connection)

    def note(self, answer: Answer) -> Answer:
        """Add an answer of a raw connection to the transcript, and check it."""
        self._said.append((answer.request, answer))
        self._hold(answer)
        return answer

    def _hold(self, answer: Answer) -> None:
        """Check an answer against API.md, Every response."""
        path = answer.request.target.partition("?")[0].removeprefix(self.url)
        assert answer.headers.get("x-request-id"), "api/every/request-id: the answer has no X-Request-Id"
        if answer.body and path not in NOT_JSON:
            assert answer.headers["content-type"].split(";")[0] == "application/json", "api/every/json"
            content = answer.json
            if "error" in content:
                assert list(content) == ["error"], "api/errors/shape"
                assert list(content["error"]) == ["code", "title", "message"], "api/errors/shape"
                assert "Traceback" not in content["error"]["message"], "api/errors/no-trace"
            elif "data" in content or "link" in content:
                assert list(content) == [name for name in MEMBERS if name in content], "api/every/member-order"
        if self.checker is not None:
            self.checker(answer)


class Raw:
    """One connection, on which requests are written byte by byte."""

    def __init__(self, http_: Http, connection: socket.socket) -> None:
        self._http = http_
        self._connection = connection
        self._request = Request("", "")

    def send(
        self, method: str, target: str, *headers: tuple[str, str], content: bytes = b"", version: str = "1.1"
    ) -> None:
        """Send a request as given. Host is added where HTTP needs one, unless ``headers`` has it."""
        self._request = Request(method, target, headers, content or None)
        lines = [f"{method} {target} HTTP/{version}"]
        if version == "1.1" and not any(name.lower() == "host" for name, _ in headers):
            lines.append(f"Host: {self._http.netloc}")
        lines += [f"{name}: {value}" for name, value in headers]
        self.send_bytes("\r\n".join([*lines, "", ""]).encode("latin-1") + content)

    def send_bytes(self, data: bytes) -> None:
        self._connection.sendall(data)

    def answer(self) -> Answer:
        """The answer to the last request."""
        response = http.client.HTTPResponse(self._connection, method=self._request.method or "GET")
        try:
            response.begin()
            body = response.read()
        finally:
            response.close()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return self._http.note(Answer(self._request, response.status, headers, body))

    def is_silent(self) -> bool:
        """Whether no byte of an answer has come yet."""
        self._connection.setblocking(False)
        try:
            return not self._connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        finally:
            self._connection.settimeout(DEADLINE_S)


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"{url!r} is not an http:// address")
    return parts.hostname, parts.port or 80
