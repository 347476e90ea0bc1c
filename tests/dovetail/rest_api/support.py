"""A fake validator on a real ROUTER socket, and the API in front of it, both in the event loop of the test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any, NamedTuple

import httpx
import zmq
from google.protobuf.message import Message
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import ASGIApp
from structlog.typing import EventDict

from dovetail.ledger.block import BlockHeader, SealedBlock, encode_block, seal
from dovetail.ledger.building import SignedBatch, build_batch, build_transaction
from dovetail.ledger.ids import BatchId, BlockId, StateRoot
from dovetail.ledger.signing import Signer
from dovetail.rest_api.config import RestConfig
from dovetail.rest_api.server.app import create_app
from dovetail.rest_api.upstream.validator import ValidatorConnection
from dovetail.testing.running import ReservedPort
from protos import client_batch_submit_pb2, node_pb2, query_pb2, validator_pb2
from tests.conformance.schema_check import check

Type = validator_pb2.Message.MessageType
Submitted = client_batch_submit_pb2.ClientBatchSubmitResponse
Status = client_batch_submit_pb2.ClientBatchStatus
StatusRequest = client_batch_submit_pb2.ClientBatchStatusRequest
StatusResponse = client_batch_submit_pb2.ClientBatchStatusResponse
ListRequest = query_pb2.ListRequest
ListResponse = query_pb2.ListResponse
NodeStatus = node_pb2.NodeStatusResponse

SIGNER = Signer("11" * 32)
TEST_SECONDS_MAX = 60

Answer = Callable[[bytes], Message | bytes | None]


def make_batch(*names: str) -> SignedBatch:
    """A signed batch with one transaction for each name; equal names give equal batches."""
    transactions = [
        build_transaction(
            SIGNER,
            batcher_pubkey=SIGNER.public_key,
            family_name="intkey",
            family_version="1.0",
            inputs=["1cf126"],
            outputs=["1cf126"],
            payload=name.encode(),
            payload_encoding="application/cbor",
            nonce=name,
        )
        for name in names
    ]
    return build_batch(SIGNER, transactions)


def make_block(number: int, *batches: SignedBatch) -> tuple[SealedBlock, bytes]:
    """A sealed block and its serialized form."""
    header = BlockHeader(
        block_num=number,
        previous_block_id=BlockId("0" * 16),
        signer_pubkey=SIGNER.public_key,
        batch_ids=tuple(BatchId(batch.id) for batch in batches),
        consensus=b"solo",
        state_root_hash=StateRoot("ab" * 32),
    )
    block = seal(SIGNER, header, [batch.raw for batch in batches])
    return block, encode_block(block.id, block.header_bytes, block.batches)


class Asked(NamedTuple):
    """One request that reached the fake validator: its sender and the fields of its envelope."""

    peer: bytes
    message_type: int
    correlation_id: str
    content: bytes


class FakeValidator:
    """Answers each type of request by its entry in ``answers``.

    A request gets no answer if the entry is None or missing.
    """

    def __init__(self, answers: dict[int, tuple[int, Answer]] | None = None) -> None:
        self.answers = answers or {}
        self.asked: asyncio.Queue[Asked] = asyncio.Queue()
        # The port stays reserved while the fake validator is stopped.
        self._port = ReservedPort()
        self.address = f"tcp://127.0.0.1:{self._port.number}"
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes]

    def start(self) -> None:
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(self.address)
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._drain)

    def stop(self) -> None:
        """Close every connection. ``start`` listens at the same address again."""
        if self._socket.closed:
            return
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        # ZeroMQ frees the address in its own thread and reports this event afterwards.
        monitor = self._socket.get_monitor_socket(zmq.EVENT_CLOSED)
        self._socket.unbind(self.address)
        monitor.recv_multipart()
        self._socket.disable_monitor()
        monitor.close(0)
        self._socket.close(0)

    def end(self) -> None:
        self.stop()
        self._context.term()
        self._port.close()

    def answer(self, asked: int, answered: int, content: Message | bytes | None) -> None:
        """Answer further requests of type ``asked`` with this content."""
        self.answers[asked] = (answered, lambda _: content)

    def send(self, to: Asked, message_type: int, content: bytes = b"", correlation_id: str | None = None) -> None:
        message = validator_pb2.Message(
            message_type=message_type,  # type: ignore[arg-type]
            correlation_id=to.correlation_id if correlation_id is None else correlation_id,
            content=content,
        )
        self.send_raw(to, message.SerializeToString())

    def send_raw(self, to: Asked, frame: bytes) -> None:
        self._socket.send_multipart([to.peer, frame], zmq.NOBLOCK)
        self._drain()

    def _drain(self) -> None:
        while True:
            try:
                peer, frame = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            message = validator_pb2.Message.FromString(frame)
            asked = Asked(peer, message.message_type, message.correlation_id, message.content)
            self.asked.put_nowait(asked)
            answered, make = self.answers.get(asked.message_type, (0, lambda _: None))
            content = make(asked.content)
            if content is not None:
                self.send(asked, answered, content if isinstance(content, bytes) else content.SerializeToString())


class Api(NamedTuple):
    """A client of the API, the fake validator, the connection between them, and the application."""

    http: httpx.AsyncClient
    validator: FakeValidator
    connection: ValidatorConnection
    app: ASGIApp


@contextlib.asynccontextmanager
async def running_api(
    answers: dict[int, tuple[int, Answer]] | None = None,
    *,
    client: tuple[str, int] = ("127.0.0.1", 50_000),
    config: RestConfig | None = None,
) -> AsyncIterator[Api]:
    """The application, connected to a fake validator, without an HTTP server."""
    fake = FakeValidator(answers)
    fake.start()
    app = create_app(replace(config or RestConfig(), validator=fake.address))
    connection: ValidatorConnection = app.state.context.validator
    transport = httpx.ASGITransport(app, client=client)
    try:
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(
                transport=transport, base_url="http://node:8080", event_hooks={"response": [_documented]}
            ) as http,
        ):
            await connection.wait_connected()
            yield Api(http, fake, connection, app)
    finally:
        fake.end()


async def _documented(response: httpx.Response) -> None:
    """Check every answer against the OpenAPI document."""
    body = await response.aread()
    asked = response.request
    check(asked.method, asked.url.raw_path.decode("latin-1"), response.status_code, response.headers, body)


async def logged(logs: list[EventDict], event: str) -> None:
    """Run the event loop until the captured logs contain ``event``."""
    while not any(entry["event"] == event for entry in logs):
        await one_turn()


async def one_turn() -> None:
    """Let everything that is ready run once."""
    await asyncio.sleep(0)


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run the coroutine of a test with a time limit."""

    async def bounded() -> None:
        async with asyncio.timeout(TEST_SECONDS_MAX):
            await test

    asyncio.run(bounded())


def error_of(response: httpx.Response) -> tuple[int, int, str]:
    """The status, code and message of an error answer, whose shape is checked."""
    error = response.json()["error"]
    assert list(error) == ["code", "title", "message"]
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    return response.status_code, error["code"], error["message"]


def samples(response: httpx.Response) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every sample by its name and its label values in the order of the label names. Families must be unique."""
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(response.text))
    assert len({family.name for family in families}) == len(families)
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }
