"""A kept-open HTTP/1.1 connection that costs as little processor time as possible: one callback for each answer.

The client shares the machine with the measured node, so it uses no task, header dictionary or JSON here. The owner of
a connection chooses the requests and interprets the answers.
"""

import asyncio
from collections import deque
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from dovetail.common.errors import Refused
from dovetail.common.urls import check_rest_api, shown_url

_HEAD_BYTES_MAX: Final = 64 * 1024


class Owner(Protocol):
    """Receives the events of a connection."""

    def on_answer(self, number: int, answer: bytes) -> None:
        """Handle the whole answer, head and body, to the request with this number."""

    def fail(self, reason: str) -> None:
        """Handle the end of the connection."""


class Target(NamedTuple):
    """A REST API's address, parsed once, and requests to it."""

    url: str
    host: str
    port: int
    tls: bool
    host_header: str
    path: str
    """The prefix of every path: empty or ``/prefix``."""

    @classmethod
    def of(cls, url: str) -> "Target":
        """``url``: ``http://HOST:PORT/prefix`` or https. Raises Refused."""
        try:
            parts = urlsplit(url)
            tls = parts.scheme == "https"
            port = parts.port or (443 if tls else 80)
        except ValueError:
            raise Refused(f"{shown_url(url)!r} is no URL") from None
        check_rest_api(url, parts.scheme, parts.hostname)
        return cls(url, parts.hostname or "", port, tls, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"))

    def head(self, method: str, path: str, *headers: str) -> bytes:
        """The lines of a request's head, without the empty line that ends it."""
        lines = (f"{method} {self.path}{path} HTTP/1.1", f"Host: {self.host_header}", *headers)
        return "".join(f"{line}\r\n" for line in lines).encode()

    def get(self, path: str) -> bytes:
        """A whole GET request."""
        return self.head("GET", path) + b"\r\n"

    def post(self, path: str, body: bytes) -> bytes:
        """A whole POST request."""
        headers = ("Content-Type: application/octet-stream", f"Content-Length: {len(body)}")
        return self.head("POST", path, *headers) + b"\r\n" + body


class Connection(asyncio.Protocol):
    """Carries one request at a time, and joins the end of ``free`` after each answer.

    Owners take the first connection in ``free``, which was idle longest, so that the server closes no idle connection.
    """

    def __init__(self, owner: Owner, free: "deque[Connection]") -> None:
        self._owner = owner
        self._free = free
        self._number = -1
        self._answer = b""
        self._length = -1
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, target: Target, owner: Owner, free: "deque[Connection]") -> "Connection":
        """Connect. Raises Refused if nothing answers."""
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: cls(owner, free), target.host, target.port, ssl=target.tls or None
            )
        except OSError as error:
            raise Refused(f"nothing answers at {shown_url(target.url)}: {error.strerror or error}") from None
        return connection

    def request(self, number: int, content: bytes) -> None:
        """Send a whole request; the owner gets its answer with ``number``."""
        assert self._transport is not None
        self._number, self._answer, self._length = number, b"", -1
        self._transport.write(content)

    def close(self) -> None:
        """Abort at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._free.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._owner.fail(f"the REST API closed a connection{f': {error}' if error else ''}")

    def data_received(self, data: bytes) -> None:
        answer = self._answer = self._answer + data
        if self._length < 0:
            head_end = answer.find(b"\r\n\r\n")
            if head_end < 0:
                if len(answer) > _HEAD_BYTES_MAX:
                    self._owner.fail("the answer is no HTTP/1.1")
                return
            length = header(answer[: head_end + 2], b"content-length")
            if not length.isdigit():
                self._owner.fail("the answer has no Content-Length, which every answer of the REST API has")
                return
            self._length = head_end + 4 + int(length)
        if len(answer) >= self._length:
            self._free.append(self)
            self._owner.on_answer(self._number, answer)


def header(head: bytes, name: bytes) -> bytes:
    """The value of the header ``name`` (lower case) in an answer's head; empty without one."""
    _, found, rest = head.lower().partition(b"\r\n" + name + b":")
    return rest[: rest.find(b"\r\n")].strip() if found else b""


def status_of(answer: bytes) -> bytes:
    """The three digits of an answer's status."""
    return answer[9:12]


def retry_after_s(answer: bytes) -> int:
    """The seconds that ``Retry-After`` of an answer 429 names; 1 without this header."""
    wait_s = header(answer[: answer.find(b"\r\n\r\n") + 2], b"retry-after")
    return int(wait_s) if wait_s.isdigit() else 1
