"""How connections are accepted, refused, kept and ended, and how these events are counted."""

import asyncio
import json
import re
import socket
from asyncio import selector_events
from typing import Any

import httpx
import pytest
import structlog

from dovetail.ledger.limits import Limits
from dovetail.rest_api.config import RestConfig
from dovetail.rest_api.errors import Problem
from dovetail.rest_api.metrics import Metrics
from dovetail.rest_api.server import app, connections
from dovetail.rest_api.server.connections import listen
from dovetail.rest_api.upstream.validator import ValidatorConnection
from tests.dovetail.rest_api.hostile import GET, GET_CLOSE, POST
from tests.dovetail.rest_api.raw_http import DEADLINE_S, read_answers, talk
from tests.dovetail.rest_api.serving import LARGE, Served, accept, answer_of, seen, send, served, stuck
from tests.dovetail.rest_api.support import ListResponse, Type, logged, make_batch, one_turn, run


async def counted(api: Served, status: int) -> bool:
    """Whether the metrics count one answer with this status and without a route."""
    line = f'dovetail_rest_requests_total{{method="other",route="",status="{status}"}} 1.0'
    return line in (await api.http.get("/metrics")).text.splitlines()


async def request_counts(api: Served) -> dict[tuple[str, str], int]:
    """The counts of requests by route and status."""
    text = (await api.http.get("/metrics")).text
    found = re.findall(r'^dovetail_rest_requests_total\{method="\w+",route="(.*?)",status="(\d+)"\} (\d+)', text, re.M)
    return {(route, status): int(count) for route, status, count in found}


