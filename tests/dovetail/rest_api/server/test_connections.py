"""How connections end or go on where a request was answered, or refused, before it was in; and that it is counted."""

import json
import re

import pytest
import structlog

from dovetail.rest_api.config import RestConfig
from dovetail.rest_api.errors import Problem
from dovetail.rest_api.metrics import Metrics
from dovetail.rest_api.server import app, connections
from tests.dovetail.rest_api.hostile import GET, GET_CLOSE, POST
from tests.dovetail.rest_api.raw_http import DEADLINE_S, read_answers, talk
from tests.dovetail.rest_api.server.test_server import Served, served
from tests.dovetail.rest_api.support import Type, one_turn, run
from tests.dovetail.rest_api.test_bounds import LARGE, accept, answer_of, counted, seen, send


async def told(api: Served) -> dict[tuple[str, str], int]:
    """How often the metrics tell of which route and status."""
    text = (await api.http.get("/metrics")).text
    found = re.findall(r'^dovetail_rest_requests_total\{method="\w+",route="(.*?)",status="(\d+)"\} (\d+)', text, re.M)
    return {(route, status): int(count) for route, status, count in found}


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
def test_a_connection_in_good_order_goes_on(
    first: bytes, second: bytes, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_LINGER_S", 0.5)

    async def test() -> None:
        async with served() as api:
            accept(api)
            reader, writer = await send(api, first)
            assert (await answer_of(reader)).status == status
            writer.write(second)
            await seen(api)
            # Another one whose body does not come is cut, later than the first would have been.
            assert read_answers(await talk(api.port, EARLY))[0].status == 400
            writer.write(b"x" if status == 200 else b"\r\n" if second != b"def" else GET_CLOSE)
            assert (await answer_of(reader)).status == (202 if status == 200 else 200)
            writer.close()

    run(test())


CLOSING = [POST + b"Connection: close\r\n", POST.replace(b"HTTP/1.1", b"HTTP/1.0")]


@pytest.mark.parametrize("head", CLOSING, ids=["close", "1.0"])
def test_an_early_answer_on_a_connection_that_ends_with_it_arrives(
    head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client sends all of its body before it reads."""
    monkeypatch.setattr(connections, "_LINGER_S", DEADLINE_S)

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


def test_a_client_that_goes_on_after_its_connection_s_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_LINGER_S", 0.05)

    async def test() -> None:
        async with served() as api:
            reader, writer = await send(api, CLOSING[0] + b"Content-Length: 20000000\r\n\r\n")
            assert read_answers(await reader.read())[0].status == 413
            while not writer.transport.is_closing():
                writer.write(b"x")
                await one_turn()

    run(test())


def test_after_an_early_answer_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the body ends uvicorn's own keep-alive time."""
    monkeypatch.setattr(app, "_KEEP_ALIVE_S", 0.2)

    async def test() -> None:
        async with served() as api:
            reader, writer = await send(api, EARLY)
            assert (await answer_of(reader)).status == 400
            writer.write(b"def")
            assert await reader.read() == b""
            writer.close()

    run(test())


def test_what_is_no_request_and_who_is_refused_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_two_framings_of_one_body_hand_in_nothing() -> None:
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
            assert await told(api) == {("", "400"): 2, ("/healthz", "200"): 2}

    run(test())


def test_who_is_refused_while_its_handler_runs_is_told_of_once() -> None:
    """The handler comes to its end for nobody: its answer is no figure and no line."""

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
            figures = await told(api)
            assert figures.pop(("/metrics", "200"))
            assert figures == {("", "408"): 2}

    run(test())
