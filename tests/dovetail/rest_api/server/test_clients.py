"""Clients on real sockets that leave, do not read, send without end, or are too many: none of them costs the others."""

import asyncio
import json
import socket

import httpx
import pytest
import structlog

from dovetail.ledger.limits import Limits
from dovetail.rest_api.config import RestConfig
from dovetail.rest_api.errors import ApiError, Problem
from dovetail.rest_api.metrics import Metrics
from dovetail.rest_api.server import app, connections
from protos import client_batch_submit_pb2, node_pb2
from tests.dovetail.rest_api.server.test_server import Served, served
from tests.dovetail.rest_api.support import (
    Asked,
    ListResponse,
    StatusResponse,
    Submitted,
    Type,
    error_of,
    logged,
    make_batch,
    one_turn,
    run,
    running_api,
)

ID = "a" * 128
ONE = make_batch("one")


async def send(api: Served, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(request)
    return reader, writer


async def asked_as(api: Served, message_type: int) -> Asked:
    """The next message of this type that reaches the validator."""
    while True:
        asked = await api.validator.asked.get()
        if asked.message_type == message_type:
            return asked


def taken_back(asked: Asked) -> str:
    return node_pb2.StatusWaitCancel.FromString(asked.content).correlation_id


WAITS = [
    f"GET /batch_status?id={ID}&wait=300 HTTP/1.1\r\nHost: node\r\n\r\n".encode(),
    b"POST /batch_status?wait HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\n"
    + f'Content-Length: 132\r\n\r\n["{ID}"]'.encode(),
    b"POST /batches?wait=300 HTTP/1.1\r\nHost: node\r\nContent-Type: application/octet-stream\r\n"
    b"Content-Length: 4\r\n\r\nbody",
]


@pytest.mark.parametrize("request_bytes", WAITS)
def test_a_client_that_leaves_frees_the_validator_of_its_wait(request_bytes: bytes) -> None:
    async def test() -> None:
        async with served() as api:
            submitted = Submitted(status=Submitted.OK, batch_ids=[ID])
            api.validator.answer(Type.CLIENT_BATCH_SUBMIT_REQUEST, Type.CLIENT_BATCH_SUBMIT_RESPONSE, submitted)
            _, writer = await send(api, request_bytes)
            asked = await asked_as(api, Type.CLIENT_BATCH_STATUS_REQUEST)
            writer.close()
            assert taken_back(await asked_as(api, Type.STATUS_WAIT_CANCEL)) == asked.correlation_id

    run(test())


def test_a_wait_that_is_answered_is_not_taken_back() -> None:
    async def test() -> None:
        async with served() as api:
            answer = StatusResponse(status=StatusResponse.OK)
            api.validator.answer(Type.CLIENT_BATCH_STATUS_REQUEST, Type.CLIENT_BATCH_STATUS_RESPONSE, answer)
            assert (await api.http.get(f"/batch_status?id={ID}&wait=9")).status_code == 200
            assert (await api.http.get("/blocks")).status_code == 200
            types = [api.validator.asked.get_nowait().message_type for _ in range(api.validator.asked.qsize())]
            assert types == [Type.CLIENT_BATCH_STATUS_REQUEST, Type.LIST_REQUEST]

    run(test())


@pytest.mark.parametrize("is_wait", [True, False])
def test_when_the_apis_own_time_is_over_a_wait_is_taken_back(is_wait: bool) -> None:
    async def test() -> None:
        async with running_api() as api:
            with pytest.raises(ApiError) as raised:
                await api.connection.request(
                    Type.CLIENT_BATCH_STATUS_REQUEST,
                    b"",
                    Type.CLIENT_BATCH_STATUS_RESPONSE,
                    client_batch_submit_pb2.ClientBatchStatusResponse,
                    request_id="r",
                    timeout_s=0.001,
                    is_wait=is_wait,
                )
            assert raised.value.problem == Problem.TIMED_OUT
            api.validator.answer(Type.LIST_REQUEST, Type.LIST_RESPONSE, ListResponse(status="OK", head_id="f" * 128))
            await api.http.get("/blocks")
            await api.validator.asked.get()
            then = await api.validator.asked.get()
            if is_wait:
                assert (then.message_type, taken_back(then)) == (Type.STATUS_WAIT_CANCEL, "r.1")
            else:
                assert then.message_type == Type.LIST_REQUEST

    run(test())


def test_a_wait_whose_client_leaves_after_the_validator_harms_nobody() -> None:
    async def test() -> None:
        async with served() as api:
            _, writer = await send(api, WAITS[0])
            await asked_as(api, Type.CLIENT_BATCH_STATUS_REQUEST)
            with structlog.testing.capture_logs() as logs:
                api.validator.stop()
                writer.close()
                await logged(logs, "request")
            api.validator.start()
            while (await api.http.get("/blocks")).status_code != 200:
                await one_turn()

    run(test())


ENDLESS = [
    b"Transfer-Encoding: chunked\r\n\r\n" + b"3e8\r\n" + b"x" * 1000 + b"\r\n",
    b"Content-Length: 1000000000\r\n\r\n",
]


async def send_on(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
        await writer.drain()
        await one_turn()


@pytest.mark.parametrize("body", ENDLESS)
def test_a_body_without_end_is_answered_at_the_limit_and_its_connection_ends(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_LINGER_S", 0.05)

    async def test() -> None:
        async with served(config=RestConfig(limits=Limits(body_bytes_max=999))) as api:
            head = b"POST /batches HTTP/1.1\r\nHost: node\r\nContent-Type: application/octet-stream\r\n"
            reader, writer = await send(api, head + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 413 ")
            # The body goes on, and nobody answers or keeps it.
            with pytest.raises(ConnectionError):
                await send_on(writer)
            writer.close()
            assert (await api.http.get("/blocks")).status_code == 200

    run(test())


def test_a_client_that_waits_to_be_told_to_continue_is_told_413_instead() -> None:
    async def test() -> None:
        async with served() as api:
            request = (
                b"POST /batches HTTP/1.1\r\nHost: node\r\nContent-Type: application/octet-stream\r\n"
                b"Expect: 100-continue\r\nContent-Length: 100000000\r\n\r\n"
            )
            reader, writer = await send(api, request)
            assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
            writer.close()

    run(test())


def test_a_client_that_does_not_read_is_let_go() -> None:
    async def test() -> None:
        async with served(config=RestConfig(answer_s_max=1)) as api:
            large = ListResponse(
                status=ListResponse.OK, head_id=ID, items=[make_batch("x" * 200_000).raw for _ in range(20)]
            )
            api.validator.answer(Type.LIST_REQUEST, Type.LIST_RESPONSE, large)
            with socket.socket() as client, structlog.testing.capture_logs() as logs:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.connect(("127.0.0.1", api.port))
                client.sendall(b"GET /batches HTTP/1.1\r\nHost: node\r\n\r\n")
                await logged(logs, "request")
                received = sum(map(len, iter(lambda: client.recv(65_536), b"")))
            # One that reads gets all of it.
            whole = await api.http.get("/batches")
            assert len(whole.json()["data"]) == 20
            assert received < len(whole.content)

    run(test())


def test_connections_over_the_limit_of_open_files_are_refused_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    listeners: list[connections.Listener] = []

    def listen(bind: str, metrics: Metrics) -> connections.Listener:
        listeners.append(connections.listen(bind, metrics))
        return listeners[-1]

    monkeypatch.setattr(app, "listen", listen)

    async def test() -> None:
        async with served() as api:
            (listener,) = listeners
            first = await api.http.get("/healthz")
            assert first.status_code == 200
            listener.descriptor_max = 0
            with structlog.testing.capture_logs() as logs:
                for _ in range(3):
                    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
                    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
                    assert head.startswith(b"HTTP/1.1 503 ")
                    assert b"retry-after: 1" in head
                    assert json.loads(body)["error"]["code"] == 15
                    writer.close()
                # The one that was there before is served.
                assert (await api.http.get("/healthz")).status_code == 200
            assert sum(entry["event"].startswith("connections refused") for entry in logs) == 1
            listener.descriptor_max = None
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{api.port}") as another:
                assert (await another.get("/healthz")).status_code == 200

    run(test())


def test_a_full_queue_says_when_to_come_again() -> None:
    async def test() -> None:
        async with served() as api:
            full = Submitted(status=Submitted.QUEUE_FULL, message="20000 batches are pending")
            api.validator.answer(Type.CLIENT_BATCH_SUBMIT_REQUEST, Type.CLIENT_BATCH_SUBMIT_RESPONSE, full)
            response = await api.http.post(
                "/batches", content=ONE.raw, headers={"content-type": "application/octet-stream"}
            )
            assert error_of(response)[:2] == (429, 31)
            assert response.headers["retry-after"] == "1"

    run(test())
