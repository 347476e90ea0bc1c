"""Rows on forwarding headers: the links of answers behind a proxy. The node must trust this machine as a proxy."""

from collections.abc import Iterable
from functools import partial
from urllib.parse import urlsplit

from tests.conformance.table import Row, rule
from tests.conformance.world import OCTETS, World
from tests.system.independent.client import make_batch_list

ROWS: list[Row] = []
Headers = tuple[tuple[str, str], ...]


def _links_begin(world: World, headers: Headers, scheme: str, host: str, prefix: str) -> None:
    with world.http.raw() as raw:
        raw.send("GET", f"/blocks?count=1&min=1&head={world.head}", *headers, ("Host", "node.example:1"))
        content = raw.answer().json
    for link in (content["link"], content["paging"]["previous"], content["paging"]["next"]):
        parts = urlsplit(link)
        assert (parts.scheme, parts.netloc, parts.path) == (scheme, host, f"{prefix}/blocks")


def _forwarded(*values: str) -> Headers:
    return tuple(("Forwarded", value) for value in values)


def _rows(section: str, text: str, cases: Iterable[tuple[str, Headers, tuple[str, str, str]]]) -> list[Row]:
    return [
        Row(f"{section}/{name}", text,
            partial(_links_begin, headers=headers, scheme=wanted[0], host=wanted[1], prefix=wanted[2]))
        for name, headers, wanted in cases
    ]  # fmt: skip


_OWN = ("http", "node.example:1", "")
ROWS += _rows(
    "seed/forwarding/2",
    "without forwarding headers, links are built from the address that the API itself received",
    [("host", (), _OWN)],
)
ROWS += _rows(
    "seed/forwarding/x-forwarded",
    "X-Forwarded-Host, -Proto and -Path rebuild the client's URL, separately and together",
    [
        ("host", (("X-Forwarded-Host", "ledger.example"),), ("http", "ledger.example", "")),
        ("host-port", (("X-Forwarded-Host", "ledger.example:8443"),), ("http", "ledger.example:8443", "")),
        ("proto", (("X-Forwarded-Proto", "https"),), ("https", "node.example:1", "")),
        ("path", (("X-Forwarded-Path", "/ledger/api"),), ("http", "node.example:1", "/ledger/api")),
        ("path-slash", (("X-Forwarded-Path", "/ledger/"),), ("http", "node.example:1", "/ledger")),
        ("path-plain", (("X-Forwarded-Path", "ledger"),), ("http", "node.example:1", "/ledger")),
        (
            "all",
            (("X-Forwarded-Host", "a.example"), ("X-Forwarded-Proto", "https"), ("X-Forwarded-Path", "/p")),
            ("https", "a.example", "/p"),
        ),
        ("leftmost", (("X-Forwarded-Host", "a.example, b.example"),), ("http", "a.example", "")),
        ("case", (("x-forwarded-HOST", "a.example"),), ("http", "a.example", "")),
    ],
)
ROWS += _rows(
    "seed/forwarding/forwarded",
    "the keys host, proto and path of Forwarded are read",
    [
        ("host", _forwarded("host=a.example"), ("http", "a.example", "")),
        ("proto", _forwarded("proto=https"), ("https", "node.example:1", "")),
        ("path", _forwarded("path=/p/q"), ("http", "node.example:1", "/p/q")),
        ("all", _forwarded("for=192.0.2.1;host=a.example;proto=https;path=/p;by=x"), ("https", "a.example", "/p")),
        ("key-case", _forwarded("HOST=a.example;Proto=HTTPS"), ("https", "a.example", "")),
        ("spaces", _forwarded("for=192.0.2.1 ; host=a.example"), ("http", "a.example", "")),
    ],
)
ROWS += _rows(
    "seed/forwarding/1",
    "of a key that appears several times the leftmost counts, for each key separately",
    [
        ("commas", _forwarded("host=a.example, host=b.example"), ("http", "a.example", "")),
        ("each-key", _forwarded("host=a.example, host=b.example;proto=https"), ("https", "a.example", "")),
        ("two-headers", _forwarded("host=a.example", "host=b.example;path=/p"), ("http", "a.example", "/p")),
        ("later-only", _forwarded("for=192.0.2.1", "host=b.example"), ("http", "b.example", "")),
    ],
)
_X = (("X-Forwarded-Host", "x.example"), ("X-Forwarded-Proto", "https"), ("X-Forwarded-Path", "/x"))
ROWS += _rows(
    "api/proxy/precedence",
    "Forwarded wins over X-Forwarded-*, key by key",
    [
        ("host", (*_forwarded("host=a.example"), *_X), ("https", "a.example", "/x")),
        ("proto", (*_forwarded("proto=http"), *_X), ("http", "x.example", "/x")),
        ("path", (*_forwarded("path=/p"), *_X), ("https", "x.example", "/p")),
        ("all", (*_forwarded("path=/p;host=a.example;proto=http"), *_X), ("http", "a.example", "/p")),
    ],
)
ROWS += _rows(
    "api/proxy/rfc7239",
    "quoted values and IPv6 hosts parse as RFC 7239 says",
    [
        ("quoted", _forwarded('host="a.example:8443"'), ("http", "a.example:8443", "")),
        ("quoted-path", _forwarded('path="/p/q";host=a.example'), ("http", "a.example", "/p/q")),
        ("ipv6", _forwarded('host="[2001:db8::1]:8443"'), ("http", "[2001:db8::1]:8443", "")),
        ("ipv6-no-port", _forwarded('host="[2001:db8::1]"'), ("http", "[2001:db8::1]", "")),
        ("escape", _forwarded(r'host="a\.example"'), ("http", "a.example", "")),
        ("quoted-separators", _forwarded('for="a,b;host=evil.example";host=a.example'), ("http", "a.example", "")),
    ],
)
ROWS += _rows(
    "api/proxy/ignored",
    "a value that is no host, scheme or path is ignored and not echoed",
    [
        *(
            (f"host/{value[:16]}", ((f"X-Forwarded-{'Host'}", value),), _OWN)
            for value in ("evil.example/path", "user@evil.example", "a b", "a.example:99999", "<script>", "", "a\\b",
                          "a.example?x", "a.example#x", "[::1", "[zz::1]", "h" * 300)
        ),
        *((f"proto/{value}", (("X-Forwarded-Proto", value),), _OWN) for value in ("script", "ftp", "https:", "h t")),
        *(
            (f"path/{value[:16]}", (("X-Forwarded-Path", value),), _OWN)
            for value in ("/a?b", "/a#b", "//evil.example", "/../x", "/%2e%2e/x", "/a b", "/<x>", "/" + "p" * 5000)
        ),
        ("forwarded/host", _forwarded('host="evil.example/x"'), _OWN),
        ("forwarded/open-quote", _forwarded('host="never closed'), _OWN),
        ("forwarded/nonsense", _forwarded(";;,,=,==;host"), _OWN),
        ("falls-back", (*_forwarded("host=bad/host"), *_X), ("https", "x.example", "/x")),
    ],
)  # fmt: skip

