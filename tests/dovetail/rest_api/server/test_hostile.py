"""Hostile input on a connection: answers in the API's shape or a closed connection, never a 500 or a hang."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from urllib.parse import urlsplit

import pytest
import structlog
from hypothesis import given, settings
from structlog.typing import EventDict

from dovetail.rest_api.config import RestConfig
from protos import client_batch_pb2, client_block_pb2, client_transaction_pb2, node_pb2
from tests.dovetail.rest_api.hostile import GET, GET_CLOSE, INJECTED, POST, REFUSED, TAKEN, Asking, fragments, requests
from tests.dovetail.rest_api.raw_http import Answer, check_answer, read_answers, talk
from tests.dovetail.rest_api.serving import Served, served
from tests.dovetail.rest_api.support import Answer as Answering
from tests.dovetail.rest_api.support import ListResponse, StatusResponse, Submitted, Type, logged

_BUG = "bug in the REST API"
_LEFT = "client left before its answer"
_HEAD = "f" * 128
_BATCH = "b" * 128
_BODY_BYTES_MAX = RestConfig().limits.body_bytes_max

ANSWERS: dict[int, tuple[int, Answering]] = {
    Type.LIST_REQUEST: (Type.LIST_RESPONSE, lambda _: ListResponse(status="OK", head_id=_HEAD)),
    Type.CLIENT_BATCH_SUBMIT_REQUEST: (
        Type.CLIENT_BATCH_SUBMIT_RESPONSE,
        lambda _: Submitted(status="OK", batch_ids=[_BATCH]),
    ),
    Type.CLIENT_BATCH_STATUS_REQUEST: (Type.CLIENT_BATCH_STATUS_RESPONSE, lambda _: StatusResponse(status="OK")),
    Type.CLIENT_BLOCK_GET_BY_ID_REQUEST: (
        Type.CLIENT_BLOCK_GET_RESPONSE,
        lambda _: client_block_pb2.ClientBlockGetResponse(status="NO_RESOURCE", head_id=_HEAD),
    ),
    Type.CLIENT_BLOCK_GET_BY_NUM_REQUEST: (
        Type.CLIENT_BLOCK_GET_RESPONSE,
        lambda _: client_block_pb2.ClientBlockGetResponse(status="NO_RESOURCE", head_id=_HEAD),
    ),
    Type.CLIENT_BATCH_GET_REQUEST: (
        Type.CLIENT_BATCH_GET_RESPONSE,
        lambda _: client_batch_pb2.ClientBatchGetResponse(status="NO_RESOURCE", head_id=_HEAD),
    ),
    Type.CLIENT_TRANSACTION_GET_REQUEST: (
        Type.CLIENT_TRANSACTION_GET_RESPONSE,
        lambda _: client_transaction_pb2.ClientTransactionGetResponse(status="NO_RESOURCE", head_id=_HEAD),
    ),
    Type.NODE_STATUS_REQUEST: (
        Type.NODE_STATUS_RESPONSE,
        lambda _: node_pb2.NodeStatusResponse(
            status="OK",
            timestamp="2001-02-03T04:05:06.789Z",
            config=[node_pb2.ConfigEntry(key="limits.block_transactions_max", number=5_000)],
        ),
    ),
    Type.FAMILIES_REQUEST: (
        Type.FAMILIES_RESPONSE,
        lambda _: node_pb2.FamiliesResponse(status="OK", head_id=_HEAD, timestamp="2001-02-03T04:05:06.789Z"),
    ),
    Type.PROCESSORS_REQUEST: (Type.PROCESSORS_RESPONSE, lambda _: node_pb2.ProcessorsResponse()),
    Type.METRICS_REQUEST: (Type.METRICS_RESPONSE, lambda _: node_pb2.MetricsResponse(text=b"")),
}

WAITING = f"GET /batch_status?id={_BATCH}&wait=300 HTTP/1.1\r\nHost: node\r\n".encode()


class Server:
    """The API on a real port with a fake validator, and the event loop that runs them during each call."""

    def __init__(self, runner: asyncio.Runner, api: Served) -> None:
        self.runner, self.api = runner, api

    def talk(self, *parts: bytes, half_close: bool = False) -> tuple[bytes, list[EventDict]]:
        """Send the parts on one connection; return the received bytes and the log entries."""
        with structlog.testing.capture_logs() as logs:
            received = self.runner.run(talk(self.api.port, *parts, half_close=half_close))
        assert _BUG not in [entry["event"] for entry in logs]
        return received, logs

    def ask(self, *parts: bytes, methods: tuple[str, ...] = ()) -> list[Answer]:
        """Send the parts on one connection and return the answers, each of them checked."""
        answers = read_answers(self.talk(*parts)[0], *methods)
        for answer in answers:
            check_answer(answer)
        return answers


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with asyncio.Runner() as runner:
        running: AbstractAsyncContextManager[Served] = served()
        api = runner.run(running.__aenter__())
        api.validator.answers.update(ANSWERS)
        yield Server(runner, api)
        runner.run(running.__aexit__(None, None, None))


@settings(max_examples=250)
@given(asking=requests())
def test_every_request_has_one_valid_answer(server: Server, asking: Asking) -> None:
    answers = server.ask(asking.raw, methods=(asking.method,))
    assert len(answers) == 1


@settings(max_examples=200)
@given(pieces=fragments)
def test_any_bytes_have_valid_answers_or_none(server: Server, pieces: list[bytes]) -> None:
    """The server also closes the connection. This holds for bytes that are sent at once and for bytes in pieces."""
    sent = b"".join(pieces)
    for parts in ([sent], pieces):
        methods = ["HEAD" if b"HEAD " in sent else "GET"]
        for answer in read_answers(server.talk(*parts, half_close=True)[0], *methods):
            check_answer(answer)


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
def test_an_invalid_request_has_one_error_answer(server: Server, sent: bytes) -> None:
    (answer,) = server.ask(sent)
    assert (answer.status, answer.error["code"]) == (400, 400)
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize(("sent", "status"), TAKEN.values(), ids=TAKEN)
def test_an_unusual_but_valid_request_has_its_answer(server: Server, sent: bytes, status: int) -> None:
    (answer,) = server.ask(sent)
    assert answer.status == status


@pytest.mark.parametrize(
    "header",
    [b"X-Request-Id: %s", b"Host: %s", b"Forwarded: host=%s;path=%s", b'Forwarded: host="%s"', b"X-Forwarded-Host: %s"],
)
@pytest.mark.parametrize("value", INJECTED)
def test_nothing_is_injected_through_a_header(server: Server, header: bytes, value: bytes) -> None:
    line = header.replace(b"%s", value)
    host = b"" if line.startswith(b"Host") else b"Host: node\r\n"
    for answer in server.ask(b"GET /blocks HTTP/1.1\r\n" + host + line + b"\r\nConnection: close\r\n\r\n"):
        said = answer.body + answer.headers["x-request-id"].encode()
        assert b"Set-Cookie" not in said
        assert b"script" not in said
        assert len(said) < 5_000
        if answer.status == 200:
            assert urlsplit(json.loads(answer.body)["link"]).netloc in ("node", "x", f"127.0.0.1:{server.api.port}")


@pytest.mark.parametrize("cut", [None, 1, 7])
def test_pipelined_requests_are_answered_in_order(server: Server, cut: int | None) -> None:
    paths = ["/blocks", "/nothing", "/healthz", "/blocks/x", "/batches", "/blocks?count=0"]
    statuses = [200, 404, 200, 404, 200, 400]
    sent = b"".join(
        f"GET {path} HTTP/1.1\r\nHost: node\r\nX-Request-Id: r-{number}\r\n".encode()
        + (b"Connection: close\r\n\r\n" if number == len(paths) - 1 else b"\r\n")
        for number, path in enumerate(paths)
    )
    parts = [sent] if cut is None else [sent[start : start + cut] for start in range(0, len(sent), cut)]
    answers = server.ask(*parts)
    assert [answer.status for answer in answers] == statuses
    assert [answer.headers["x-request-id"] for answer in answers] == [f"r-{number}" for number in range(len(paths))]


@pytest.mark.parametrize("rest", [b"\r\n", b"rubbish", GET_CLOSE, b"\0" * 100_000])
@pytest.mark.parametrize("at_once", [True, False])
def test_bytes_after_the_last_request_have_no_answer(server: Server, rest: bytes, at_once: bool) -> None:
    parts = [GET_CLOSE + rest] if at_once else [GET_CLOSE, rest]
    (answer,) = server.ask(*parts)
    assert answer.status == 200


@pytest.mark.parametrize("path", ["/blocks", "/batches", "/nothing"])
def test_a_body_that_breaks_after_its_answer_has_no_second_answer(server: Server, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: node\r\nContent-Type: x/y\r\nTransfer-Encoding: chunked\r\n\r\n".encode()

    async def converse() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.api.port)
        writer.write(head)
        first = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"rubbish\r\n")
        rest = await reader.read()
        writer.transport.abort()
        return first + rest

    with structlog.testing.capture_logs() as logs:
        (answer,) = read_answers(server.runner.run(asyncio.wait_for(converse(), 30)))
    check_answer(answer)
    assert _BUG not in [entry["event"] for entry in logs]


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 99999999999\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nfffffff\r\n" + bytes(_BODY_BYTES_MAX + 1),
        b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n",
    ],
    ids=["announced", "chunked", "expected"],
)
def test_body_over_the_limit_is_refused_before_its_end(server: Server, body: bytes) -> None:
    async def converse() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.api.port)
        writer.write(POST + body)
        head = await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()
        return head

    head = server.runner.run(asyncio.wait_for(converse(), 30))
    assert head.startswith(b"HTTP/1.1 413 ")


def test_slow_body_holds_up_nobody_else(server: Server) -> None:
    async def converse() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.api.port)
        writer.write(POST + b"Connection: close\r\nContent-Length: 10\r\n\r\n")
        for _ in range(10):
            assert (await server.api.http.get("/blocks")).status_code == 200
            writer.write(b"x")
        answer = await reader.read()
        writer.close()
        return answer

    (answer,) = read_answers(server.runner.run(asyncio.wait_for(converse(), 30)))
    assert answer.status == 202


def _ends_its_wait(server: Server, leave: str, behind: bytes = b"") -> None:
    """Wait for a batch, send ``behind``, disconnect, and check that the wait ends."""

    async def converse() -> None:
        kept, answered = server.api.validator.answers, Type.CLIENT_BATCH_STATUS_REQUEST
        server.api.validator.answers = {name: answer for name, answer in kept.items() if name != answered}
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", server.api.port)
            writer.write(WAITING + b"\r\n")
            while (await server.api.validator.asked.get()).message_type != Type.CLIENT_BATCH_STATUS_REQUEST:
                pass
            writer.write(behind)
            # When this request is answered, the server has read all earlier bytes.
            assert (await server.api.http.get("/blocks")).status_code == 200
            if leave == "abort":
                writer.transport.abort()
            elif leave == "close":
                writer.close()
            else:
                writer.write_eof()
            await logged(logs, _LEFT)
            writer.transport.abort()
        finally:
            server.api.validator.answers = kept

    with structlog.testing.capture_logs() as logs:
        server.runner.run(asyncio.wait_for(converse(), 30))


@pytest.mark.parametrize("leave", ["abort", "close", "half-close"])
def test_a_client_that_disconnects_ends_its_wait(server: Server, leave: str) -> None:
    _ends_its_wait(server, leave)


@pytest.mark.parametrize("behind", [b"G", b"rubbish\r\n\r\n", GET + b"\r\n", GET * 1_000], ids=len)
@pytest.mark.parametrize("leave", ["abort", "close"])
def test_a_client_that_disconnects_after_more_requests_ends_its_wait(server: Server, leave: str, behind: bytes) -> None:
    _ends_its_wait(server, leave, behind)
