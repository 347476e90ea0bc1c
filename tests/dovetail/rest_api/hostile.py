"""Hostile requests as bytes: hypothesis strategies, and tables of single requests.

Expected answers do not belong here, except for their statuses.
"""

from typing import NamedTuple
from urllib.parse import quote

from hypothesis import strategies as st

from dovetail.ledger.limits import Limits

_PATHS = [
    "/",
    "/batches",
    "/batches/{}",
    "/batch_status",
    "/state",
    "/state/{}",
    "/blocks",
    "/blocks/{}",
    "/transactions",
    "/transactions/{}",
    "/stats/validator",
    "/stats/gossip",
    "/status/config",
    "/status/families",
    "/status/processors",
    "/status/system",
    "/healthz",
    "/readyz",
    "/metrics",
    "/docs",
    "/openapi.json",
    "/{}",
]
_NAMES = ["head", "count", "min", "max", "id", "wait", "address", "sort", "fields", "omit", "callback", "", "\0", "é"]
_VALUES = st.one_of(
    st.text(max_size=20),
    st.integers().map(str),
    st.integers(0, 2**70).map(str),
    st.sampled_from(["false", "", "0", "-0", "+1", "٣", "1" * 10_000, str(10**30), "a" * 128, "1" * 128, "a" * 70]),
)
_RAW = st.binary(max_size=40).map(lambda raw: quote(raw, safe="&=+;%,/"))
_PARTS = st.one_of(_VALUES.map(lambda text: quote(text, safe="")), _RAW.map(lambda text: text.replace("/", "")))
_QUERIES = st.one_of(
    st.lists(st.tuples(st.sampled_from(_NAMES), _VALUES), max_size=6).map(
        lambda pairs: "&".join(f"{quote(name)}={quote(value)}" for name, value in pairs)
    ),
    _RAW,
)
_HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "Content-Type",
                "X-Request-Id",
                "Forwarded",
                "X-Forwarded-Host",
                "X-Forwarded-Proto",
                "X-Forwarded-Path",
                "Expect",
                "Accept",
                "Upgrade",
                "Connection",
                "Range",
                "If-None-Match",
            ]
        ),
        st.one_of(
            st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=30),
            st.sampled_from(
                [
                    "application/octet-stream",
                    "application/json",
                    "100-continue",
                    "websocket",
                    "upgrade",
                    "host=x;proto=https",
                    'host="x\\"y";path="/%0d%0aX: y"',
                    "%0d%0aSet-Cookie: x=y",
                    "9" * 5000,
                ]
            ),
        ),
    ),
    max_size=4,
)
_BODIES = st.one_of(
    st.binary(max_size=200), st.sampled_from([b'["a"]', b"[", b'["' + b"a" * 128 + b'"]', b"\x0a\x02\x0a\x00"])
)


class Asking(NamedTuple):
    """One request on a connection that ends with the answer."""

    method: str
    raw: bytes


@st.composite
def requests(draw: st.DrawFn) -> Asking:
    """Requests with a valid request line and valid framing; all else is arbitrary."""
    method = draw(st.sampled_from(["GET", "POST", "HEAD", "OPTIONS", "PUT", "TRACE", "get", "X-" + "Y" * 300]))
    target = f"{draw(st.sampled_from(_PATHS)).format(draw(_PARTS))}?{draw(_QUERIES)}"
    headers = [("Host", "node"), *draw(_HEADERS), ("Connection", "close")]
    body = draw(_BODIES)
    if body or draw(st.booleans()):
        headers.append(("Content-Length", str(len(body))))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
    return Asking(method, "\r\n".join(lines).encode("latin-1") + body)


