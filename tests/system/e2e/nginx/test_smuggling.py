"""Requests whose framing two readers could take differently: raw through nginx, and directly to the REST API.

The rule: each request that a strict reader of RFC 9112 sees has one answer, in order. What such a reader refuses gets
one refusal at most, and the connection ends. A batch that is hidden in bytes of another request is never handed in.
"""

import base64
import contextlib
import re
import secrets
import socket
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Shared
from tests.system.e2e.nginx.proxy import NAME, Proxy
from tests.system.e2e.process import DEADLINE_S
from tests.system.independent.client import make_batch_list

# A strict reader refuses a request, or reads all of it as one request and ends the connection.
ONE = 1
# A strict reader sees this request and the next, the last of the connection.
TWO = 2
# RFC 9112 lets a reader refuse the request, or read it as one request and go on.
EITHER = 0


class Case(NamedTuple):
    """``head``: header lines without their last line end; ``body``: HIDDEN stands for a request with a batch."""

    name: str
    head: bytes
    body: bytes
    answers: int = ONE
    first: bytes = b"POST /batch_status HTTP/1.1"


HIDDEN = b"HIDDEN"
_END = b"0\r\n\r\n"
_CL5 = b"Content-Length: 5"
_TE = b"Transfer-Encoding: chunked"

CASES = [
    Case("CL.TE", _CL5 + b"\r\n" + _TE, _END + HIDDEN),
    Case("TE.CL", _TE + b"\r\nContent-Length: 3", b"SIZE\r\n" + HIDDEN + b"\r\n" + _END),
    *(
        Case(f"TE.TE {line!r}", _CL5 + b"\r\n" + line, _END + HIDDEN)
        for line in (
            b"Transfer-Encoding:\tchunked",
            b"Transfer-Encoding : chunked",
            b"Transfer-Encoding\t: chunked",
            b" Transfer-Encoding: chunked",
            b"tRaNsFeR-eNcOdInG: cHuNkEd",
            b"Transfer-Encoding: chunked, identity",
            b"Transfer-Encoding: identity, chunked",
            b"Transfer-Encoding: xchunked",
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            b"Transfer-Encoding: \x0bchunked",
            b'Transfer-Encoding: "chunked"',
            b"Transfer-Encoding:\r\n chunked",
        )
    ),
    Case("differing lengths", b"Content-Length: 0\r\nContent-Length: SIZE10", HIDDEN),
    Case("a list of differing lengths", b"Content-Length: 0, SIZE10", HIDDEN),
    *(
        Case(f"length {length!r}", b"Content-Length: " + length, HIDDEN)
        for length in (b"+0", b"-1", b"0x0", b"0 0", b"0_0", b"", b"\xb2", b"0;", b"9" * 30)
    ),
    Case("space before the colon", b"Content-Length : 0", HIDDEN),
    Case("NUL in a name", b"Content\x00-Length: 0", HIDDEN),
    Case("NUL in a value", b"X-A: \x00\r\nContent-Length: SIZE10", HIDDEN),
    Case("bare CR in a value", b"X-A: b\rContent-Length: 0\r\nContent-Length: SIZE10", HIDDEN),
    *(
        Case(f"chunk size {size!r}", _TE, size + b"\r\n" + HIDDEN)
        for size in (b"-1", b"+0", b"0x0", b"G", b"", b"1" + b"0" * 16, b"F" * 16, b"F" * 40)
    ),
    Case("a chunk longer than its size", _TE, b"1\r\nabc\r\n" + _END + HIDDEN),
    # Whole bodies: the hidden request is a body, and the next request is answered.
    Case("a request as a body", b"Content-Length: SIZE10", HIDDEN, TWO),
    Case("a request as a chunk", _TE, b"SIZE\r\n" + HIDDEN + b"\r\n" + _END, TWO),
    Case("a request in a chunk with an extension", _TE, b"SIZE;a=b\r\n" + HIDDEN + b"\r\n" + _END, TWO),
    Case("a name with an underscore", b"Content_Length: 0\r\nContent-Length: SIZE10", HIDDEN, TWO),
    Case("Expect", b"Expect: 100-continue\r\nContent-Length: SIZE10", HIDDEN, TWO),
    Case("GET with a body", b"Content-Length: SIZE10", HIDDEN, TWO, b"GET /no-such-path HTTP/1.1"),
    Case("absolute form", b"Content-Length: SIZE10", HIDDEN, TWO, b"POST https://localhost/batch_status HTTP/1.1"),
    Case("two versions", b"Content-Length: 0", HIDDEN, ONE, b"POST /batch_status HTTP/1.1 HTTP/1.1"),
    Case("a control character in the target", b"Content-Length: 0", HIDDEN, ONE, b"POST /batch\x01_status HTTP/1.1"),
    Case("HTTP/1.0 with chunks", _TE, _END + HIDDEN, ONE, b"POST /batch_status HTTP/1.0"),
    Case(
        "HTTP/1.0 kept alive",
        b"Connection: keep-alive\r\nContent-Length: SIZE10",
        HIDDEN,
        EITHER,
        b"POST /batch_status HTTP/1.0",
    ),
    Case("a folded line", b"X-A: b\r\n Content-Length: 0\r\nContent-Length: SIZE10", HIDDEN, EITHER),
    Case("bare LF", b"X-A: b\nContent-Length: SIZE10", HIDDEN, EITHER),
    Case("a head that is too long", b"X-A: " + b"a" * 300_000 + b"\r\nContent-Length: 0", HIDDEN),
]