@pytest.mark.parametrize(
    "parts",
    [
        [b"G"],
        [b"GET /blocks HTTP/1.1\r\nHost: ", b"no"],
        [POST + b"Content-Length: 4\r\n\r\nbod"],
        [POST, b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"],
        [GET + b"\r\n", GET],
    ],
    ids=["byte", "head", "body", "chunks", "second request"],
)
def test_a_request_that_does_not_end_is_told_so_and_its_connection_ends(parts: list[bytes]) -> None:
    async def test() -> None:
        async with served(config=RestConfig(request_s_max=1)) as api:
            *_, answer = read_answers(await talk(api.port, *parts))
            assert (answer.status, answer.error["code"]) == (408, 408)
            assert "within 1 seconds" in answer.error["message"]
            assert answer.headers["connection"] == "close"
            assert await counted(api, 408)

    run(test())


def test_each_request_has_a_time_limit_of_its_own() -> None:
    """The time limit of the first request does not apply to the next."""

    async def test() -> None:
        async with served(config=RestConfig(request_s_max=1)) as api:
            accept(api)
            reader, writer = await send(api, POST + b"Content-Length: 2\r\n\r\n", b"x")
            writer.write(b"x")
            assert (await answer_of(reader)).status == 202
            # This request started last, so after its timeout the time limits of earlier requests are over too.
            assert read_answers(await talk(api.port, b"GET"))[0].status == 408
            writer.write(GET_CLOSE)
            assert (await answer_of(reader)).status == 200
            writer.close()

    run(test())


@pytest.mark.parametrize("first", [b"", GET + b"\r\n"], ids=["new", "kept alive"])
def test_a_connection_without_a_request_is_closed(first: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "KEEP_ALIVE_S", 0.05)

    async def test() -> None:
        async with served() as api:
            assert len(read_answers(await talk(api.port, first))) == bool(first)

    run(test())


EARLY = b"POST /batches HTTP/1.1\r\nHost: node\r\nContent-Type: x/y\r\nContent-Length: 6\r\n\r\nabc"


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        (EARLY, b"def", 400),
        (EARLY, b"def" + GET, 400),
        (GET + b"\r\n" + POST + b"Content-Length: 2\r\n\r\nx", b"", 200),
    ],
    ids=["early answer", "early answer and half a head", "pipelined body"],
)
def test_a_connection_stays_open_after_an_early_answer(
    first: bytes, second: bytes, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LINGER_S", 0.5)

    async def test() -> None:
        async with served() as api:
            accept(api)
            reader, writer = await send(api, first)
            assert (await answer_of(reader)).status == status
            writer.write(second)
            await seen(api)
            # This connection is closed later than the first connection would have been.
            assert read_answers(await talk(api.port, EARLY))[0].status == 400
            writer.write(b"x" if status == 200 else b"\r\n" if second != b"def" else GET_CLOSE)
            assert (await answer_of(reader)).status == (202 if status == 200 else 200)
            writer.close()

    run(test())


CLOSING = [POST + b"Connection: close\r\n", POST.replace(b"HTTP/1.1", b"HTTP/1.0")]


@pytest.mark.parametrize("head", CLOSING, ids=["close", "1.0"])
def test_an_early_answer_arrives_although_its_connection_ends(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer comes before the end of the body, but the client reads it only after sending the whole body."""
    monkeypatch.setattr(connections, "LINGER_S", DEADLINE_S)

    async def test() -> None:
        async with served() as api:
            reader, writer = await send(api, head + b"Content-Length: 20000000\r\n\r\n")
            for _ in range(20):
                writer.write(b"x" * 1_000_000)
                await writer.drain()
            (answer,) = read_answers(await reader.read())
            assert (answer.status, answer.error["code"]) == (413, 36)
            writer.close()

    run(test())


def test_a_client_that_sends_after_the_end_of_its_connection_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LINGER_S", 0.05)

    async def test() -> None:
        async with served() as api:
            reader, writer = await send(api, CLOSING[0] + b"Content-Length: 20000000\r\n\r\n")
            assert read_answers(await reader.read())[0].status == 413
            while not writer.transport.is_closing():
                writer.write(b"x")
                await one_turn()

    run(test())


def test_after_an_early_answer_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the rest of the body arrives, uvicorn's keep-alive timeout stays in effect."""
    monkeypatch.setattr(app, "KEEP_ALIVE_S", 0.2)

    async def test() -> None:
        async with served() as api:
            reader, writer = await send(api, EARLY)
            assert (await answer_of(reader)).status == 400
            writer.write(b"def")
            assert await reader.read() == b""
            writer.close()

    run(test())


def test_invalid_requests_and_refused_connections_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    listeners: list[connections.Listener] = []

    def listen(bind: str, metrics: Metrics) -> connections.Listener:
        listeners.append(connections.listen(bind, metrics))
        return listeners[0]

    monkeypatch.setattr(app, "listen", listen)

    async def test() -> None:
        async with served() as api:
            assert read_answers(await talk(api.port, b"rubbish\r\n\r\n"))[0].status == 400
            assert await counted(api, 400)
            listeners[0].descriptor_max = 0
            refused = json.loads((await talk(api.port)).partition(b"\r\n\r\n")[2])
            assert refused["error"]["code"] == Problem.NOT_READY.code
            assert await counted(api, 503)

    run(test())


def test_a_body_with_two_framings_is_refused() -> None:
    async def test() -> None:
        async with served() as api:
            accept(api)
            both = POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
            for sent in (both, both.replace(b"POST /batches", b"GET /blocks")):
                with structlog.testing.capture_logs() as logs:
                    (answer,) = read_answers(await talk(api.port, sent + GET_CLOSE))
                    assert (answer.status, answer.headers["connection"]) == (400, "close")
                    assert "Transfer-Encoding" in answer.error["message"]
                    await seen(api)
                assert [entry.get("path", entry["status"]) for entry in logs] == [400, "/healthz"]
            assert api.validator.asked.empty()
            assert await request_counts(api) == {("", "400"): 2, ("/healthz", "200"): 2}

    run(test())


def test_a_request_that_is_refused_while_its_handler_runs_is_logged_and_counted_once() -> None:
    """The answer of the handler is neither counted nor logged."""

    async def test() -> None:
        async with served(config=RestConfig(request_s_max=1)) as api:
            api.validator.answer(Type.LIST_REQUEST, Type.LIST_RESPONSE, None)
            with structlog.testing.capture_logs() as logs:
                for unfinished in (GET + b"Content-Length: 1\r\n\r\n", POST + b"Content-Length: 2\r\n\r\nx"):
                    assert read_answers(await talk(api.port, unfinished))[0].status == 408
                asked = await api.validator.asked.get()
                api.validator.send(asked, Type.LIST_RESPONSE, LARGE.SerializeToString())
                while "dovetail_rest_requests_in_flight 1.0" not in (await api.http.get("/metrics")).text:
                    pass
            assert [entry for entry in logs if entry.get("path") != "/metrics"] == [
                {**entry, "event": "request", "status": 408} for entry in logs if "reason" in entry
            ]
            counts = await request_counts(api)
            assert counts.pop(("/metrics", "200"))
            assert counts == {("", "408"): 2}

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
    monkeypatch.setattr(connections, "LINGER_S", 0.05)

    async def test() -> None:
        async with served(config=RestConfig(limits=Limits(body_bytes_max=999))) as api:
            head = b"POST /batches HTTP/1.1\r\nHost: node\r\nContent-Type: application/octet-stream\r\n"
            reader, writer = await send(api, head + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 413 ")
            # The rest of the body is neither answered nor kept.
            with pytest.raises(ConnectionError):
                await send_on(writer)
            writer.close()
            assert (await api.http.get("/blocks")).status_code == 200

    run(test())


def test_a_client_that_expects_100_continue_gets_413_instead() -> None:
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
                status=ListResponse.OK, head_id="f" * 128, items=[make_batch("x" * 200_000).raw for _ in range(20)]
            )
            api.validator.answer(Type.LIST_REQUEST, Type.LIST_RESPONSE, large)
            with socket.socket() as client, structlog.testing.capture_logs() as logs:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.connect(("127.0.0.1", api.port))
                client.sendall(b"GET /batches HTTP/1.1\r\nHost: node\r\n\r\n")
                await logged(logs, "request")
                received = sum(map(len, iter(lambda: client.recv(65_536), b"")))
            # A client that reads gets the whole answer.
            whole = await api.http.get("/batches")
            assert len(whole.json()["data"]) == 20
            assert received < len(whole.content)

    run(test())


def test_connections_over_the_limit_of_open_files_are_refused_and_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
                # The first connection is still served.
                assert (await api.http.get("/healthz")).status_code == 200
            assert sum(entry["event"].startswith("connections refused") for entry in logs) == 1
            listener.descriptor_max = None
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{api.port}") as another:
                assert (await another.get("/healthz")).status_code == 200

    run(test())


ANSWER_S = 299
"""No other timer of the server has this delay."""


def test_an_answer_has_one_deadline_however_slowly_its_client_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = 0

    class Counted(connections.Protocol):
        def pause_writing(self) -> None:
            nonlocal pauses
            pauses += 1
            super().pause_writing()

    monkeypatch.setattr(app, "Protocol", Counted)

    async def test() -> None:
        loop = asyncio.get_running_loop()
        call_later, timers = loop.call_later, list[asyncio.TimerHandle]()

        def counted_later(delay: float, *arguments: Any) -> asyncio.TimerHandle:
            timer = call_later(delay, *arguments)
            if delay == ANSWER_S:
                timers.append(timer)
            return timer

        monkeypatch.setattr(loop, "call_later", counted_later)
        async with served(config=RestConfig(answer_s_max=ANSWER_S)) as api:
            page = ListResponse(status="OK", head_id="f" * 128, items=[*LARGE.items, *LARGE.items])
            api.validator.answer(Type.LIST_REQUEST, Type.LIST_RESPONSE, page)
            with stuck(api) as client:
                reader, writer = await asyncio.open_connection(sock=client, limit=65_536)
                head = await reader.readuntil(b"\r\n\r\n")
                left = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
                while left:
                    left -= len(await reader.read(min(left, 65_536)))
                assert pauses > 1
                (timer,) = timers
                # After the whole answer has been read, the connection is usable.
                writer.write(GET_CLOSE.replace(b"/blocks", b"/healthz"))
                assert (await answer_of(reader)).status == 200
                assert timer.cancelled()
                writer.close()

    run(test())


def test_connections_send_without_delay() -> None:
    """asyncio sets TCP_NODELAY, which saves 40 ms per answer, only if the socket names its protocol."""
    with listen("127.0.0.1:0", Metrics(ValidatorConnection(RestConfig()))) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_head_and_body_of_an_answer_are_sent_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two packets would wake the client twice."""
    sent: list[bytes] = []
    transports = selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
    write = transports.write

    def counted(transport: asyncio.Transport, data: bytes) -> None:
        if data and not data.startswith((b"GET", b"HEAD")):
            sent.append(data)
        write(transport, data)

    async def test() -> None:
        async with served() as api:
            assert (await api.http.get("/blocks")).status_code == 200
            (answer,) = sent
            assert answer.startswith(b"HTTP/1.1 200")
            assert answer.endswith(b"}")
            assert (await api.http.head("/blocks")).status_code == 200
            assert len(sent) == 2

    monkeypatch.setattr(transports, "write", counted)
    run(test())