fragments = st.lists(
    st.one_of(
        st.sampled_from(
            [
                b"GET /blocks HTTP/1.1\r\nHost: node\r\n",
                b"POST /batches HTTP/1.1\r\nHost: node\r\nContent-Type: application/octet-stream\r\n",
                b"POST /blocks HTTP/1.1\r\nHost: node\r\n",
                b"GET / HTTP/1.0\r\n",
                b"\r\n",
                b"\n",
                b"\r",
                b"\0",
                b" ",
                b":",
                b"Host: other\r\n",
                b"Connection: close\r\n",
                b"Content-Length: 3\r\n",
                b"Content-Length: 4\r\n",
                b"Content-Length: -1\r\n",
                b"Transfer-Encoding: chunked\r\n",
                b"Transfer-Encoding: gzip\r\n",
                b"Expect: 100-continue\r\n",
                b"3\r\nabc\r\n",
                b"ffffffffffffffff\r\n",
                b"0\r\n\r\n",
                b"abc",
                b"X: " + b"a" * 3000 + b"\r\n",
                b" folded\r\n",
            ]
        ),
        st.binary(max_size=20),
    ),
    max_size=12,
)
"""Fragments that may or may not form requests."""

_LIMITS = Limits()
_HEAD_BYTES_OVER = 1_000_000
GET = b"GET /blocks HTTP/1.1\r\nHost: node\r\n"
GET_CLOSE = GET + b"Connection: close\r\n\r\n"
POST = b"POST /batches HTTP/1.1\r\nHost: node\r\nContent-Type: application/octet-stream\r\n"
POST_CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"

REFUSED: dict[str, bytes] = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 500,
    "NUL in the path": b"GET /bl\0ocks HTTP/1.1\r\nHost: node\r\n\r\n",
    "bytes over ASCII in the path": b"GET /bl\xc3\xb6cke HTTP/1.1\r\nHost: node\r\n\r\n",
    "space in the path": b"GET /blo cks HTTP/1.1\r\nHost: node\r\n\r\n",
    "no method": b"/blocks HTTP/1.1\r\nHost: node\r\n\r\n",
    "method that is no token": b"G<>T /blocks HTTP/1.1\r\nHost: node\r\n\r\n",
    "version that is none": b"GET /blocks HTTP/x\r\nHost: node\r\n\r\n",
    "no host": b"GET /blocks HTTP/1.1\r\n\r\n",
    "two hosts": GET + b"Host: other\r\n\r\n",
    "NUL in a header": GET + b"X: a\0b\r\n\r\n",
    "carriage return in a header": GET + b"X: a\rSet-Cookie: b\r\n\r\n",
    "header without a colon": GET + b"X\r\n\r\n",
    "space before the colon": GET + b"X : y\r\n\r\n",
    "empty header name": GET + b": y\r\n\r\n",
    "head over the limit": GET + b"X: " + b"a" * _HEAD_BYTES_OVER,
    "path over the limit": b"GET /" + b"a" * _HEAD_BYTES_OVER,
    "conflicting lengths": POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "negative length": POST + b"Content-Length: -3\r\n\r\nabc",
    "signed length": POST + b"Content-Length: +3\r\n\r\nabc",
    "length in hex": POST + b"Content-Length: 0x3\r\n\r\nabc",
    "length of very many digits": POST + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\nabc",
    "length and coding": POST_CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n",
    "unknown coding": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "coding that looks like chunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked twice": POST_CHUNKED + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunk size that is none": POST_CHUNKED + b"\r\nzz\r\n",
    "negative chunk size": POST_CHUNKED + b"\r\n-1\r\n",
    "chunk size of very many digits": POST_CHUNKED + b"\r\n" + b"f" * 25 + b"\r\n",
    "one header over the limit": GET + b"X: y\r\n" * (_LIMITS.head_lines_max - 1) + b"\r\n",
    "one trailer over the limit": POST_CHUNKED + b"\r\n0\r\n" + b"X: y\r\n" * (_LIMITS.head_lines_max + 1) + b"\r\n",
    "one escape over the limit": b"GET /blocks?a="
    + b"%61" * (_LIMITS.target_escapes_max + 1)
    + b" HTTP/1.1\r\nHost: node\r\n\r\n",
    "one small chunk over the limit": POST_CHUNKED + b"\r\n" + b"1\r\na\r\n" * (_LIMITS.body_chunks_unmeasured + 1),
    "chunk longer than it says": POST_CHUNKED + b"\r\n3\r\nabcXX0\r\n\r\n",
}
"""Bytes that are not a valid HTTP/1.1 request."""

