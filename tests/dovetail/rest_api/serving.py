"""The API on a real port with a fake validator, and clients that send bytes."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import NamedTuple

import httpx

from dovetail.rest_api.config import RestConfig
from dovetail.rest_api.server.app import serve
from dovetail.testing.running import ReservedPort
from protos.node_pb2 import FamiliesResponse, MetricsResponse, ProcessorsResponse
from tests.dovetail.rest_api.raw_http import Answer, read_answers
from tests.dovetail.rest_api.support import FakeValidator, ListResponse, NodeStatus, Submitted, Type, make_batch

OK = ListResponse(status=ListResponse.OK, head_id="f" * 128)


class Served(NamedTuple):
    http: httpx.AsyncClient
    validator: FakeValidator
    task: asyncio.Task[None]
    port: int
    waited_for: list[str]


@contextlib.asynccontextmanager
async def served(*, validator_first: bool = True, config: RestConfig | None = None) -> AsyncIterator[Served]:
    """The API on a real port, ready. The validator starts before the API, or when the API reports that it waits."""
    fake = FakeValidator()
    fake.start()
    fake.answer(Type.LIST_REQUEST, Type.LIST_RESPONSE, OK)
    status = NodeStatus(
        status="OK",
        timestamp="2001-02-03T04:05:06.789Z",
        config=[{"key": "limits.block_transactions_max", "number": 5000}],
    )
    fake.answer(Type.NODE_STATUS_REQUEST, Type.NODE_STATUS_RESPONSE, status)
    fake.answer(Type.METRICS_REQUEST, Type.METRICS_RESPONSE, MetricsResponse(text=b""))
    fake.answer(Type.FAMILIES_REQUEST, Type.FAMILIES_RESPONSE, FamiliesResponse(status="OK"))
    fake.answer(Type.PROCESSORS_REQUEST, Type.PROCESSORS_RESPONSE, ProcessorsResponse())
    if not validator_first:
        fake.stop()
    reserved = ReservedPort()
    port = reserved.number
    ready, waited_for = asyncio.Event(), []

    def on_waiting(what: str) -> None:
        waited_for.append(what)
        if not validator_first:
            fake.start()

    config = replace(config or RestConfig(), bind=f"127.0.0.1:{port}", validator=fake.address)
    task = asyncio.create_task(serve(config, on_ready=ready.set, on_waiting=on_waiting))
    try:
        becoming_ready = asyncio.create_task(ready.wait())
        await asyncio.wait({task, becoming_ready}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            becoming_ready.cancel()
            task.result()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            yield Served(http, fake, task, port, waited_for)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        fake.end()
        reserved.close()


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
    """Return once the server has handled the bytes that were sent before."""
    assert (await api.http.get("/healthz")).status_code == 200


async def answer_of(reader: asyncio.StreamReader) -> Answer:
    head = await reader.readuntil(b"\r\n\r\n")
    (length,) = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length")]
    (answer,) = read_answers(head + await reader.readexactly(length))
    return answer


def stuck(api: Served, path: str = "/batches") -> socket.socket:
    """A client that has sent a request and does not read the answer."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", api.port))
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: node\r\n\r\n".encode())
    client.setblocking(False)
    return client
