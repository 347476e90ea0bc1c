"""Forwarding headers: which senders are trusted, which header takes precedence, and which values are ignored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Scope

from dovetail.rest_api.config import networks
from dovetail.rest_api.request.links import base_url, origin_form

LOOPBACK = networks(("127.0.0.1", "::1"))


def scope(headers: list[tuple[str, str]], client: str = "127.0.0.1", host: str = "node:8080") -> Scope:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in [("host", host), *headers]]
    return {"type": "http", "scheme": "http", "server": ("10.0.0.1", 8080), "client": (client, 4000), "headers": raw}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], "http://node:8080"),
        ([("x-forwarded-host", "ledger.example")], "http://ledger.example"),
        ([("x-forwarded-proto", "HTTPS")], "https://node:8080"),
        ([("x-forwarded-path", "/api/v1/")], "http://node:8080/api/v1"),
        ([("x-forwarded-path", "api")], "http://node:8080/api"),
        ([("x-forwarded-host", "outer.example, inner.example")], "http://outer.example"),
        ([("x-forwarded-host", "outer.example"), ("x-forwarded-host", "inner.example")], "http://outer.example"),
        ([("forwarded", "for=9.9.9.9;host=ledger.example;proto=https;path=/api")], "https://ledger.example/api"),
        ([("forwarded", 'host="ledger.example:8443";proto=https;path="/a/b"')], "https://ledger.example:8443/a/b"),
        ([("forwarded", 'Host="[2001:db8::1]:8443" ; Proto=https')], "https://[2001:db8::1]:8443"),
        ([("forwarded", "host=[2001:db8::1]")], "http://[2001:db8::1]"),
        ([("forwarded", "host=first.example, host=second.example;proto=https")], "https://first.example"),
        ([("forwarded", "for=1.1.1.1"), ("forwarded", "host=second.example")], "http://second.example"),
        ([("forwarded", r'host="led\ger.example"')], "http://ledger.example"),
        ([("forwarded", 'for="a,b;host=evil.example";host=good.example')], "http://good.example"),
        ([("forwarded", 'by=";;;,,,";;, nonsense ,host=good.example')], "http://good.example"),
        ([("forwarded", "proto=https"), ("x-forwarded-host", "x.example"), ("x-forwarded-proto", "http")],
         "https://x.example"),
        ([("forwarded", "host=bad/host"), ("x-forwarded-host", "x.example")], "http://x.example"),
        ([("forwarded", 'host="never closed')], "http://node:8080"),
        ([("forwarded", 'for="open'), ("forwarded", "host=good.example")], "http://good.example"),
        ([("forwarded", "path=/"), ("x-forwarded-path", "/api")], "http://node:8080"),
        ([("forwarded", "path="), ("x-forwarded-path", "/api")], "http://node:8080/api"),
    ],
)  # fmt: skip
def test_the_base_url_follows_forwarding_headers(headers: list[tuple[str, str]], expected: str) -> None:
    assert base_url(scope(headers), LOOPBACK) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("host", "evil.example/path"),
        ("host", "user@evil.example"),
        ("host", "evil.example:99999"),
        ("host", "evil.example:0"),
        ("host", "evil.example:"),
        ("host", "[::zz]"),
        ("host", "[1.2.3.4]"),
        ("host", "e\xe9.example"),
        ("host", "a" * 256),
        ("host", "-evil"),
        ("proto", "javascript"),
        ("proto", "ftp"),
        ("path", "/a/../b"),
        ("path", "/a/./b"),
        ("path", "/a/%2E%2e/b"),
        ("path", "//evil.example"),
        ("path", "/a?b"),
        ("path", "/a#b"),
        ("path", '/a"<script>'),
        ("path", "/%zz"),
        ("path", "/" + "a" * 1024),
    ],
)
def test_an_unusable_value_is_ignored(name: str, value: str) -> None:
    assert base_url(scope([(f"x-forwarded-{name}", value)]), LOOPBACK) == "http://node:8080"
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    assert base_url(scope([("forwarded", f'{name}="{quoted}"')]), LOOPBACK) == "http://node:8080"


@pytest.mark.parametrize(
    ("client", "trusted", "believed"),
    [
        ("127.0.0.1", ("127.0.0.1",), True),
        ("::1", ("::1",), True),
        ("::ffff:127.0.0.1", ("127.0.0.1",), True),
        ("10.1.2.3", ("10.0.0.0/8",), True),
        ("10.1.2.3", ("127.0.0.1", "::1"), False),
        ("fd00::7", ("fd00::/8",), True),
        ("127.0.0.1", (), False),
        ("testclient", ("127.0.0.1",), False),
    ],
)
def test_only_trusted_proxies_are_believed(client: str, trusted: tuple[str, ...], believed: bool) -> None:
    headers = [("forwarded", "host=proxy.example;proto=https")]
    expected = "https://proxy.example" if believed else "http://node:8080"
    assert base_url(scope(headers, client), networks(trusted)) == expected


def test_a_connection_without_an_address_is_not_believed() -> None:
    asked = {**scope([("x-forwarded-host", "proxy.example")]), "client": None}
    assert base_url(asked, LOOPBACK) == "http://node:8080"


def test_an_unusable_host_header_is_replaced_by_the_own_address() -> None:
    assert base_url(scope([], host="no host"), LOOPBACK) == "http://10.0.0.1:8080"
    assert base_url({**scope([], host=""), "server": ("::1", 80)}, LOOPBACK) == "http://[::1]:80"


@given(st.text(st.characters(codec="latin-1"), max_size=60), st.sampled_from(["forwarded", "x-forwarded-path"]))
def test_any_header_value_gives_a_valid_base_url(value: str, name: str) -> None:
    base = base_url(scope([(name, value)]), LOOPBACK)
    assert base.startswith(("http://", "https://"))
    assert not set(base) & set(' "<>\\^`{|}?#\r\n\t\0')
    assert base.isascii()


def test_hostile_forwarded_headers_are_parsed_in_linear_time() -> None:
    """Quadratic time would exceed the test's time limit for 200,000 characters."""
    for pattern in ('"', '\\"', 'a="', 'a=";', ",", "a=b;", '"\\'):
        base_url(scope([("forwarded", pattern * (200_000 // len(pattern)))]), LOOPBACK)
        base_url(scope([("x-forwarded-path", pattern * 1000)]), LOOPBACK)


@pytest.mark.parametrize(
    ("target", "path", "base"),
    [
        ("/blocks", "/blocks", "http://node:8080"),
        ("http://a.example:81/blocks%20x", "/blocks x", "http://a.example:81"),
        ("HTTPS://a.example", "/", "http://a.example"),
        ("http://user@evil.example/blocks", "/blocks", "http://10.0.0.1:8080"),
        ("http:///blocks", "/blocks", "http://10.0.0.1:8080"),
        ("//a.example/blocks", "//a.example/blocks", "http://node:8080"),
        ("ftp://a.example/blocks", "ftp://a.example/blocks", "http://node:8080"),
    ],
)
def test_request_line_with_a_whole_url(target: str, path: str, base: str) -> None:
    """The host in the request line wins over the Host header (RFC 9112, 3.2.2)."""
    found = origin_form({**scope([]), "path": target, "raw_path": target.encode()})
    assert (found["path"], base_url(found, LOOPBACK)) == (path, base)
