"""The server: start, shutdown, methods, paths, request ids, log lines, and invalid HTTP."""

import asyncio
import contextlib
import json
import socket

import httpx
import pytest
import structlog

from dovetail.rest_api import routes
from dovetail.rest_api.config import RestConfig
from dovetail.rest_api.server.app import serve
from dovetail.testing.running import ReservedPort
from tests.dovetail.rest_api.serving import OK, served
from tests.dovetail.rest_api.support import Api, ListResponse, Type, error_of, run, running_api


async def exchange(port: int, request: bytes) -> tuple[bytes, bytes]:
    """Head and body of the answer to raw bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


@pytest.mark.parametrize("validator_first", [True, False])
def test_ready_is_reported_when_the_api_listens_and_is_connected(validator_first: bool) -> None:
    async def test() -> None:
        async with served(validator_first=validator_first) as api:
            if not validator_first:
                assert api.waited_for == [f"the validator at {api.validator.address}"]
            response = await api.http.get("/blocks")
            assert response.json()["link"] == f"http://127.0.0.1:{api.port}/blocks?head={'f' * 128}"
            assert "server" not in response.headers

    run(test())


def test_shutdown_answers_waiting_requests() -> None:
    async def test() -> None:
        async with served() as api:
            waiting = asyncio.create_task(api.http.get(f"/batch_status?id={'a' * 128}&wait=300"))
            await api.validator.asked.get()
            api.task.cancel()
            assert error_of(await waiting)[:2] == (503, 18)
            with pytest.raises(asyncio.CancelledError):
                await api.task
            with pytest.raises(httpx.ConnectError):
                await api.http.get("/")

    run(test())


def test_an_address_in_use_is_named() -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            bind = f"127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(OSError, match=f"cannot listen on {bind}: Address already in use"):
                await serve(RestConfig(bind=bind), on_ready=lambda: None, on_waiting=lambda _: None)

    run(test())


def test_a_wrong_validator_address_ends_the_start() -> None:
    async def test() -> None:
        with contextlib.closing(ReservedPort()) as port:
            config = RestConfig(bind=f"127.0.0.1:{port.number}", validator="udp:x")
            with pytest.raises(ValueError, match="validator: 'udp:x'"):
                await serve(config, on_ready=lambda: None, on_waiting=lambda _: None)

    run(test())


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: node\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: node\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n",
        b"POST /batches HTTP/1.1\r\nHost: node\r\nContent-Length: x\r\n\r\n",
        b"POST /batches HTTP/1.1\r\nHost: node\r\nContent-Type: application/octet-stream\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_invalid_http_gets_an_error_answer(request_bytes: bytes) -> None:
    async def test() -> None:
        async with served() as api:
            head, body = await exchange(api.port, request_bytes)
            assert head.startswith(b"HTTP/1.1 400 ")
            assert b"x-request-id: " in head
            assert list(json.loads(body)["error"]) == ["code", "title", "message"]
            assert (await api.http.get("/")).status_code == 200

    run(test())


def test_all_allowed_ids_fit_into_a_query() -> None:
    async def test() -> None:
        async with served() as api:
            answer = ListResponse(status=ListResponse.OK)
            api.validator.answer(Type.LIST_REQUEST, Type.LIST_RESPONSE, answer)
            # httpx refuses URLs of this length.
            ids = "%2C".join(f"{number:0128x}" for number in range(1000))
            request = f"GET /batches?id={ids} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"
            head, _ = await exchange(api.port, request.encode())
            assert head.startswith(b"HTTP/1.1 200 ")

    run(test())


def test_a_body_over_the_limit_is_refused_and_the_connection_stays_open() -> None:
    async def test() -> None:
        async with served() as api:
            headers = {"content-type": "application/octet-stream"}
            body = b"x" * (8 * 1024 * 1024 + 1)
            assert error_of(await api.http.post("/batches", content=body, headers=headers))[:2] == (413, 36)
            assert (await api.http.get("/blocks")).status_code == 200

    run(test())


def test_every_path_has_get_head_and_options() -> None:
    async def test() -> None:
        async with served() as api:
            for endpoint in routes.ENDPOINTS:
                path = endpoint.path.replace("{address}", "a" * 70)
                path = path.replace("{block_id}", "x").replace("{batch_id}", "x").replace("{transaction_id}", "x")
                get, head = await api.http.get(path), await api.http.head(path)
                assert get.status_code < 500, f"the fake validator did not answer what {path} asked: {get.text}"
                assert (head.status_code, head.content) == (get.status_code, b"")
                # Each request is counted, so the length may change between two requests.
                if path != "/metrics":
                    assert head.headers["content-length"] == get.headers["content-length"]
                options = await api.http.options(path)
                assert options.status_code == 204
                allowed = options.headers["allow"].split(", ")
                assert set(allowed) == {*endpoint.handlers, "HEAD", "OPTIONS"}
                for method in ("PUT", "DELETE", "PATCH", "BREW", "POST"):
                    if method not in allowed:
                        response = await api.http.request(method, path)
                        assert error_of(response)[:2] == (405, 405)
                        assert response.headers["allow"] == ", ".join(allowed)

    run(test())


@pytest.mark.parametrize("path", ["/nothing", "/blocks/", "/blocks/1/2", "/state//", "//", "/Blocks", "/batches/a%2Fb"])
def test_an_unknown_path_is_404(path: str) -> None:
    async def test() -> None:
        async with running_api() as api:
            for method in ("GET", "POST", "OPTIONS"):
                response = await api.http.request(method, f"http://node:8080{path}")
                assert error_of(response)[:2] == (404, 404)

    run(test())


def test_the_root_names_service_and_version() -> None:
    async def test() -> None:
        async with running_api() as api:
            response = await api.http.get("/", headers={"forwarded": "host=ledger.example;proto=https;path=/api"})
            assert set(response.json()["data"]) == {"name", "version", "links"}
            assert response.json()["link"] == "https://ledger.example/api/"

    run(test())


def test_links_follow_a_trusted_proxy_only() -> None:
    async def link(api: Api) -> str:
        api.validator.answer(Type.LIST_REQUEST, Type.LIST_RESPONSE, OK)
        headers = {"x-forwarded-host": "ledger.example", "x-forwarded-proto": "https", "x-forwarded-path": "/api"}
        return str((await api.http.get("/blocks?count=3", headers=headers)).json()["link"])

    async def test() -> None:
        async with running_api() as api:
            assert await link(api) == f"https://ledger.example/api/blocks?head={'f' * 128}&count=3"
        async with running_api(client=("192.0.2.1", 1)) as api:
            assert await link(api) == f"http://node:8080/blocks?head={'f' * 128}&count=3"

    run(test())


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("abc-123", True),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", True),
        ("a" * 128, True),
        ("a" * 129, False),
        ("", False),
        ("a b", False),
        ("a\tb", False),
        ("é", False),
        ('"><script>', False),
    ],
)
def test_a_valid_request_id_is_returned(given: str, kept: bool) -> None:
    async def test() -> None:
        async with running_api() as api:
            for path in ("/", "/nothing"):
                headers = [(b"x-request-id", given.encode())]
                found = (await api.http.get(path, headers=headers)).headers["x-request-id"]
                assert (found == given) == kept
                assert len(found) == len(given) if kept else len(found) == 32

    run(test())


def test_each_request_is_one_log_line() -> None:
    async def test() -> None:
        async with running_api() as api:
            with structlog.testing.capture_logs() as logs:
                await api.http.get("/nothing?secret=1", headers={"x-request-id": "r-1"})
            (line,) = logs
            assert line.pop("ms") >= 0
            assert line == {
                "event": "request",
                "log_level": "info",
                "request_id": "r-1",
                "method": "GET",
                "path": "/nothing",
                "status": 404,
                "client": "127.0.0.1",
            }

    run(test())


def test_a_bug_is_answered_with_the_request_id_and_no_stack_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> str:
        raise RuntimeError("private detail")

    async def test() -> None:
        async with running_api() as api:
            monkeypatch.setattr("dovetail.rest_api.request.call.Call.link", fail)
            with structlog.testing.capture_logs() as logs:
                response = await api.http.get("/", headers={"x-request-id": "r-2"})
            assert error_of(response)[:2] == (500, 10)
            assert "r-2" in response.text
            assert "private" not in response.text
            assert [entry["event"] for entry in logs] == ["bug in the REST API", "request"]

    run(test())
