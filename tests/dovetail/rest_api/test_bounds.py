"""What all clients together may make the API hold, and for how long: requests that do not end, answers not taken."""

import asyncio
import socket
from collections.abc import Callable

import pytest
import structlog

from dovetail.rest_api.answers.pieces import PIECE_BYTES
from dovetail.rest_api.answers.quota import Account
from dovetail.rest_api.config import RestConfig
from dovetail.rest_api.errors import ApiError
from dovetail.rest_api.server import app, connections
from tests.dovetail.rest_api.hostile import GET, GET_CLOSE, POST
from tests.dovetail.rest_api.raw_http import Answer, read_answers, talk
from tests.dovetail.rest_api.server.test_server import Served, served
from tests.dovetail.rest_api.support import ListResponse, Submitted, Type, error_of, logged, make_batch, run

TAKEN = Submitted(status=Submitted.OK, batch_ids=["a" * 128])
LARGE = ListResponse(status="OK", head_id="f" * 128, items=[make_batch("x" * 200_000).raw for _ in range(20)])


def accept(api: Served) -> None:
    api.validator.answer(Type.CLIENT_BATCH_SUBMIT_REQUEST, Type.CLIENT_BATCH_SUBMIT_RESPONSE, TAKEN)


async def send(api: Served, *parts: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which the server has read all parts."""
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    for part in parts:
        writer.write(part)
        await seen(api)
    return reader, writer


async def seen(api: Served) -> None:
    """Return once the server has read what was sent to it before, and acted on it."""
    assert (await api.http.get("/healthz")).status_code == 200


async def answer_of(reader: asyncio.StreamReader) -> Answer:
    head = await reader.readuntil(b"\r\n\r\n")
    (length,) = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length")]
    (answer,) = read_answers(head + await reader.readexactly(length))
    return answer


async def counted(api: Served, status: int) -> bool:
    """Whether the metrics tell of one thing without a route that was answered so."""
    line = f'dovetail_rest_requests_total{{method="other",route="",status="{status}"}} 1.0'
    return line in (await api.http.get("/metrics")).text.splitlines()


def test_an_account_holds_no_more_than_its_bound_and_anything_alone() -> None:
    account = Account("bodies", 10)
    account.take(11)
    for size in (1, 11):
        with pytest.raises(ApiError, match=f"holds 11 bytes of bodies already; with {size} more .* limit of 10"):
            account.take(size)
    account.give_back(11)
    account.take(4)
    account.take(6)
    account.take(0)
    assert account.bytes_held == 10
    account.take(1, own=10)
    with pytest.raises(ApiError, match="holds 11 bytes"):
        account.take(1, own=10)


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


def test_the_time_of_a_request_begins_anew_with_each() -> None:
    """The first one's deadline ends with it, whether it was answered early or late."""

    async def test() -> None:
        async with served(config=RestConfig(request_s_max=1)) as api:
            accept(api)
            reader, writer = await send(api, POST + b"Content-Length: 2\r\n\r\n", b"x")
            writer.write(b"x")
            assert (await answer_of(reader)).status == 202
            # Both began before this one, whose end shows that their time is over.
            assert read_answers(await talk(api.port, b"GET"))[0].status == 408
            writer.write(GET_CLOSE)
            assert (await answer_of(reader)).status == 200
            writer.close()

    run(test())


@pytest.mark.parametrize("first", [b"", GET + b"\r\n"], ids=["new", "kept alive"])
def test_a_connection_without_a_request_is_closed(first: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_KEEP_ALIVE_S", 0.05)

    async def test() -> None:
        async with served() as api:
            assert len(read_answers(await talk(api.port, first))) == bool(first)

    run(test())


FRAMED: dict[str, Callable[[bytes], bytes]] = {
    "announced": lambda start: POST + b"Content-Length: 60\r\n\r\n" + start.ljust(59, b"x"),
    "chunked": lambda start: POST + b"Transfer-Encoding: chunked\r\n\r\n3b\r\n" + start.ljust(59, b"x") + b"\r\n",
}
END = {"announced": b"x", "chunked": b"1\r\nx\r\n0\r\n\r\n"}


@pytest.mark.parametrize("framing", FRAMED)
@pytest.mark.parametrize("end", ["sent", "lost"])
def test_bodies_that_are_read_at_one_time_are_bounded_together(framing: str, end: str) -> None:
    async def test() -> None:
        async with served(config=RestConfig(body_bytes_in_flight_max=100)) as api:
            accept(api)
            head = FRAMED[framing](b"x")
            first_reader, first = await send(api, head)
            reader, second = await send(api, head)
            refused = await answer_of(reader)
            assert (refused.status, refused.error["code"], refused.headers["retry-after"]) == (503, 15, "1")
            assert "limit of 100" in refused.error["message"]
            second.close()
            with structlog.testing.capture_logs() as logs:
                if end == "sent":
                    first.write(END[framing])
                    assert (await answer_of(first_reader)).status == 202
                first.transport.abort()
                await logged(logs, "request")
            (answer,) = read_answers(
                await talk(api.port, head.replace(b"Host", b"Connection: close\r\nHost") + END[framing])
            )
            assert answer.status == 202

    run(test())


def test_a_body_that_is_only_announced_holds_nobody_up_and_one_alone_may_be_over_the_bound() -> None:
    async def test() -> None:
        async with served(config=RestConfig(body_bytes_in_flight_max=100)) as api:
            accept(api)
            head = POST + b"Content-Length: 120\r\n\r\n"
            _, first = await send(api, head)
            reader, second = await send(api, head, b"x" * 60, b"x" * 60)
            assert (await answer_of(reader)).status == 202
            first.close()
            second.close()

    run(test())


def stuck(api: Served, path: str = "/batches") -> socket.socket:
    """A client that has asked and reads nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", api.port))
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: node\r\n\r\n".encode())
    client.setblocking(False)
    return client


def test_answers_that_are_being_sent_are_bounded_together() -> None:
    async def test() -> None:
        async with served(config=RestConfig(answer_bytes_in_flight_max=1_000_000)) as api:
            api.validator.answer(Type.LIST_REQUEST, Type.LIST_RESPONSE, LARGE)
            with structlog.testing.capture_logs() as logs:
                with stuck(api):
                    while (await api.validator.asked.get()).message_type != Type.LIST_REQUEST:
                        pass
                    await seen(api)
                    refused = await api.http.get("/batches")
                    assert error_of(refused)[:2] == (503, 15)
                    assert "limit of 1000000" in refused.text
                    assert refused.headers["retry-after"] == "1"
                    # What is not read from the ledger goes out, and what was accepted is told so.
                    assert (await api.http.head("/batches")).status_code == 200
                    assert (await api.http.get("/openapi.json")).status_code == 200
                    many = Submitted(status=Submitted.OK, batch_ids=[f"{number:0128x}" for number in range(600)])
                    api.validator.answer(Type.CLIENT_BATCH_SUBMIT_REQUEST, Type.CLIENT_BATCH_SUBMIT_RESPONSE, many)
                    headers = {"content-type": "application/octet-stream"}
                    accepted = await api.http.post("/batches", content=b"x", headers=headers)
                    assert (accepted.status_code, len(accepted.content) > PIECE_BYTES) == (202, True)
                    logs.clear()
                await logged(logs, "request")
            assert len((await api.http.get("/batches")).json()["data"]) == 20

    run(test())


def test_an_answer_has_one_deadline_however_often_its_client_reads_a_little(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[asyncio.TimerHandle | None] = []

    class Spied(connections.Protocol):
        def pause_writing(self) -> None:
            super().pause_writing()
            ends.append(self._answer_end)

    monkeypatch.setattr(app, "Protocol", Spied)

    async def test() -> None:
        async with served() as api:
            page = ListResponse(status="OK", head_id="f" * 128, items=[*LARGE.items, *LARGE.items])
            api.validator.answer(Type.LIST_REQUEST, Type.LIST_RESPONSE, page)
            with stuck(api) as client:
                reader, writer = await asyncio.open_connection(sock=client, limit=65_536)
                head = await reader.readuntil(b"\r\n\r\n")
                left = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
                while left:
                    left -= len(await reader.read(min(left, 65_536)))
                assert len(ends) > 1
                assert ends[0] is not None
                assert set(ends) == {ends[0]}
                # Read whole, its connection is in good order.
                writer.write(GET_CLOSE.replace(b"/blocks", b"/healthz"))
                assert (await answer_of(reader)).status == 200
                assert ends[0].cancelled()
                writer.close()

    run(test())
