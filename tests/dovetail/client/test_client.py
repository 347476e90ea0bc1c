"""The HTTP client with answers from a mock transport or a local server."""

import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import httpx
import pytest

from dovetail.client import ApiError, DovetailClient
from dovetail.common.errors import Refused
from dovetail.common.urls import shown_url
from dovetail.ledger.building import SignedBatch
from dovetail.ledger.ids import BatchId
from protos import batch_pb2
from tests.dovetail.conftest import FakeApi

Answer = Callable[[httpx.Request], httpx.Response]

_BATCH = SignedBatch(BatchId("ab" * 64), batch_pb2.Batch(header_signature="ab" * 64).SerializeToString())


def _client(answer: Answer) -> DovetailClient:
    return DovetailClient("http://node:8080/ledger/", transport=httpx.MockTransport(answer))


def test_an_accepted_batch_is_pending() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert str(request.url) == "http://node:8080/ledger/batches"
        assert request.headers["Content-Type"] == "application/octet-stream"
        assert batch_pb2.BatchList.FromString(request.content).batches[0].header_signature == _BATCH.id
        return httpx.Response(202, json={"link": "…"})

    with _client(answer) as client:
        assert client.post_batches([_BATCH])[_BATCH.id] == (_BATCH.id, "PENDING", {})


def test_a_committed_batch() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.params["wait"] == "5"
        assert request.extensions["timeout"]["read"] == 35
        return httpx.Response(201, json={"link": "…"})

    with _client(answer) as client:
        assert client.post_batches([_BATCH], wait_s=5)[_BATCH.id].status == "COMMITTED"


@pytest.mark.parametrize(("wait_s", "sent"), [(3, "3"), (3.0, "3"), (0.2, "1"), (4.5, "5")])
def test_a_wait_is_sent_in_whole_seconds(wait_s: float, sent: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.params["wait"] == sent
        return httpx.Response(201, json={"link": "…"})

    with _client(answer) as client:
        assert client.post_batches([_BATCH], wait_s=wait_s)[_BATCH.id].status == "COMMITTED"


def test_an_invalid_batch_has_a_reason() -> None:
    details = {_BATCH.id: {"reason": "invalid_transaction", "transaction_id": "cd", "message": "no such name"}}

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"data": {_BATCH.id: "INVALID"}, "details": details})

    with _client(answer) as client:
        status = client.post_batches([_BATCH], wait_s=5)[_BATCH.id]
    assert status.why == "invalid_transaction no such name (transaction cd)"


@pytest.mark.parametrize(("count", "method"), [(15, "GET"), (16, "POST")])
def test_many_ids_are_sent_in_the_body(count: int, method: str) -> None:
    ids = [f"{number:0128x}" for number in range(count)]

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.method == method
        asked = json.loads(request.content) if method == "POST" else request.url.params["id"].split(",")
        return httpx.Response(200, json={"data": dict.fromkeys(asked, "UNKNOWN")})

    with _client(answer) as client:
        assert list(client.batch_status(ids)) == ids


def test_pages_are_followed_by_the_query_of_their_link() -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        query = parse_qs(request.url.query.decode())
        asked.append(query)
        assert request.url.path == "/ledger/state"
        assert request.url.host == "node"
        start = int(query.get("min", ["0"])[0])
        link = {} if start == 4 else {"next": f"http://inside:1/state?head=ff&min={start + 2}&count=2"}
        items = [{"n": start}, {"n": start + 1}] if start < 4 else [{"n": 4}]
        paging = {"start_index": start, "total_count": 5, **link}
        return httpx.Response(200, json={"data": items, "head": "ff", "link": "", "paging": paging})

    with _client(answer) as client:
        assert [item["n"] for item in client.items("state", address="00", count=2, head=None)] == [0, 1, 2, 3, 4]
    assert asked[0] == {"address": ["00"], "count": ["2"]}
    assert asked[1] == {"head": ["ff"], "min": ["2"], "count": ["2"]}


def test_errors_keep_code_title_and_message() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        error = {"code": 31, "title": "Unable to Accept Batches", "message": "20000 are pending"}
        return httpx.Response(429, json={"error": error}, headers={"Retry-After": "3"})

    with _client(answer) as client, pytest.raises(ApiError) as caught:
        client.post_batches([_BATCH])
    assert (caught.value.status, caught.value.code) == (429, 31)
    assert str(caught.value) == "Unable to Accept Batches: 20000 are pending; try again in 3 s (code 31)"


