"""Reading bodies, waiting for the validator, and clients that disconnect meanwhile."""

import asyncio
from collections.abc import Callable

import pytest
import structlog

from dovetail.rest_api.config import RestConfig
from protos import node_pb2
from tests.dovetail.rest_api.hostile import POST
from tests.dovetail.rest_api.raw_http import read_answers, talk
from tests.dovetail.rest_api.serving import Served, accept, answer_of, send, served
from tests.dovetail.rest_api.support import (
    Asked,
    Status,
    StatusRequest,
    StatusResponse,
    Submitted,
    Type,
    logged,
    one_turn,
    run,
    running_api,
)

ID = "a" * 128


async def asked_as(api: Served, message_type: int) -> Asked:
    """The next message of this type that reaches the validator."""
    while True:
        asked = await api.validator.asked.get()
        if asked.message_type == message_type:
            return asked


def cancelled_wait(asked: Asked) -> str:
    return node_pb2.StatusWaitCancel.FromString(asked.content).correlation_id


WAITS = [
    f"GET /batch_status?id={ID}&wait=300 HTTP/1.1\r\nHost: node\r\n\r\n".encode(),
    b"POST /batch_status?wait HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\n"
    + f'Content-Length: 132\r\n\r\n["{ID}"]'.encode(),
    b"POST /batches?wait=300 HTTP/1.1\r\nHost: node\r\nContent-Type: application/octet-stream\r\n"
    b"Content-Length: 4\r\n\r\nbody",
]


@pytest.mark.parametrize("request_bytes", WAITS)
def test_a_client_that_disconnects_cancels_the_wait_at_the_validator(request_bytes: bytes) -> None:
    async def test() -> None:
        async with served() as api:
            submitted = Submitted(status=Submitted.OK, batch_ids=[ID])
            api.validator.answer(Type.CLIENT_BATCH_SUBMIT_REQUEST, Type.CLIENT_BATCH_SUBMIT_RESPONSE, submitted)
            _, writer = await send(api, request_bytes)
            asked = await asked_as(api, Type.CLIENT_BATCH_STATUS_REQUEST)
            writer.close()
            assert cancelled_wait(await asked_as(api, Type.STATUS_WAIT_CANCEL)) == asked.correlation_id

    run(test())


def test_an_answered_wait_is_not_cancelled() -> None:
    async def test() -> None:
        async with served() as api:
            answer = StatusResponse(status=StatusResponse.OK)
            api.validator.answer(Type.CLIENT_BATCH_STATUS_REQUEST, Type.CLIENT_BATCH_STATUS_RESPONSE, answer)
            assert (await api.http.get(f"/batch_status?id={ID}&wait=9")).status_code == 200
            assert (await api.http.get("/blocks")).status_code == 200
            types = [api.validator.asked.get_nowait().message_type for _ in range(api.validator.asked.qsize())]
            assert types == [Type.CLIENT_BATCH_STATUS_REQUEST, Type.LIST_REQUEST]

    run(test())


def test_a_client_may_disconnect_after_the_validator() -> None:
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


def test_an_announced_body_takes_no_quota_and_a_single_body_may_exceed_it() -> None:
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


def test_a_client_that_disconnects_during_its_wait_gets_no_answer() -> None:
    async def test() -> None:
        async with running_api() as api:
            left = asyncio.Event()
            sent: list[object] = []
            requests = iter([{"type": "http.request", "body": b"", "more_body": False}])

            async def receive() -> dict[str, object]:
                for request in requests:
                    return request
                await left.wait()
                return {"type": "http.disconnect"}

            async def send(message: object) -> None:
                sent.append(message)

            scope = {
                "type": "http",
                "method": "GET",
                "scheme": "http",
                "path": "/batch_status",
                "raw_path": b"/batch_status",
                "query_string": f"id={ID}&wait=60".encode(),
                "headers": [],
                "server": ("node", 8080),
                "client": ("127.0.0.1", 1),
            }
            waiting = asyncio.ensure_future(api.app(scope, receive, send))
            asked = await api.validator.asked.get()
            assert (asked.message_type, api.connection.in_flight) == (Type.CLIENT_BATCH_STATUS_REQUEST, 1)
            left.set()
            await waiting
            assert (api.connection.in_flight, sent) == (0, [])
            # A late answer has no effect.
            api.validator.send(asked, Type.CLIENT_BATCH_STATUS_RESPONSE)
            content = StatusResponse(status="OK", batch_statuses=[Status(batch_id=ID, status="COMMITTED")])
            api.validator.answer(Type.CLIENT_BATCH_STATUS_REQUEST, Type.CLIENT_BATCH_STATUS_RESPONSE, content)
            assert (await api.http.get(f"/batch_status?id={ID}")).json()["data"] == {ID: "COMMITTED"}

    run(test())


@pytest.mark.parametrize(("timeout_s", "default_wait_s"), [(1, 1), (2, 1), (20, 19), (300, 285)])
def test_a_wait_without_a_number_is_just_under_the_apis_own_timeout(timeout_s: int, default_wait_s: int) -> None:
    async def test() -> None:
        async with running_api(config=RestConfig(timeout_s=timeout_s)) as api:
            waiting = asyncio.create_task(api.http.get(f"/batch_status?id={'a' * 128}&wait"))
            asked = await api.validator.asked.get()
            question = StatusRequest.FromString(asked.content)
            assert (question.wait, question.timeout) == (True, default_wait_s)
            answer = StatusResponse(status="OK").SerializeToString()
            api.validator.send(asked, Type.CLIENT_BATCH_STATUS_RESPONSE, answer)
            assert (await waiting).status_code == 200

    run(test())
