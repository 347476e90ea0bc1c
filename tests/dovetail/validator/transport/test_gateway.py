"""The gateway on real sockets: it reads every message, whatever other bytes arrive, and answers pings."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
import zmq
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.validator.transport.gateway import CannotBind, Delivery, Gateway, Request
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.peers import LIMITS, UNANSWERED, Peer, open_port, run

_bodies = st.one_of(
    st.binary(max_size=40),
    st.builds(
        lambda number, correlation_id, content: Envelope(
            message_type=number, correlation_id=correlation_id, content=content
        ).SerializeToString(),
        st.integers(-(2**31), 2**31 - 1),
        st.text(max_size=5),
        st.binary(max_size=20),
    ),
)


@given(st.lists(st.lists(_bodies, min_size=1, max_size=4), max_size=25))
@settings(max_examples=40)
def test_pings_are_answered_whatever_was_sent_before(messages: list[list[bytes]]) -> None:
    async def test() -> None:
        async with open_port(b"fuzz", b"") as (port, (fuzzer, other)):
            for frames in messages:
                fuzzer.socket.send(frames)
            assert (await fuzzer.ping()).content == b""
            assert (await other.ping()).message_type == Envelope.PING_RESPONSE
            decodable = [frames[0] for frames in messages if len(frames) == 1 and _decodes(frames[0])]
            fuzzed = [request for request in port.seen if request.identity == b"fuzz"]
            assert len(fuzzed) == len(decodable) + 1

    run(test)


def _decodes(content: bytes) -> bool:
    try:
        Envelope.FromString(content)
    except DecodeError:
        return False
    return True


def test_requests_carry_who_and_what() -> None:
    async def test() -> None:
        async with open_port(b"someone") as (port, (peer,)):
            peer.send(77_777, "number one", b"content")
            peer.send(Envelope.PING_REQUEST, "number two", b"ignored")
            echoed, pong = await peer.receive(), await peer.receive()
            assert (echoed.message_type, echoed.correlation_id, echoed.content) == (77_777, "number one", b"content")
            assert (pong.message_type, pong.correlation_id) == (Envelope.PING_RESPONSE, "number two")
            assert port.seen == [
                Request(b"someone", 77_777, "number one", b"content"),
                Request(b"someone", Envelope.PING_REQUEST, "number two", b"ignored"),
            ]

    run(test)


@pytest.mark.parametrize("identities", [(b"",), (b"a", b"", b"c")])
def test_floods_arrive_whole_and_in_order(identities: tuple[bytes, ...]) -> None:
    """More messages than one sweep reads, from all peers together.

    Each peer has at most half of a socket's capacity in flight: libzmq drops the excess, and updates its count of read
    messages only by halves.
    """

    async def test() -> None:
        async with open_port(*identities) as (_, peers):

            async def talk(peer: Peer) -> None:
                sent = received = 0
                while received < 3_000:
                    while sent < 3_000 and sent - received < 400:
                        peer.send(1_000, str(sent))
                        sent += 1
                    assert (await peer.receive()).correlation_id == str(received)
                    received += 1

            await asyncio.gather(*map(talk, peers))

    run(test)


def test_more_than_one_sweep_waits_at_once() -> None:
    async def test() -> None:
        async with open_port(b"", limits=replace(LIMITS, connection_unread_messages_max=4_000)) as (port, (peer,)):
            for number in range(3_500):
                peer.send(UNANSWERED, str(number))
            await peer.ping()
            taken = [request.correlation_id for request in port.seen]
            assert taken == [*map(str, range(3_500)), "ping"]

    run(test)


def test_who_is_not_there_is_not_sent_to() -> None:
    async def test() -> None:
        async with open_port(b"stays", b"leaves") as (port, (stays, leaves)):
            assert port.gateway.send(b"nobody", 1_000, "c", b"") is Delivery.GONE
            assert port.gateway.send(b"", 1_000, "c", b"") is Delivery.GONE
            await leaves.ping()
            assert port.gateway.send(b"leaves", 1_000, "c", b"") is Delivery.SENT
            assert not port.disconnected.is_set()
            leaves.socket.close()
            await port.disconnected.wait()
            # The route ends a moment after the event of the closed connection.
            while port.gateway.send(b"leaves", 1_000, "c", b"") is not Delivery.GONE:  # noqa: ASYNC110 (no event tells of it)
                await asyncio.sleep(0)
            await stays.ping()

    run(test)


def test_who_does_not_read_is_told_apart_from_who_is_gone() -> None:
    async def test() -> None:
        async with open_port(b"deaf", b"other") as (port, (deaf, other)):
            await deaf.ping()
            content = bytes(100_000)
            # The loop does not run, so no peer reads: some buffers fill, then the peer's own queue. Only the first
            # refusal counts, because a moment later a buffer may accept one more message.
            told = (port.gateway.send(b"deaf", 1_000, "c", content) for _ in range(100 * LIMITS.peer_messages_max))
            assert next(delivery for delivery in told if delivery is not Delivery.SENT) is Delivery.FULL
            await other.ping()

    run(test)


def test_what_one_connection_has_unread_is_bounded_and_nothing_of_it_is_lost() -> None:
    async def test() -> None:
        async with open_port(b"other", limits=replace(LIMITS, connection_unread_messages_max=2)) as (port, (other,)):
            with zmq.Context() as context, context.socket(zmq.DEALER) as eager:
                # The peer's own queue holds one message, so the others are in the validator's queue.
                eager.set(zmq.LINGER, 0)
                eager.set(zmq.SNDHWM, 1)
                eager.connect(port.gateway.endpoint)
                envelope = Envelope(content=bytes(LIMITS.message_bytes_max - 1_000))
                envelope.message_type = UNANSWERED  # type: ignore[assignment]
                message = envelope.SerializeToString()
                # The loop does not run, so nothing is read. The system's buffers hold about ten more messages.
                sent = 0
                # The first two messages are sent as soon as the connection is established, however long that takes.
                while sent < 60 and eager.poll(250 if sent >= 2 else 10_000, zmq.POLLOUT):
                    eager.send(message)
                    sent += 1
                assert 2 <= sent < 40
                while len(port.seen) < sent:
                    await other.ping()
                    port.seen = [request for request in port.seen if request.message_type == UNANSWERED]

    run(test)


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", bytes(200), b"\xff" * 200, bytes(range(256)) * 40])
def test_what_speaks_another_protocol_disturbs_nobody(garbage: bytes) -> None:
    async def test() -> None:
        async with open_port(b"") as (port, (peer,)):
            await peer.ping()
            address = urlsplit(port.gateway.endpoint)
            _, writer = await asyncio.open_connection(address.hostname, address.port)
            writer.write(garbage)
            await writer.drain()
            await peer.ping("meanwhile")
            writer.close()
            # The gateway may have closed the connection first.
            with suppress(ConnectionError):
                await writer.wait_closed()
            await peer.ping("afterwards")
            assert {request.message_type for request in port.seen} == {Envelope.PING_REQUEST}

    run(test)


def test_a_message_over_the_limit_ends_its_connection_alone() -> None:
    async def test() -> None:
        async with open_port(b"too large", b"other") as (port, (large, other)):
            await large.ping()
            large.send(1_000, "fits", bytes(LIMITS.message_bytes_max - 1_000))
            assert (await large.receive()).correlation_id == "fits"
            large.send(1_000, "does not", bytes(LIMITS.message_bytes_max))
            await port.disconnected.wait()
            await other.ping()
            assert "does not" not in {request.correlation_id for request in port.seen}

    run(test)


def test_a_message_over_the_limit_is_not_sent() -> None:
    async def test() -> None:
        async with open_port(b"peer") as (port, (peer,)):
            await peer.ping()
            assert port.gateway.send(b"peer", 1_000, "large", bytes(LIMITS.message_bytes_max)) is Delivery.TOO_LARGE
            # The envelope takes less than 100 bytes.
            fits = bytes(LIMITS.message_bytes_max - 100)
            assert port.gateway.send(b"peer", 1_000, "fits", fits) is Delivery.SENT
            assert (await peer.receive()).correlation_id == "fits"

    run(test)


def test_an_address_that_cannot_be_bound_is_said() -> None:
    async def test() -> None:
        async with open_port() as (port, _):
            for bind in (port.gateway.endpoint, "nothing", "tcp://256.0.0.1:1", "tcp://127.0.0.1:port"):
                with pytest.raises(CannotBind, match="cannot listen on"):
                    Gateway(bind, LIMITS, lambda: None, lambda: None)

    run(test)