class Sent(NamedTuple):
    statuses: list[int]
    received: bytes


def _read_all(connection: socket.socket) -> Iterator[bytes]:
    # A refusal may reset the connection, because bytes were not read.
    with contextlib.suppress(ConnectionError, OSError):
        while part := connection.recv(65536):
            yield part


def _converse(connection: socket.socket, content: bytes) -> Sent:
    with connection:
        connection.settimeout(DEADLINE_S)
        with contextlib.suppress(ConnectionError):
            connection.sendall(content)
        received = b"".join(_read_all(connection))
    statuses = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]
    return Sent([status for status in statuses if status != 100], received)


@pytest.fixture(params=["through nginx", "directly"])
def send(request: pytest.FixtureRequest, proxy: Proxy, shared: Shared) -> Callable[[bytes], Sent]:
    """Sends bytes on a new connection, and reads until its end."""

    def connect() -> socket.socket:
        if request.param == "through nginx":
            return proxy.connect()
        host, port = shared.network.rest_bind.rsplit(":", 1)
        return socket.create_connection((host, int(port)), DEADLINE_S)

    return lambda content: _converse(connect(), content)


@pytest.fixture
def common(proxy: Proxy) -> bytes:
    """The header lines of every request."""
    password = base64.b64encode(":".join(proxy.auth).encode())
    return b"Host: %s\r\nAuthorization: Basic %s\r\n" % (NAME.encode(), password)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_hidden_request_is_never_executed(
    send: Callable[[bytes], Sent], common: bytes, proxy: Proxy, shared: Shared, author: Author, case: Case
) -> None:
    batch = author.batch(author.intkey("set", "hidden", 1))
    content = make_batch_list([batch])
    octets = b"Content-Type: application/octet-stream\r\n"
    hidden = b"POST /batches HTTP/1.1\r\n%s%sContent-Length: %d\r\n\r\n%s" % (common, octets, len(content), content)
    head = case.head.replace(b"SIZE10", b"%d" % len(hidden))
    body = case.body.replace(b"SIZE", b"%x" % len(hidden)).replace(HIDDEN, hidden)
    last = b"GET /blocks?count=1 HTTP/1.1\r\n%sConnection: close\r\n\r\n" % common
    sent = send(b"%s\r\n%s%s\r\n\r\n%s%s" % (case.first, common, head, body, last))
    # The next client of nginx gets its own answer, on a connection to the API that the bytes may have used.
    mark = secrets.token_hex(8)
    with proxy.client(proxy.auth) as client:
        other = client.get("/blocks?count=1", headers={"X-Request-Id": mark})
    assert (other.status_code, other.headers["x-request-id"]) == (200, mark)
    assert shared.api.words(batch) == ["UNKNOWN"]
    assert all(status < 500 or status == 501 for status in sent.statuses), sent
    if case.answers == TWO:
        assert len(sent.statuses) == 2, sent
        assert sent.statuses[1] == 200, sent
    elif case.answers == EITHER:
        assert len(sent.statuses) <= 2, sent
    else:
        assert len(sent.statuses) <= 1, sent
        assert 200 not in sent.statuses, sent


def test_the_hidden_request_would_be_seen(
    send: Callable[[bytes], Sent], common: bytes, shared: Shared, author: Author
) -> None:
    """The same bytes as requests of their own are executed."""
    batch = author.batch(author.intkey("set", "seen", 1))
    content = make_batch_list([batch])
    octets = b"Content-Type: application/octet-stream\r\nConnection: close\r\n"
    first = b"POST /batch_status HTTP/1.1\r\n%sContent-Length: 0\r\n\r\n" % common
    posted = b"POST /batches HTTP/1.1\r\n%s%sContent-Length: %d\r\n\r\n%s" % (common, octets, len(content), content)
    sent = send(first + posted)
    assert len(sent.statuses) == 2, sent
    assert shared.api.words(batch) != ["UNKNOWN"]
