"""Hostile connections to the ports of a node: half-open, length bombs, deep nesting, never reading.

These tests use the validator's port, and both ports with many connections. ``tests/dovetail/rest_api`` tests the REST
API alone, ``tests/dovetail/validator/transport/test_gateway.py`` messages in general.
"""

import asyncio
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
import structlog

from dovetail.ledger.limits import Limits
from dovetail.validator.transport.gateway import Gateway
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.peers import run
from tests.system.e2e.clients import Author, wire_client
from tests.system.e2e.conftest import Shared
from tests.system.e2e.process import DEADLINE_S
from tests.system.faults import raw_zmtp
from tests.system.independent.client import INTKEY_FAMILY, intkey_address, make_batch_list

HALF_OPEN = int(os.environ.get("DOVETAIL_TEST_HALF_OPEN", "1000"))
"""The number of connections to each of the two ports that send nothing, or not enough."""

_SPARE_DESCRIPTORS = 500
_STATUS_REQUEST = 120
"""CLIENT_BATCH_STATUS_REQUEST."""

_BEGINNINGS = (b"", raw_zmtp.GREETING[:5], raw_zmtp.GREETING, b"GET /blocks HTTP/1.1\r\nHost: node\r\n")


@contextmanager
def _open_files(wanted: int) -> Iterator[int]:
    """Raise this process's limit of open files during the test. Yields how many of ``wanted`` files may be open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield wanted if hard == resource.RLIM_INFINITY else min(wanted, hard - _SPARE_DESCRIPTORS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _ports(shared: Shared) -> list[int]:
    return [int(urlsplit(url).port or 0) for url in (shared.network.validator_url, shared.network.rest_url)]


@pytest.mark.timeout(120 + HALF_OPEN / 20)
def test_half_open_connections_hold_up_nobody(shared: Shared, author: Author, named: Callable[[str], str]) -> None:
    """Many connections are silent, or send half a greeting or request.

    Others are served, and all files are closed again.
    """
    processes = [shared.up.part("validator"), shared.up.part("rest-api")]
    before = [process.num_fds() for process in processes]
    with _open_files(2 * HALF_OPEN) as allowed, ExitStack() as opened:
        count = allowed // 2
        for number in range(count):
            for port in _ports(shared):
                connection = opened.enter_context(closing(socket.create_connection(("127.0.0.1", port), DEADLINE_S)))
                connection.sendall(_BEGINNINGS[number % len(_BEGINNINGS)])
        held = [process.num_fds() for process in processes]
        print(f"{count} half-open connections to each port; files of validator and REST API: {before} then {held}")
        # Connections without handshake are closed after 30 s, and opening many of them may take longer.
        assert all(now - then > count // 4 for then, now in zip(before, held, strict=True))
        shared.api.commit(author.batch(author.intkey("set", named("n"), 1)))
        with wire_client(shared.network.validator_url) as client:
            assert client.ask(_STATUS_REQUEST, b"")[1] != []
    while any(process.num_fds() > then + count // 10 for then, process in zip(before, processes, strict=True)):
        # Each request gives both processes the time to notice closed connections.
        shared.api.get("/blocks", count=1)
    assert shared.api.intkey(named("n")) == 1


@pytest.mark.parametrize(
    "sent",
    [
        raw_zmtp.frame(b"x", announced=2**63 - 1),
        raw_zmtp.frame(b"x", announced=2**64 - 1),
        raw_zmtp.frame(b"x", announced=Limits().message_bytes_max + 1),
        raw_zmtp.frame(b"x", announced=Limits().message_bytes_max + 1, more=True),
    ],
    ids=["2^63", "2^64", "over the limit", "over the limit, of several"],
)
@pytest.mark.parametrize("shake_hands", [True, False], ids=["after the handshake", "instead of it"])
def test_a_length_bomb_ends_its_own_connection(shared: Shared, author: Author, sent: bytes, shake_hands: bool) -> None:
    port, _ = _ports(shared)
    validator = shared.up.part("validator")
    before = validator.memory_info().rss
    with closing(raw_zmtp.connect(port, DEADLINE_S, shake_hands=shake_hands)) as connection:
        connection.sendall(sent if shake_hands else raw_zmtp.GREETING + sent)
        assert raw_zmtp.is_ended(connection)
    with wire_client(shared.network.validator_url) as client:
        assert client.ask(_STATUS_REQUEST, b"")[1] != []
    assert validator.memory_info().rss - before < Limits().message_bytes_max


def _nested_messages(depth: int) -> bytes:
    content = b""
    for _ in range(depth):
        content = b"\x0a" + _varint(len(content)) + content
    return content


def _varint(number: int) -> bytes:
    digits = b""
    while number > 0x7F:
        digits += bytes([number & 0x7F | 0x80])
        number >>= 7
    return digits + bytes([number])


@pytest.mark.parametrize("depth", [50, 5_000])
def test_messages_within_messages_are_answered(shared: Shared, depth: int) -> None:
    """Deeply nested messages are the content of every client message type, and the body of POST /batches."""
    content = _nested_messages(depth)
    with wire_client(shared.network.validator_url) as client:
        for message_type in (100, 102, 104, 106, 108, 110, 112, 114, 116, 118):
            client.send(message_type, content)
        correlation_id = client.send(_STATUS_REQUEST, b"")
        answered = 0
        while client.next_message().correlation_id != correlation_id:
            answered += 1
    assert answered > 0
    assert shared.api.post_list(content).status_code == 400


@pytest.mark.parametrize(
    "payload",
    [b"\x81" * 100_000, b"\xa1" * 100_000, b"\x9f" * 100_000, b"\x9b" + b"\xff" * 8, b"\xbb\x7f" + b"\xff" * 7,
     b"\x5b\x7f" + b"\xff" * 7, b"\xd8\x1c" * 50_000],
    ids=["lists", "maps", "endless lists", "a list of 2^64", "a map of 2^63", "a text of 2^63", "tags"],
)  # fmt: skip
def test_cbor_in_depth_and_of_any_length_is_a_verdict(
    shared: Shared, author: Author, named: Callable[[str], str], payload: bytes
) -> None:
    leaf = intkey_address(named("n"))
    batch = author.batch(author.transaction(INTKEY_FAMILY, payload, inputs=[leaf], outputs=[leaf]))
    assert shared.api.reject(batch)["reason"] == "invalid_transaction"


def test_a_list_of_batches_that_announces_more_than_it_has(shared: Shared, author: Author) -> None:
    body = make_batch_list([author.batch(author.intkey("set", "n", 1))])
    for announced in (len(body), 2**31 - 1, 2**32 - 1, 2**63 - 1):
        answer = shared.api.post_list(body[:1] + _varint(announced) + body[3:])
        assert answer.status_code == 400


def test_a_client_that_never_reads_is_let_go_and_holds_up_nobody() -> None:
    """The answers fill only the client's own connection.

    The validator closes this connection, because the client is silent.
    """
    limits = replace(Limits(), processor_ping_ms=100, processor_silence_ms=500, peer_messages_max=1_000)
    content = bytes(20_000)

    async def test() -> None:
        closed = asyncio.Event()
        answered = 0

        def sweep() -> None:
            nonlocal answered
            for request in gateway.requests():
                gateway.send(request.identity, request.message_type, request.correlation_id, content)
                answered += 1

        gateway = Gateway("tcp://127.0.0.1:*", limits, sweep, closed.set)
        port = int(urlsplit(gateway.endpoint).port or 0)
        question = raw_zmtp.frame(Envelope(message_type=1_000).SerializeToString())  # type: ignore[arg-type]
        with closing(await asyncio.to_thread(raw_zmtp.connect, port, DEADLINE_S)) as deaf:
            await asyncio.to_thread(deaf.sendall, question * 5_000)
            await closed.wait()
        assert answered > 0
        gateway.close()

    with structlog.testing.capture_logs() as logs:
        run(test)
    assert {entry["event"] for entry in logs} == {"peer does not read, a message to it is dropped"}
