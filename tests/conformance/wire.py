"""How the suite talks HTTP, and what holds for every answer, whatever was asked.

What lives here: requests, answers, raw connections, the transcript of a row. What must not: rules of one resource, and
any of the project's packages.
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
"""Far longer than anything takes; a wait that runs into it fails the row."""

NOT_JSON: Final = ("/docs", "/metrics")
MEMBERS: Final = ("data", "details", "head", "link", "paging")
_SHOWN_CHARACTERS: Final = 1500

_TARGET_CHARACTERS: Final = 32_000
"""The client library takes no longer URLs; what is longer goes over a connection of its own."""


class Request(NamedTuple):
    """One request. ``target`` is the path and query as they stand in the request line, ``{names}`` filled in."""

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
    """What came back. ``headers`` keeps every header under its lower-case name, the last of several."""

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
    """The API under test. ``transcript`` holds what was said since ``forget``; ``checker`` sees every answer."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.host, self.port = _address(url)
        self.netloc = urlsplit(url).netloc
        self.checker: Checker | None = None
        self._said: list[tuple[Request, Answer | None]] = []
        # Nothing is added to what a row says, and no proxy of the environment stands between.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=8)
        self._client = httpx.Client(timeout=DEADLINE_S, trust_env=False, limits=limits)

    @property
    def is_loopback(self) -> bool:
        """Whether the node is on this machine, which it then trusts as a proxy by default."""
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
        """Send and wait for the answer, which is held to what holds for all."""
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
        """GET a link of an answer, which must lead to this API."""
        assert link.startswith(f"{self.url}/"), f"link {link!r} does not lead to {self.url}"
        return self.get(link.removeprefix(self.url))

    @contextmanager
    def raw(self) -> Iterator["Raw"]:
        """A connection on which a row says what no client library would."""
        with socket.create_connection((self.host, self.port), DEADLINE_S) as connection:
            yield Raw(self, connection)

    def note(self, answer: Answer) -> Answer:
        """Take an answer that came by another way into the transcript, and hold it to the same."""
        self._said.append((answer.request, answer))
        self._hold(answer)
        return answer

    def _hold(self, answer: Answer) -> None:
        """API.md, Every response."""
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
    """One connection, byte by byte."""

    def __init__(self, http_: Http, connection: socket.socket) -> None:
        self._http = http_
        self._connection = connection
        self._request = Request("", "")

    def send(
        self, method: str, target: str, *headers: tuple[str, str], content: bytes = b"", version: str = "1.1"
    ) -> None:
        """A request as it stands; Host is added where HTTP wants one, unless it is among the headers."""
        self._request = Request(method, target, headers, content or None)
        lines = [f"{method} {target} HTTP/{version}"]
        if version == "1.1" and not any(name.lower() == "host" for name, _ in headers):
            lines.append(f"Host: {self._http.netloc}")
        lines += [f"{name}: {value}" for name, value in headers]
        self.send_bytes("\r\n".join([*lines, "", ""]).encode("latin-1") + content)

    def send_bytes(self, data: bytes) -> None:
        self._connection.sendall(data)

    def answer(self) -> Answer:
        """The answer to what was sent last."""
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
        raise ValueError(f"{url!r} is no http:// address")
    return parts.hostname, parts.port or 80
