"""nginx's own refusals have the API's error shape, and nginx passes no forwarding headers of clients to the API.

The real nginx runs deploy/nginx's configuration, in front of the session's node or of a test's own HTTP server.
"""

import http.server
import json
import re
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from dovetail.ledger.limits import Limits
from dovetail.rest_api.config import RestConfig
from tests.system.e2e.clients import Api, Author, error_of
from tests.system.e2e.conftest import Shared
from tests.system.e2e.network import ReservedPort
from tests.system.e2e.nginx.conftest import Proxies
from tests.system.e2e.nginx.proxy import DEPLOY, NAME, Proxy

BODY_BYTES_MAX = Limits().body_bytes_max

FORGED = {
    "Forwarded": 'for=9.9.9.9;host=evil.example;proto=http;path="/evil"',
    "X-Forwarded-Host": "evil.example",
    "X-Forwarded-Proto": "http",
    "X-Forwarded-Path": "/evil",
    "X-Forwarded-For": "9.9.9.9",
}


def refused(answer: httpx.Response, status: int, code: int) -> dict[str, Any]:
    """The error of a refusal, which must have the API's shape."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert re.fullmatch(r"[A-Za-z0-9._~:+/=@-]{1,128}", answer.headers["x-request-id"])
    error = error_of(answer)
    assert list(answer.json()) == ["error"]
    assert list(error) == ["code", "title", "message"]
    assert error["code"] == code
    assert error["title"] != "Proxy Error"
    return error


class Upstream:
    """Stands in for a REST API. Keeps received requests, and answers them or closes the connection."""

    def __init__(self, *, answers: bool) -> None:
        self.requests: list[tuple[str, str, list[tuple[str, str]]]] = []
        upstream = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                upstream.requests.append((self.command, self.path, self.headers.items()))
                self.close_connection = not answers
                if answers:
                    self.send_response(200)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            do_HEAD = do_POST = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.bind = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def upstreams() -> Iterator[list[Upstream]]:
    """A list for the upstreams of a test. The upstreams end after the test."""
    made: list[Upstream] = []
    yield made
    for upstream in made:
        upstream.close()


class TestForwardingHeaders:
    """API.md, Behind a proxy: the API trusts the proxy, so the proxy must not trust the client."""

    def test_a_client_that_forges_is_not_believed(self, either: Proxy, through: Api) -> None:
        honest = through.get("/blocks", count=1)
        assert honest["link"].startswith(f"{either.url}/blocks?")
        for headers in (FORGED, *({name: value} for name, value in FORGED.items())):
            assert through.http.get("/blocks", params={"count": 1}, headers=headers).json() == honest

    def test_what_the_rest_api_sees(self, proxies: Proxies, upstreams: list[Upstream]) -> None:
        upstreams.append(Upstream(answers=True))
        proxy = proxies([upstreams[0].bind])
        api = proxy.api()
        doubled = [*FORGED.items(), *FORGED.items(), ("X-Request-Id", "not an id"), ("Connection", "close")]
        assert api.http.get("/", headers=doubled).status_code == 200
        api.close()
        ((_, _, headers),) = upstreams[0].requests
        seen = [(name.lower(), value) for name, value in headers]
        assert dict(seen).keys() == {name for name, _ in seen} <= {
            "host", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-for", "x-request-id",
            "accept", "accept-encoding", "user-agent",
        }  # fmt: skip
        assert len(dict(seen)) == len(seen)
        found = dict(seen)
        assert found["host"] == found["x-forwarded-host"] == proxy.bind
        assert found["x-forwarded-proto"] == "https"
        assert found["x-forwarded-for"] == "127.0.0.1"
        assert re.fullmatch("[0-9a-f]{32}", found["x-request-id"])

    @pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", f"x.{NAME}", f"{NAME}.evil.example"])
    def test_another_host_is_not_served(self, through: Api, host: str) -> None:
        refused(through.http.get("/blocks", headers={"Host": host}), 421, 421)

    @pytest.mark.parametrize("host", [f"{NAME}:1", NAME.upper(), f"{NAME}:evil", f"{NAME}."])
    def test_links_show_the_host_as_the_proxy_writes_it(self, either: Proxy, through: Api, host: str) -> None:
        answer = through.http.get("/blocks", params={"count": 1}, headers={"Host": host})
        assert answer.json()["link"].startswith(f"{either.url}/blocks?")

    def test_the_host_counts_that_the_request_line_names(self, either: Proxy) -> None:
        closing = "Connection: close\r\n"
        status, body = either.ask(f"GET {either.url}/blocks?count=1 HTTP/1.1\r\nHost: evil.example\r\n{closing}")
        assert status == 200
        assert json.loads(body)["link"].startswith(f"{either.url}/blocks?")
        status, body = either.ask(f"GET https://evil.example/blocks HTTP/1.1\r\nHost: {either.bind}\r\n{closing}")
        assert status == json.loads(body)["error"]["code"] == 421


class TestStrangers:
    """/healthz needs no password, so anyone may send requests there.

    Only a small part of such a request may reach the API.
    """

    @pytest.mark.parametrize("site", ["dovetail", "dovetail-prefix"])
    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    def test_nothing_of_theirs_travels_on(
        self, proxies: Proxies, upstreams: list[Upstream], method: str, site: str
    ) -> None:
        upstreams.append(Upstream(answers=True))
        with proxies([upstreams[0].bind], site=site).client(None) as client:
            answer = client.request(method, "/healthz", params={"x": "y" * 10_000}, headers={"X-Long": "x" * 10_000})
        assert answer.status_code == 200
        ((reached, path, headers),) = upstreams[0].requests
        assert (reached, path) == (method, "/healthz")
        assert {name.lower() for name, _ in headers} == {
            "host", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-for", "x-request-id",
            *(["x-forwarded-path"] if site == "dovetail-prefix" else []),
        }  # fmt: skip

    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
    def test_other_methods_take_the_password(self, either: Proxy, through: Api, shared: Shared, method: str) -> None:
        with either.client(None) as client:
            refused(client.request(method, "/healthz"), 401, 401)
        direct, proxied = (api.http.request(method, "/healthz") for api in (shared.api, through))
        assert (proxied.status_code, proxied.text) == (direct.status_code, direct.text)
        assert proxied.headers["allow"] == direct.headers["allow"]

    def test_a_body_is_refused(self, either: Proxy) -> None:
        with either.client(None) as client:
            error = refused(client.request("GET", "/healthz", content=b"x" * 1025), 413, 36)
        assert "at /healthz that is 1024 bytes" in error["message"]

    def test_too_often_is_refused(self, proxies: Proxies, upstreams: list[Upstream]) -> None:
        upstreams.append(Upstream(answers=True))
        with proxies([upstreams[0].bind]).client(None) as client:
            answers = (client.get("/healthz") for _ in range(10_000))
            answer = next(answer for answer in answers if answer.status_code != 200)
        assert "over 10 a second ask for /healthz" in refused(answer, 429, 429)["message"]
        assert answer.headers["retry-after"] == "1"


class TestErrors:
    """API.md, Errors: nginx's errors have the API's shape, the API's code if there is one, and no HTML."""

    def test_a_body_over_the_limit(self, through: Api) -> None:
        # The largest body within the limit; the API refuses it.
        assert error_of(through.post_list(b"\xff" * BODY_BYTES_MAX))["code"] == 35
        error = refused(through.post_list(b"\xff" * (BODY_BYTES_MAX + 1)), 413, 36)
        assert f"{BODY_BYTES_MAX} bytes, the most that the proxy takes" in error["message"]

    def test_a_body_that_does_not_say_its_length(self, through: Api) -> None:
        pieces = (b"\xff" * 65536 for _ in range(BODY_BYTES_MAX // 65536 + 1))
        headers = {"Content-Type": "application/octet-stream"}
        error = refused(through.http.post("/batches", content=pieces, headers=headers), 413, 36)
        assert "the proxy takes" in error["message"]

    @pytest.mark.parametrize(
        ("head", "status", "said"),
        [
            ("GET /?{long} HTTP/1.1\r\nHost: {host}", 414, "POST /batch_status"),
            ("GET / HTTP/1.1\r\nHost: {host}\r\nX-Long: {long}", 400, "196608 bytes"),
            ("NONSENSE", 400, "no HTTPS request"),
            ("GET / HTTP/1.1", 400, "no HTTPS request"),
            ("GET / HTTP/1.1\r\nHost: {host}\r\nContent-Length: x", 400, "no HTTPS request"),
            ("GET / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: gzip", 501, ""),
            ("GET / HTTP/3.1\r\nHost: {host}", 505, ""),
            ("TRACE / HTTP/1.1\r\nHost: {host}", 405, "method"),
            ("GET /-error HTTP/1.1\r\nHost: {host}", 404, "this path"),
        ],
    )
    def test_what_is_no_request(self, either: Proxy, head: str, status: int, said: str) -> None:
        found, body = either.ask(head.format(host=either.bind, long="x" * 200_000) + "\r\nConnection: close\r\n")
        assert found == status
        assert json.loads(body)["error"]["code"] == status
        assert said in json.loads(body)["error"]["message"]

    def test_what_lies_beside_the_prefix(self, either: Proxy, through: Api) -> None:
        refused(through.http.get(f"https://{either.bind}/no-such-path"), 404, 404)

    def test_plain_http(self, proxy: Proxy) -> None:
        refused(httpx.get(f"http://{proxy.bind}/blocks", trust_env=False), 400, 400)

    def test_old_tls(self, proxy: Proxy) -> None:
        old = ssl.create_default_context(cafile=proxy.certificate)
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with httpx.Client(verify=old, trust_env=False) as client, pytest.raises(httpx.ConnectError, match="VERSION"):
            client.get(f"{proxy.url}/healthz")

    def test_no_rest_api(self, proxies: Proxies, author: Author) -> None:
        port = ReservedPort()
        api = proxies([f"127.0.0.1:{port.number}"]).api()
        for answer in (api.http.get("/blocks"), api.post(author.batch(author.intkey("set", "x", 1)))):
            refused(answer, 502, 502)
            assert answer.headers["retry-after"] == "1"
        api.close()
        port.close()


def test_nginx_allows_what_the_rest_api_allows() -> None:
    """nginx allows waits and request lines as long as the API does, and its error messages name the true limits."""
    snippet = (DEPLOY / "snippets" / "dovetail.conf").read_text()
    texts = (DEPLOY / "conf.d" / "dovetail.conf").read_text()

    def number(pattern: str) -> int:
        found = re.findall(pattern, snippet, re.MULTILINE)
        assert len(found) == 1
        return int(found[0])

    limits, config = Limits(), RestConfig()
    # The API adds a part of its own timeout to the wait; see dovetail.rest_api.request.call.
    assert number(r"^proxy_read_timeout (\d+)s;$") > limits.status_wait_s_max + config.timeout_s // 20
    assert number(r"^client_max_body_size (\d+)m;$") * 1024 * 1024 == limits.body_bytes_max
    assert f" {limits.body_bytes_max} bytes" in texts
    line_bytes_max = number(r"^large_client_header_buffers \d+ (\d+)k;$") * 1024
    # Each id takes 128 characters and %2C.
    assert line_bytes_max > limits.status_ids_max * 131 + 1024
    assert texts.count(f" {line_bytes_max} bytes") == 2
    requests_max = number(r"^limit_conn dovetail_clients (\d+);$")
    assert f" {requests_max} requests" in texts
    healthz = (DEPLOY / "snippets" / "dovetail-healthz.conf").read_text()
    assert re.search(r"^client_max_body_size 1k;$", healthz, re.MULTILINE)
    assert "at /healthz that is 1024 bytes" in texts
    (rate,) = re.findall(r"zone=dovetail_healthz:1m rate=(\d+)r/s;", texts)
    assert f"over {rate} a second ask for /healthz" in texts


@pytest.mark.parametrize(("method", "times"), [("GET", 2), ("POST", 1)])
def test_what_was_handed_in_is_not_handed_in_again(
    proxies: Proxies, upstreams: list[Upstream], method: str, times: int
) -> None:
    """A REST API that dies during a POST may have passed the batch on.

    So the client decides about a retry, not nginx.
    """
    upstreams += [Upstream(answers=False), Upstream(answers=False)]
    api = proxies([upstream.bind for upstream in upstreams]).api()
    refused(api.http.request(method, "/batches", content=b"x" if method == "POST" else None), 502, 502)
    api.close()
    reached = [method for upstream in upstreams for method, *_ in upstream.requests]
    assert reached == [method] * times
