"""Whatever clients and processors send, no answer cuts a connection, and memory and disk stay within their limits.

Uses commands, HTTP and ZeroMQ frames only.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import zmq

from dovetail.ledger.building import SignedBatch, build_batch, build_transaction, encode_batch_list
from dovetail.ledger.signing import Signer
from families.intkey.client import intkey_transaction
from protos.processor_pb2 import TpProcessResponse, TpRegisterRequest, TpRegisterResponse
from protos.validator_pb2 import Message
from tests.system.e2e.network import INTKEY, Network

SIGNER = Signer("22" * 32)
DEADLINE_S = 60
EXTENDED = bytes(65_536)
MIB = 1024 * 1024


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    made = Network(tmp_path)
    try:
        yield made
    finally:
        made.close()


def batch(nonce: object, family: str = "refusing") -> SignedBatch:
    transaction = build_transaction(
        SIGNER,
        batcher_pubkey=SIGNER.public_key,
        family_name=family,
        family_version="1.0",
        inputs=(),
        outputs=(),
        payload=b"",
        payload_encoding="",
        nonce=str(nonce),
    )
    return build_batch(SIGNER, [transaction])


class Wire:
    """A connection to the validator's port."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], url: str) -> None:
        self._socket = context.socket(zmq.DEALER)
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.SNDHWM, 0)
        self._socket.connect(url)

    def send(self, message_type: int, content: bytes, correlation_id: str = "c") -> None:
        message = Message(message_type=message_type, correlation_id=correlation_id, content=content)  # type: ignore[arg-type]
        self._socket.send(message.SerializeToString())

    def receive(self, message_type: int) -> Message:
        """The next message of this type; answers pings."""
        while True:
            assert self._socket.poll(DEADLINE_S * 1000), f"no message of type {message_type} in {DEADLINE_S} s"
            message = Message.FromString(self._socket.recv())
            if message.message_type == message_type:
                return message
            if message.message_type == Message.PING_REQUEST:
                self.send(Message.PING_RESPONSE, b"", message.correlation_id)


@contextmanager
def wires(url: str, count: int) -> Iterator[list[Wire]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        yield [Wire(context, url) for _ in range(count)]
    finally:
        context.destroy(linger=0)


def refuse_all(network: Network, http: httpx.Client, batches: list[SignedBatch]) -> None:
    """Submit batches, and judge each INVALID with the largest extended data, as a 1.x processor."""
    with wires(network.validator_url, 1) as (processor,):
        registration = TpRegisterRequest(family="refusing", version="1.0", max_occupancy=1_000)
        processor.send(Message.TP_REGISTER_REQUEST, registration.SerializeToString())
        processor.receive(Message.TP_REGISTER_RESPONSE)
        answer = TpProcessResponse(status="INVALID_TRANSACTION", message="no", extended_data=EXTENDED)
        for start in range(0, len(batches), 20):
            some = batches[start : start + 20]
            posted = http.post("/batches", content=encode_batch_list(some), headers=OCTETS)
            assert posted.status_code == 202, posted.text
            for _ in some:
                asked = processor.receive(Message.TP_PROCESS_REQUEST)
                processor.send(Message.TP_PROCESS_RESPONSE, answer.SerializeToString(), asked.correlation_id)
        ids = [each.id for each in batches]
        waited = http.get("/batch_status", params={"id": ids[-1], "wait": str(DEADLINE_S)})
        assert waited.json()["data"] == {ids[-1]: "INVALID"}


OCTETS = {"Content-Type": "application/octet-stream"}


@contextmanager
def client(network: Network) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=network.rest_url, timeout=DEADLINE_S) as http:
        yield http


