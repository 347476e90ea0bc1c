"""Clients for tests: batches that independent code signs, HTTP, and the 1.x client messages over ZeroMQ.

Processes do not belong here. This module must not import the project's packages.
"""

import base64
import hashlib
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import zmq

from tests.system.e2e.process import DEADLINE_S
from tests.system.independent import cbor_map, secp256k1
from tests.system.independent import client as ledger
from tests.system.independent import protobuf_wire as wire
from tests.system.independent.client import Batch, Transaction
from tests.system.independent.messages import Event, Message

OK, NO_RESOURCE = 1, 5


class Author:
    """A key that signs transactions and their batches."""

    def __init__(self, label: str) -> None:
        self.key = secp256k1.private_key_from(label)
        self.public_key = secp256k1.public_key(self.key)

    def intkey(self, verb: str, name: str, value: int, *, dependencies: Iterable[str] = ()) -> Transaction:
        return ledger.make_intkey_transaction(self.key, self.public_key, verb, name, value, dependencies=dependencies)

    def transaction(
        self,
        family: str,
        payload: bytes,
        *,
        inputs: Iterable[str] = (),
        outputs: Iterable[str] = (),
        dependencies: Iterable[str] = (),
    ) -> Transaction:
        """A transaction of version 1.0 of any family."""
        return ledger.make_transaction(
            self.key, self.public_key, family, "1.0", inputs, outputs, payload, dependencies=dependencies
        )

    def batch(self, *transactions: Transaction) -> Batch:
        return ledger.make_batch(self.key, transactions)

    def incs(self, name: str, count: int) -> list[Batch]:
        """So many batches that each add 1 to ``name``."""
        return [self.batch(self.intkey("inc", name, 1)) for _ in range(count)]


