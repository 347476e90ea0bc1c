"""Short bursts of hostile traffic against both ports of a node. Each ends by itself, whatever the node does."""

import contextlib
import socket
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

import httpx
import zmq

from dovetail.ledger.building import build_batch, build_transaction, encode_batch_list
from dovetail.ledger.signing import Signer
from protos import processor_pb2
from protos.validator_pb2 import Message as Envelope
from tests.system.faults import raw_zmtp
from tests.system.independent.client import make_sample, mutations

_TIMEOUT_S: Final = 5.0
_CONNECTIONS: Final = 20


class Target:
    """The ports of a node, and where random choices come from."""

    def __init__(self, rest_port: int, validator_port: int, random: Random) -> None:
        self.rest_port = rest_port
        self.validator_port = validator_port
        self.random = random
        self.number = 0

    def post(self, content: bytes) -> None:
        """POST bytes as a batch list, and ignore the answer."""
        url = f"http://127.0.0.1:{self.rest_port}/batches"
        headers = {"Content-Type": "application/octet-stream"}
        httpx.post(url, content=content, headers=headers, timeout=_TIMEOUT_S, trust_env=False)

    def connect(self) -> socket.socket:
        """A connection to the REST API."""
        return socket.create_connection(("127.0.0.1", self.rest_port), _TIMEOUT_S)


def garbage_requests(target: Target) -> None:
    """Random bytes instead of requests."""
    for _ in range(_CONNECTIONS):
        with target.connect() as connection:
            connection.sendall(target.random.randbytes(target.random.randint(1, 4_000)))
            connection.recv(4_096)


def tiny_chunks(target: Target) -> None:
    """A body in chunks of one byte."""
    with target.connect() as connection:
        connection.sendall(b"POST /batches HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.sendall(b"1\r\nx\r\n" * 20_000)
        connection.recv(4_096)


def unfinished_requests(target: Target) -> None:
    """Requests that stop in the middle, on connections that close without a word."""
    for _ in range(_CONNECTIONS):
        with target.connect() as connection:
            connection.sendall(b"POST /batches HTTP/1.1\r\nHost: n\r\nContent-Length: 100000\r\n\r\nx")


def garbage_frames(target: Target) -> None:
    """Greetings, lengths and frames of ZMTP that are wrong."""
    for _ in range(_CONNECTIONS):
        with raw_zmtp.connect(target.validator_port, _TIMEOUT_S) as connection:
            connection.sendall(raw_zmtp.frame(target.random.randbytes(200), announced=target.random.choice([5, 2**62])))


def forged_batches(target: Target) -> None:
    """A valid batch in every forged variant."""
    target.number += 1
    sample = make_sample(f"soak {target.random.random()} {target.number}")
    for forged in mutations(sample.batch, batch_key=sample.batch_key, transaction_keys=sample.transaction_keys):
        target.post(forged.batch_list)


def unserved_families(target: Target) -> None:
    """Batches of a family that nobody serves, each of another key."""
    batches = []
    for _ in range(_CONNECTIONS):
        target.number += 1
        signer = Signer(target.random.randbytes(32).hex())
        transaction = build_transaction(
            signer,
            batcher_pubkey=signer.public_key,
            family_name=f"unserved {target.number % 7}",
            family_version="1.0",
            inputs=[],
            outputs=[],
            payload=target.random.randbytes(50),
            payload_encoding="",
            nonce=str(target.number),
        )
        batches.append(build_batch(signer, [transaction]))
    target.post(encode_batch_list(batches))


def registrations(target: Target) -> None:
    """Processors that register many namespaces, some also that of settings, and leave without a word."""
    with _dealer(target) as dealer:
        for family in range(20):
            request = processor_pb2.TpRegisterRequest(
                family=f"strange {family}",
                version="1.0",
                namespaces=["000000"] * (family % 2) + [target.random.randbytes(3).hex() for _ in range(500)],
            )
            _send(dealer, Envelope.TP_REGISTER_REQUEST, request.SerializeToString())
        dealer.poll(1_000)


def random_messages(target: Target) -> None:
    """Every message type with random content."""
    with _dealer(target) as dealer:
        for message_type in [*range(20), *range(100, 131), *range(500, 507), *range(1000, 1040)]:
            _send(dealer, message_type, target.random.randbytes(target.random.randint(0, 300)))
        dealer.poll(1_000)


BURSTS: Final[tuple[Callable[[Target], None], ...]] = (
    garbage_requests,
    tiny_chunks,
    unfinished_requests,
    garbage_frames,
    forged_batches,
    unserved_families,
    registrations,
    random_messages,
)


def one_burst(target: Target) -> str:
    """Run one of the bursts. Returns its name. That the node refuses or closes is no failure."""
    burst = target.random.choice(BURSTS)
    with contextlib.suppress(OSError, httpx.HTTPError):
        burst(target)
    return burst.__name__


@contextlib.contextmanager
def _dealer(target: Target) -> "Iterator[zmq.Socket[bytes]]":
    dealer: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    dealer.linger = 0
    dealer.connect(f"tcp://127.0.0.1:{target.validator_port}")
    try:
        yield dealer
    finally:
        dealer.close()


def _send(dealer: "zmq.Socket[bytes]", message_type: int, content: bytes) -> None:
    message = Envelope(message_type=message_type, correlation_id="soak", content=content)  # type: ignore[arg-type]
    dealer.send(message.SerializeToString())