@pytest.mark.parametrize("content", [b"<html>", b"[]", b'{"error": "no object"}', b"\xff"])
@pytest.mark.parametrize("status", [200, 401, 502])
def test_an_answer_in_another_shape_has_no_code(content: bytes, status: int) -> None:
    with _client(lambda _: httpx.Response(status, content=content)) as client, pytest.raises(ApiError) as caught:
        client.resource("blocks", "0")
    assert caught.value.code is None


@pytest.mark.parametrize("body", [{}, {"data": 3, "paging": {}}, {"data": [], "paging": 1}])
def test_an_answer_without_a_list(body: object) -> None:
    with _client(lambda _: httpx.Response(200, json=body)) as client, pytest.raises(ApiError, match="Invalid Answer"):
        list(client.items("blocks"))


def test_a_leaf_that_is_no_base64() -> None:
    with (
        _client(lambda _: httpx.Response(200, json={"data": "%%"})) as client,
        pytest.raises(ApiError, match="no base64"),
    ):
        client.leaf("00" * 35)


def test_an_id_is_always_one_path_segment() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.raw_path == b"/ledger/blocks/..%2Fstate%3Fa"
        return httpx.Response(200, json={"data": {}})

    with _client(answer) as client:
        client.resource("blocks", "../state?a")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (httpx.ConnectError("refused"), r"^nothing answers at http://node:8080/ledger; is `dovetail up` running\?$"),
        (httpx.ReadTimeout("late"), "did not answer within 30 s"),
        (httpx.RemoteProtocolError("cut off"), "the connection to .* broke: cut off"),
    ],
)
def test_a_failed_request_is_reported_in_one_line(error: httpx.TransportError, reason: str) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        raise error

    with _client(answer) as client, pytest.raises(Refused, match=reason):
        client.resource("blocks", "0")


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://node", "http://", "", "http://[::1", "http://a:b"])
def test_an_unusable_url_is_refused(url: str) -> None:
    with pytest.raises(Refused, match="is no URL"):
        DovetailClient(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:secret@node:8080/x", "https://me:…@node:8080/x"),
        ("https://me:se@cr/et@node", "https://me:…@node"),
        ("https://:secret@node", "https://:…@node"),
        ("me:secret@node", "me:…@node"),
        ("https://me@node", "https://me@node"),
        ("http://node:8080/a@b", "http://node:8080/a@b"),
        ("http://[::1]:8080/a@b", "http://[::1]:8080/a@b"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert shown_url(url) == shown


class TlsNode:
    """Answers every GET over TLS with a self-signed certificate."""

    def __init__(self, folder: Path) -> None:
        self.certificate = folder / "node.crt"
        key = folder / "node.key"
        subprocess.run(
            [
                "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-days", "2", "-subj", "/CN=node", "-addext", "subjectAltName=IP:127.0.0.1",
                "-keyout", str(key), "-out", str(self.certificate),
            ],
            check=True,
            capture_output=True,
        )  # fmt: skip

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = b'{"data": {}}'
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """A client without this certificate closes the connection."""

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def tls_node(tmp_path: Path) -> Iterator[TlsNode]:
    """A node behind TLS on this machine."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    node = TlsNode(tmp_path)
    thread = threading.Thread(target=node.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield node
    node.server.shutdown()
    node.server.server_close()
    thread.join()


def test_a_certificate_is_trusted_only_if_the_environment_names_it(
    tls_node: TlsNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    # The client must not use this proxy for a local address.
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    with (
        DovetailClient(tls_node.url) as client,
        pytest.raises(
            Refused, match=r"certificate of https://.* is not trusted: self-signed certificate.*SSL_CERT_FILE"
        ),
    ):
        client.data("/readyz")
    monkeypatch.setenv("SSL_CERT_FILE", str(tls_node.certificate))
    with DovetailClient(tls_node.url) as client:
        assert client.data("/readyz") == {}


def test_certificates_that_cannot_be_loaded_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.crt")
    with pytest.raises(Refused, match=r"cannot load .*'SSL_CERT_FILE': '/nowhere.crt'.*No such file or directory"):
        DovetailClient("https://127.0.0.1:1")


def test_https_to_a_server_without_tls(api: FakeApi) -> None:
    url = api.url.replace("http:", "https:")
    with DovetailClient(url) as client, pytest.raises(Refused, match=f"^{url} answers, but not with TLS"):
        client.data("/readyz")