class Api:
    """The REST API of a node."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=DEADLINE_S, trust_env=False, verify=False)

    def close(self) -> None:
        self.http.close()

    def post(self, *batches: Batch, wait: int | None = None) -> httpx.Response:
        """POST /batches."""
        return self.post_list(ledger.make_batch_list(batches), wait=wait)

    def post_list(self, batch_list: bytes, *, wait: int | None = None) -> httpx.Response:
        """POST /batches with any bytes."""
        return self.http.post(
            "/batches",
            params={} if wait is None else {"wait": wait},
            content=batch_list,
            headers={"Content-Type": "application/octet-stream"},
            timeout=DEADLINE_S,
        )

    def accept(self, *batches: Batch) -> None:
        """Submit without waiting; all must be accepted."""
        answer = self.post(*batches)
        assert answer.status_code == 202, answer.text

    def commit(self, *batches: Batch) -> None:
        """Submit and wait; all must be committed."""
        answer = self.post(*batches, wait=int(DEADLINE_S))
        assert answer.status_code == 201, answer.text

    def reject(self, batch: Batch) -> dict[str, Any]:
        """Submit and wait; the batch must become INVALID. Returns the details."""
        # The wait is longer than the client's timeout. So the answer must come with the verdict, not at the end of the
        # wait.
        answer = self.post(batch, wait=int(DEADLINE_S) * 10)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        assert body["data"] == {batch.id: "INVALID"}
        return dict(body["details"][batch.id])

    def statuses(self, ids: Iterable[str], *, wait: int | None = None) -> dict[str, Any]:
        """The body of POST /batch_status."""
        answer = self.http.post("/batch_status", params={} if wait is None else {"wait": wait}, json=list(ids))
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def words(self, *batches: Batch, wait: int | None = None) -> list[str]:
        """The status of each batch."""
        data = self.statuses([batch.id for batch in batches], wait=wait)["data"]
        return [data[batch.id] for batch in batches]

    def details(self, batch: Batch) -> dict[str, Any]:
        """The details of a batch's status."""
        return dict(self.statuses([batch.id]).get("details", {}).get(batch.id, {}))

    def settle(self, *batches: Batch) -> list[str]:
        """Wait until no batch is PENDING, at most for the client's timeout. Returns the statuses."""
        return self.words(*batches, wait=int(DEADLINE_S) * 10)

    def get(self, path: str, **params: str | int) -> dict[str, Any]:
        """A GET that must succeed."""
        answer = self.http.get(path, params=params or None)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def leaf(self, address: str) -> bytes | None:
        """The bytes at an address; None for code 75."""
        answer = self.http.get(f"/state/{address}")
        if answer.status_code == 404:
            assert answer.json()["error"]["code"] == 75
            return None
        return base64.b64decode(answer.json()["data"], validate=True)

    def intkey(self, name: str) -> int | None:
        """The value of an intkey name; None if there is none."""
        leaf = self.leaf(ledger.intkey_address(name))
        value = None if leaf is None else cbor_map.decode_map(leaf).get(name)
        assert value is None or isinstance(value, int)
        return value

    def chain(self) -> list[str]:
        """The ids of all blocks, genesis first."""
        return [block["header_signature"] for block in reversed(self.get("/blocks", count=1000)["data"])]


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error object of a refusal."""
    return dict(answer.json()["error"])


class WireClient:
    """A client of the validator's socket that uses only the 1.x messages."""

    def __init__(self, url: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.set(zmq.LINGER, 0)
        # The client may wait for a validator to start, and should then be the first to connect.
        self._socket.set(zmq.RECONNECT_IVL, 1)
        self._socket.set(zmq.IDENTITY, secrets.token_hex(8).encode())
        self._socket.connect(url)

    def close(self) -> None:
        self._socket.close()
        self._context.term()

    def send(self, message_type: int, content: bytes) -> str:
        """Send without waiting for a connection. Returns the correlation id."""
        correlation_id = secrets.token_hex(16)
        self._socket.send(Message(message_type, correlation_id, content).encode())
        return correlation_id

    def receive(self, correlation_id: str) -> wire.Fields:
        """The fields of the answer, which must be the next message."""
        answer = self.next_message()
        assert answer.correlation_id == correlation_id
        return wire.decode(answer.content)

    def next_message(self) -> Message:
        """The next message."""
        if not self._socket.poll(int(DEADLINE_S * 1000)):
            raise TimeoutError(f"the validator has not answered in {DEADLINE_S:g} s")
        return Message.decode(self._socket.recv())

    def ask(self, message_type: int, content: bytes) -> wire.Fields:
        return self.receive(self.send(message_type, content))

    def receipts(self, *transaction_ids: str) -> list["Receipt"] | int:
        """CLIENT_RECEIPT_GET: the receipts, or the status if it is not OK."""
        fields = self.ask(122, wire.encode(wire.repeated(1, transaction_ids)))
        status = wire.get_int(fields, 1)
        return [Receipt(item) for item in wire.get_all_bytes(fields, 2)] if status == OK else status


class Receipt:
    """One TransactionReceipt, decoded."""

    def __init__(self, encoded: bytes) -> None:
        fields = wire.decode(encoded)
        changes = [wire.decode(item) for item in wire.get_all_bytes(fields, 1)]
        self.changes: dict[str, bytes | None] = {
            wire.get_text(change, 1): wire.get_bytes(change, 2) if wire.get_int(change, 3) == 1 else None
            for change in changes
        }
        self.events = [Event.decode(item) for item in wire.get_all_bytes(fields, 2)]
        self.data = wire.get_all_bytes(fields, 3)
        self.transaction_id = wire.get_text(fields, 4)


@contextmanager
def wire_client(url: str) -> Iterator[WireClient]:
    """A WireClient, closed at the end."""
    client = WireClient(url)
    try:
        yield client
    finally:
        client.close()


def name_for(test: str) -> str:
    """A prefix for intkey names that no other test uses: 12 characters."""
    return hashlib.sha256(test.encode()).hexdigest()[:12]
