"""A kept-open connection to a REST API, as cheap as Python can: bytes in, one callback an answer.

It shares the machine with the node that is measured, so there is no task, no header dictionary and no JSON on the way.
Which requests are sent, and what their answers mean, is its owner's business.
"""

import asyncio
from collections import deque
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from dovetail.common.errors import Refused
from dovetail.common.urls import check_rest_api, shown_url

_HEAD_BYTES_MAX: Final = 64 * 1024


class Owner(Protocol):
    """Who is told what comes over a connection."""

    def answered(self, number: int, answer: bytes) -> None:
        """The whole answer, head and body, to the request with this number."""

    def fail(self, reason: str) -> None:
        """The connection is of no use any more."""


class Target(NamedTuple):
    """A REST API's address, taken apart once."""

    url: str
    host: str
    port: int
    tls: bool
    host_header: str
    path: str
    """What stands before every path; empty or ``/prefix``."""

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
        """The head of a request up to and with its last line break, but without the empty line that ends it."""
        lines = (f"{method} {self.path}{path} HTTP/1.1", f"Host: {self.host_header}", *headers)
        return "".join(f"{line}\r\n" for line in lines).encode()

    def post(self, path: str, body: bytes) -> bytes:
        """A whole request that hands in ``body``."""
        headers = ("Content-Type: application/octet-stream", f"Content-Length: {len(body)}")
        return self.head("POST", path, *headers) + b"\r\n" + body


class Connection(asyncio.Protocol):
    """One request at a time; whenever it is free it stands at the end of its ``lane``.

    Whoever takes the first of a lane takes the one that rested longest, so none rests until the server closes it.
    """

    def __init__(self, owner: Owner, lane: "deque[Connection]") -> None:
        self._owner = owner
        self._lane = lane
        self._number = -1
        self._answer = b""
        self._length = -1
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, target: Target, owner: Owner, lane: "deque[Connection]") -> "Connection":
        """Connect. Raises Refused."""
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: cls(owner, lane), target.host, target.port, ssl=target.tls or None
            )
        except OSError as error:
            raise Refused(f"nothing answers at {shown_url(target.url)}: {error.strerror or error}") from None
        return connection

    def request(self, number: int, content: bytes) -> None:
        """Send a whole request; its answer is told with ``number``."""
        assert self._transport is not None
        self._number, self._answer, self._length = number, b"", -1
        self._transport.write(content)

    def close(self) -> None:
        """Now, without a word to the other side."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._lane.append(self)

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
            self._lane.append(self)
            self._owner.answered(self._number, answer)


def header(head: bytes, name: bytes) -> bytes:
    """The value of the header ``name`` (lower case) in an answer's head; empty when it is not there."""
    _, found, rest = head.lower().partition(b"\r\n" + name + b":")
    return rest[: rest.find(b"\r\n")].strip() if found else b""


def status_of(answer: bytes) -> bytes:
    """The three digits of an answer's status."""
    return answer[9:12]


def retry_after_s(answer: bytes) -> int:
    """How long a 429 asks to wait; a second where it does not say."""
    wait_s = header(answer[: answer.find(b"\r\n\r\n") + 2], b"retry-after")
    return int(wait_s) if wait_s.isdigit() else 1