_PROXY = (("Forwarded", 'host=a.example;proto=https;path="/p"'),)


@rule(ROWS, "seed/forwarding/all-links", "link, previous, next, and the links of 202, 201 and 200 all follow the proxy")
def _(world: World) -> None:
    batch, waits = world.new(), world.waiting()
    links = []
    for target, sent in (("/batches?wait=50", batch), ("/batches", batch), ("/batches?wait=1", waits)):
        body = make_batch_list([sent])
        with world.http.raw() as raw:
            raw.send("POST", target, OCTETS, ("Content-Length", str(len(body))), *_PROXY, content=body)
            links.append(raw.answer().json["link"])
    for target in ("/blocks/{block}", "/batches/{batch}", "/transactions/{transaction}", "/state/{address}",
                   "/state/{prefix}", "/batch_status?id={batch}", "/state", "/blocks", "/batches", "/transactions",
                   "/"):  # fmt: skip
        content = world.http.get(world.fill(target), *_PROXY).json
        links.append(content["link"])
        links += [value for name, value in content.get("paging", {}).items() if name in ("previous", "next")]
    for link in links:
        assert link.startswith("https://a.example/p/"), link


@rule(ROWS, "api/every/root-proxy", "the links of / to /docs and /openapi.json follow the proxy too")
def _(world: World) -> None:
    text = world.http.get("/", *_PROXY).body.decode()
    assert '"https://a.example/p/docs"' in text
    assert '"https://a.example/p/openapi.json"' in text


@rule(ROWS, "seed/forwarding/absolute-form", "a request line may hold the whole URL; its host counts, not Host")
def _(world: World) -> None:
    for target in ("http://a.example:81/blocks?count=1", "HTTP://a.example:81/blocks?count=1"):
        with world.http.raw() as raw:
            raw.send("GET", target, ("Host", "b.example"))
            answer = raw.answer()
        assert answer.status == 200
        assert answer.json["link"].startswith("http://a.example:81/blocks?head=")
    with world.http.raw() as raw:
        raw.send("GET", "http://a.example", ("Host", "b.example"))
        answer = raw.answer()
    assert (answer.status, answer.json["link"]) == (200, "http://a.example/")


@rule(ROWS, "seed/forwarding/no-host", "HTTP/1.0 without Host: links are built from the API's own address")
def _(world: World) -> None:
    with world.http.raw() as raw:
        raw.send("GET", "/blocks?count=1", version="1.0")
        answer = raw.answer()
    assert answer.status == 200
    assert urlsplit(answer.json["link"]).path == "/blocks"
    assert urlsplit(answer.json["link"]).port == world.http.port


@rule(ROWS, "seed/auth/2", "a proxied request gets the same answer as a direct one, except for the address in links")
def _(world: World) -> None:
    for target in ("/blocks?head={head}", "/batches/{batch}", "/state/{prefix}?head={head}"):
        direct, proxied = world.http.get(world.fill(target)), world.http.get(world.fill(target), *_PROXY)
        assert proxied.body.decode().replace("https://a.example/p", world.http.url) == direct.body.decode()