TAKEN: dict[str, tuple[bytes, int]] = {
    "HTTP/1.0 without a host": (b"GET /blocks HTTP/1.0\r\n\r\n", 200),
    "bare line feeds": (b"GET /blocks HTTP/1.1\nHost: node\nConnection: close\n\n", 200),
    "folded header": (GET + b"X: a\r\n b\r\nConnection: close\r\n\r\n", 200),
    "many headers": (
        # With its request line and two other headers, the head has the largest number of lines.
        GET + b"".join(b"X%d: y\r\n" % n for n in range(_LIMITS.head_lines_max - 3)) + b"Connection: close\r\n\r\n",
        200,
    ),
    "many escapes": (
        b"GET /blocks?a="
        + b"%61" * _LIMITS.target_escapes_max
        + b" HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n",
        200,
    ),
    "many small chunks": (
        POST_CHUNKED + b"Connection: close\r\n\r\n" + b"1\r\na\r\n" * _LIMITS.body_chunks_unmeasured + b"0\r\n\r\n",
        202,
    ),
    "very many chunks of the smallest mean": (
        POST_CHUNKED
        + b"Connection: close\r\n\r\n"
        + (b"%x\r\n" % _LIMITS.chunk_bytes_mean_min + b"a" * _LIMITS.chunk_bytes_mean_min + b"\r\n")
        * (2 * _LIMITS.body_chunks_unmeasured)
        + b"0\r\n\r\n",
        202,
    ),
    "body with GET": (GET + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello", 200),
    "equal lengths": (POST + b"Connection: close\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 202),
    "chunks with extensions and trailers": (
        POST_CHUNKED + b"Connection: close\r\n\r\n1;a=b\r\na\r\n2\r\nbc\r\n0\r\nX: y\r\n\r\n",
        202,
    ),
    "upgrade": (GET + b"Connection: upgrade, close\r\nUpgrade: websocket\r\n\r\n", 200),
    "expectation": (POST + b"Expect: 100-continue\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc", 202),
    "unknown expectation": (POST + b"Expect: miracles\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc", 202),
    "proxy's request": (b"CONNECT node:80 HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n", 404),
    "asterisk": (b"OPTIONS * HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n", 404),
    "no path": (b"GET ?count=1 HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n", 404),
    "long path": (b"GET /" + b"a" * 150_000 + b" HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n", 404),
    "long method": (b"A" * 1_000 + b" /blocks HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n", 405),
    "percent-encoded rubbish": (
        b"GET /state/%ff%00%zz%c3?address=%ff&count=%31 HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n",
        400,
    ),
    "path that climbs": (b"GET /../../etc/passwd HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n", 404),
    "first of two counts": (b"GET /blocks?count=1&count=x HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n", 200),
    "first of two counts is none": (
        b"GET /blocks?count=x&count=1 HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n",
        400,
    ),
}
"""Unusual but valid requests, with the statuses of their answers."""

INJECTED = [
    b"x\r\nSet-Cookie: a=b",
    b"x\nSet-Cookie: a=b",
    b"x%0d%0aSet-Cookie: a=b",
    b"x\\r\\nSet-Cookie: a=b",
    b"x\xe5\x98\x8a\xe5\x98\x8dSet-Cookie: a=b",
    b'x"><script>alert(1)</script>',
    b"evil.example/path?query#fragment",
    b"user:password@evil.example",
    b"x\x85Set-Cookie: a=b",
    b"a" * 10_000,
]
"""Header values that try to add a header or a script to an answer, or another host to its links."""