def test_the_statuses_of_many_refused_batches_cut_nobody_off(network: Network) -> None:
    parts = network.parts()
    batches = [batch(number) for number in range(600)]
    ids = [each.id for each in batches]
    with client(network) as http:
        refuse_all(network, http, batches)
        answer = http.post("/batch_status", json=ids)
        assert answer.status_code == 200, answer.text[:300]
        told = answer.json()
        assert set(told["data"].values()) == {"INVALID"}
        assert len(answer.content) < 20 * MIB
        details = [told["details"][each] for each in ids]
        assert len(details[0]["extended_data"]) > len(EXTENDED)
        assert (details[-1]["extended_data"], details[-1]["omitted_bytes"]) == ("", len(EXTENDED))
        # Asked for alone, its details are all there.
        alone = http.get("/batch_status", params={"id": ids[-1]}).json()["details"][ids[-1]]
        assert len(alone["extended_data"]) > len(EXTENDED)
    assert parts["rest-api"].count_logged("lost the validator") == 0


CONNECTIONS = 20


def test_registrations_cost_bounded_memory(network: Network) -> None:
    validator = network.parts()["validator"]
    process = psutil.Process(validator.pid)
    with wires(network.validator_url, CONNECTIONS) as processors:
        namespaces = [f"ab{number:068x}" for number in range(1_000)]
        before, begun = process.memory_info().rss, time.monotonic()
        for number in range(100):
            request = TpRegisterRequest(family=f"family {number}", version="1.0", namespaces=namespaces)
            for processor in processors:
                processor.send(Message.TP_REGISTER_REQUEST, request.SerializeToString())
        answers: list[Any] = [
            TpRegisterResponse.FromString(processor.receive(Message.TP_REGISTER_RESPONSE).content)
            for _ in range(100)
            for processor in processors
        ]
        grown = process.memory_info().rss - before
    print(f"{CONNECTIONS} connections: {grown / MIB:.0f} MiB, {time.monotonic() - begun:.1f} s")
    accepted = sum(answer.status == TpRegisterResponse.OK for answer in answers)
    assert CONNECTIONS <= accepted < CONNECTIONS * 10
    assert grown < 100 * MIB
    reason = validator.wait_logged("registration refused").logged["reason"]
    assert "connection_registered_bytes_max" in reason


def test_remembered_verdicts_have_bounded_bytes(tmp_path: Path) -> None:
    network = Network(tmp_path, DOVETAIL_LIMITS_INVALID_BYTES_REMEMBERED=str(MIB))
    try:
        network.parts()
        batches = [batch(number) for number in range(60)]
        with client(network) as http:
            refuse_all(network, http, batches)
            details = {
                each.id: http.get("/batch_status", params={"id": each.id}).json()["details"][each.id]
                for each in batches
            }
        kept = [bool(details[each.id]["extended_data"]) for each in batches]
        assert kept == sorted(kept), "the oldest go first"
        assert 10 <= sum(kept) < 20
        oldest = details[batches[0].id]
        assert oldest["reason"] == "invalid_transaction"
        assert oldest["omitted_bytes"] == len(EXTENDED) + len("no")
    finally:
        network.close()


def test_what_is_stored_is_what_was_signed(network: Network) -> None:
    network.parts(INTKEY)
    transaction = intkey_transaction(SIGNER, SIGNER.public_key, "set", "signed", 1, "n")
    signed = build_batch(SIGNER, [transaction])
    store = network.data / "store" / "data.mdb"
    with client(network) as http:
        before = store.stat().st_blocks
        for junk in (b"a", b"b"):
            # Field 1000, which nobody knows, beside the fields of the batch.
            raw = signed.raw + _field(1000, junk * 7 * MIB)
            posted = http.post("/batches?wait=30", content=_field(1, raw), headers=OCTETS)
            assert posted.status_code == 201, posted.text
        assert http.get("/batches", params={"count": 1}).json()["data"][0]["header_signature"] == signed.id
        total = http.get("/batches").json()["paging"]["total_count"]
        assert http.post("/batches?wait=30", content=_field(1, signed.raw), headers=OCTETS).status_code == 201
        assert http.get("/batches").json()["paging"]["total_count"] == total
        assert (store.stat().st_blocks - before) * 512 < MIB
    with wires(network.validator_url, 1) as (wire,):
        wire.send(Message.CLIENT_BATCH_GET_REQUEST, _field(1, signed.id.encode()))
        content = wire.receive(Message.CLIENT_BATCH_GET_RESPONSE).content
    assert signed.raw in content
    assert len(content) < len(signed.raw) + 300


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
