"""The largest request and the largest answer of each message type that the limits allow: both ends stay connected.

A row for each type that validator, processors and REST API handle, over real sockets with the limits' defaults. A peer
takes messages up to ``message_bytes_max``, as the REST API and the processor SDK do; one byte more ends its connection.
"""

import ast
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.protobuf.message import Message
from structlog.testing import capture_logs

import dovetail.rest_api
from dovetail.ledger import settings
from dovetail.ledger.batch import VerifiedTransaction
from dovetail.ledger.building import SignedBatch, build_batch, build_transaction
from dovetail.ledger.ids import BatchId, TransactionId
from dovetail.ledger.limits import STATE_REQUEST_ADDRESSES_MAX, Limits
from dovetail.ledger.permitted import ENTRIES_MAX, MIGRATED_PREFIXES_MAX, MIGRATING_ENTRIES_MAX
from dovetail.ledger.transaction import DECLARED_ADDRESSES_MAX, FAMILY_CHARACTERS_MAX
from dovetail.rest_api.config import RestConfig
from dovetail.rest_api.server.app import create_app
from dovetail.rest_api.upstream.validator import ValidatorConnection
from dovetail.validator.core.journal.model import InvalidBatch
from dovetail.validator.node import Node
from dovetail.validator.transport.rights import PROCESSOR_MESSAGES
from protos import (
    client_batch_pb2,
    client_batch_submit_pb2,
    client_block_pb2,
    client_receipt_pb2,
    client_state_pb2,
    client_transaction_pb2,
    events_pb2,
    node_pb2,
    packed_pb2,
    processor_pb2,
    query_pb2,
    raw_pb2,
)
from protos import state_context_pb2 as state_pb2
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.nodes import open_node
from tests.dovetail.validator.peers import Peer, run
from tests.dovetail.validator.support import SIGNER, address, commit, make_batch, make_id, make_transaction, open_store

LIMITS = Limits()
ENVELOPE_BYTES = 100
LONGEST = "\N{GRINNING FACE}" * FAMILY_CHARACTERS_MAX
"""The longest name of a family in UTF-8."""

VALUE = bytes(LIMITS.state_value_bytes_max - 1_000)
"""Nearly the largest value; its receipt fits into ``receipt_bytes_max``."""

SECONDS_MAX = 120
VALUES = 6
LARGE = [address(number, "1cf126aa") for number in range(VALUES)]
"""The addresses of such values."""

FAMILY = "1.x"
PACKED = "packed"
TEXT = "x" * (LIMITS.message_bytes_max - 1_000)
"""A text that nearly fills a message."""


def _largest_transaction(family: str) -> SignedBatch:
    """A batch that fills a submission: half of it header, with as many addresses as may be declared."""
    addresses = [address(number) for number in range(DECLARED_ADDRESSES_MAX // 2)]
    header_bytes = 2 * len(addresses) * 72 + 2_000

    transaction = build_transaction(
        SIGNER,
        batcher_pubkey=SIGNER.public_key,
        family_name=family,
        family_version="1.0",
        inputs=["1cf126", *addresses[1:]],
        outputs=["1cf126", *addresses[1:]],
        payload=bytes(LIMITS.body_bytes_max - header_bytes),
        payload_encoding="",
        nonce="n",
    )
    return build_batch(SIGNER, [transaction])


class World:
    """A store with the largest of everything, and batches that are pending at two processors of the test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.limits = replace(LIMITS, store_map_bytes_initial=512 * 1024 * 1024)
        self.pending = [_largest_transaction(FAMILY), _largest_transaction(PACKED)]
        large = make_batch("large", make_transaction("large", payload=bytes(LIMITS.body_bytes_max - 1_000)))
        count = LIMITS.block_transactions_max - 1
        filled = LIMITS.block_bytes_max - LIMITS.body_bytes_max - count * 600
        small = [make_transaction(("small", number), payload=bytes(filled // count)) for number in range(count)]
        self.large = large
        self.receipts = [_named(number) for number in range(VALUES)]
        self.invalid = [BatchId(make_id("invalid", number)) for number in range(LIMITS.status_ids_max)]
        store = open_store(path, self.limits)
        try:
            # The second leaf makes a branch, so that a read of an unset address ends above the large leaves.
            commit(store, [make_batch("genesis")], {**_setting(), address(0, "1cf126bb"): b"x"})
            for number, transaction in enumerate(self.receipts):
                commit(store, [make_batch(("receipt", number), transaction)], {LARGE[number]: VALUE})
            self.block = commit(store, [large, *(make_batch(("small", item.id), item) for item in small)])
            store.reject([_invalid(each) for each in self.invalid], [])
        finally:
            store.close()

    @asynccontextmanager
    async def node(self) -> AsyncIterator[Node]:
        async with open_node(self.path, chain=False, limits=self.limits) as node:
            # As many registrations as one answer shows, with the longest names.
            for connection in range(80):
                for number in range(10):
                    request = processor_pb2.TpRegisterRequest(
                        family=LONGEST,
                        version=f"{connection}.{number}".ljust(FAMILY_CHARACTERS_MAX, "\N{GRINNING FACE}"),
                        namespaces=["ff" * 35] * 150,
                        build_id=LONGEST,
                    )
                    identity = b"filler %d" % connection
                    family = node._processors.handle(
                        identity, Envelope.TP_REGISTER_REQUEST, "", request.SerializeToString()
                    )
                    node._on_processor_events(family)
            yield node


def _named(number: int) -> VerifiedTransaction:
    return make_transaction(("receipt", number), outputs=[LARGE[number]])


def _setting() -> dict[str, bytes | None]:
    """The largest setting of permitted families."""
    entries = [
        {
            "family": LONGEST,
            "version": str(number).ljust(FAMILY_CHARACTERS_MAX, "\N{GRINNING FACE}"),
            **({"migrate": [f"{place:070x}" for place in range(MIGRATED_PREFIXES_MAX)]} if number else {}),
        }
        for number in range(MIGRATING_ENTRIES_MAX)
    ]
    entries += [{"family": LONGEST, "version": f"v{number}"} for number in range(ENTRIES_MAX - len(entries) - 3)]
    entries += [{"family": name, "version": "1.0"} for name in (FAMILY, PACKED, "sawtooth_settings")]
    key = settings.TRANSACTION_FAMILIES
    return {settings.setting_address(key): settings.encode_setting({key: json.dumps(entries, ensure_ascii=False)})}


def _invalid(batch_id: BatchId) -> InvalidBatch:
    return InvalidBatch(
        batch_id, "invalid_transaction", "\x01" * 4_096, TransactionId(make_id("t")), bytes(65_536), LONGEST, LONGEST
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("largest"))


# The messages of clients


Make = Callable[["World"], Message | bytes]


@dataclass
class Row:
    """``largest``: the largest request. ``asks``: the request with the largest answer.

    ``bytes_min``: less is not the largest answer that this row is about.
    """

    answered: int | None
    largest: Make
    asks: Make | None = None
    bytes_min: int = 0


def _list(**fields: Any) -> Callable[[World], Message]:
    return lambda _: query_pb2.ListRequest(**fields)


def _get(kind: Any, name: str, value: Callable[[World], str]) -> tuple[Make, Make]:
    def largest(_: World) -> Message:
        message: Message = kind(**{name: TEXT})
        return message

    def asks(world: World) -> Message:
        message: Message = kind(**{name: value(world)})
        return message

    return largest, asks


_BLOCK = client_block_pb2
MIB = 1024 * 1024

CLIENT_ROWS: dict[int, Row] = {
    Envelope.CLIENT_BATCH_SUBMIT_REQUEST: Row(
        Envelope.CLIENT_BATCH_SUBMIT_RESPONSE,
        lambda world: raw_pb2.RawBatchList(batches=[world.pending[0].raw]),
        # An answer names every batch of the list.
        lambda _: raw_pb2.RawBatchList(
            batches=[_smallest().raw] * (LIMITS.body_bytes_max // (len(_smallest().raw) + 3))
        ),
        MIB,
    ),
    Envelope.CLIENT_BATCH_STATUS_REQUEST: Row(
        Envelope.CLIENT_BATCH_STATUS_RESPONSE,
        lambda _: client_batch_submit_pb2.ClientBatchStatusRequest(batch_ids=[TEXT]),
        lambda world: client_batch_submit_pb2.ClientBatchStatusRequest(batch_ids=world.invalid),
        10 * MIB,
    ),
    Envelope.STATUS_WAIT_CANCEL: Row(None, lambda _: node_pb2.StatusWaitCancel(correlation_id=TEXT)),
    Envelope.NODE_STATUS_REQUEST: Row(Envelope.NODE_STATUS_RESPONSE, lambda _: TEXT.encode(), lambda _: b"", MIB // 4),
    Envelope.METRICS_REQUEST: Row(Envelope.METRICS_RESPONSE, lambda _: TEXT.encode(), lambda _: b"", MIB // 4),
    Envelope.PROCESSORS_REQUEST: Row(Envelope.PROCESSORS_RESPONSE, lambda _: TEXT.encode(), lambda _: b"", 10 * MIB),
    Envelope.FAMILIES_REQUEST: Row(Envelope.FAMILIES_RESPONSE, lambda _: TEXT.encode(), lambda _: b"", MIB),
    Envelope.PENDING_DROP_REQUEST: Row(
        Envelope.PENDING_DROP_RESPONSE,
        lambda _: node_pb2.PendingDropRequest(batch_ids=["no batch"], reason=TEXT),
        lambda _: node_pb2.PendingDropRequest(count_only=True),
    ),
    Envelope.CLIENT_BLOCK_GET_BY_ID_REQUEST: Row(
        Envelope.CLIENT_BLOCK_GET_RESPONSE,
        *_get(_BLOCK.ClientBlockGetByIdRequest, "block_id", lambda world: world.block.id),
        15 * MIB,
    ),
    Envelope.CLIENT_BLOCK_GET_BY_NUM_REQUEST: Row(
        Envelope.CLIENT_BLOCK_GET_RESPONSE,
        lambda _: _BLOCK.ClientBlockGetByNumRequest(block_num=2**64 - 1),
        lambda world: _BLOCK.ClientBlockGetByNumRequest(block_num=world.block.num),
        15 * MIB,
    ),
    Envelope.CLIENT_BLOCK_GET_BY_BATCH_ID_REQUEST: Row(
        Envelope.CLIENT_BLOCK_GET_RESPONSE,
        *_get(_BLOCK.ClientBlockGetByBatchIdRequest, "batch_id", lambda world: world.large.id),
        15 * MIB,
    ),
    Envelope.CLIENT_BLOCK_GET_BY_TRANSACTION_ID_REQUEST: Row(
        Envelope.CLIENT_BLOCK_GET_RESPONSE,
        *_get(
            _BLOCK.ClientBlockGetByTransactionIdRequest, "transaction_id", lambda world: world.large.transactions[0].id
        ),
        15 * MIB,
    ),
    Envelope.CLIENT_BATCH_GET_REQUEST: Row(
        Envelope.CLIENT_BATCH_GET_RESPONSE,
        *_get(client_batch_pb2.ClientBatchGetRequest, "batch_id", lambda world: world.large.id),
        7 * MIB,
    ),
    Envelope.CLIENT_TRANSACTION_GET_REQUEST: Row(
        Envelope.CLIENT_TRANSACTION_GET_RESPONSE,
        *_get(
            client_transaction_pb2.ClientTransactionGetRequest,
            "transaction_id",
            lambda world: world.large.transactions[0].id,
        ),
        7 * MIB,
    ),
    Envelope.CLIENT_RECEIPT_GET_REQUEST: Row(
        Envelope.CLIENT_RECEIPT_GET_RESPONSE,
        lambda _: client_receipt_pb2.ClientReceiptGetRequest(transaction_ids=[TEXT]),
        # One receipt more is over a page, and refused.
        lambda world: client_receipt_pb2.ClientReceiptGetRequest(
            transaction_ids=[item.id for item in world.receipts[:4]]
        ),
        15 * MIB,
    ),
    Envelope.CLIENT_STATE_GET_REQUEST: Row(
        Envelope.CLIENT_STATE_GET_RESPONSE,
        lambda _: client_state_pb2.ClientStateGetRequest(address=TEXT),
        lambda _: client_state_pb2.ClientStateGetRequest(address=LARGE[1]),
        3 * MIB,
    ),
    Envelope.LIST_REQUEST: Row(
        Envelope.LIST_RESPONSE,
        lambda _: query_pb2.ListRequest(resource="BLOCKS", head=TEXT),
        _list(resource="BLOCKS", count=1),
        15 * MIB,
    ),
}


def _smallest() -> SignedBatch:
    """A batch of as few bytes as possible; its family is not permitted."""
    transaction = build_transaction(
        SIGNER,
        batcher_pubkey=SIGNER.public_key,
        family_name="f",
        family_version="1",
        inputs=(),
        outputs=(),
        payload=b"",
        payload_encoding="",
        nonce="",
    )
    return build_batch(SIGNER, [transaction])


# The messages of processors


class Conversation:
    """A processor of the test, and the largest messages of its conversation."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.context_id = ""

    async def ask(self, message_type: int, message: Message, kind: Any, answered: int) -> Any:
        """Send a request; returns the decoded answer."""
        content = message.SerializeToString()
        assert len(content) + ENVELOPE_BYTES <= LIMITS.message_bytes_max
        self.peer.send(message_type, "asked", content)
        while True:
            envelope = await self.peer.receive()
            if envelope.message_type == answered and envelope.correlation_id == "asked":
                return kind.FromString(envelope.content)

    async def task(self, message_type: int) -> Envelope:
        while True:
            envelope = await self.peer.receive()
            if envelope.message_type == message_type:
                return envelope


def _unset(number: int) -> str:
    return address(number, "1cf126cc")


async def _register(talk: Conversation) -> None:
    largest = processor_pb2.TpRegisterRequest(
        family=LONGEST, version=LONGEST, namespaces=["ff" * 35] * 1_000, build_id=LONGEST
    )
    kind, answered = processor_pb2.TpRegisterResponse, Envelope.TP_REGISTER_RESPONSE
    answer = await talk.ask(Envelope.TP_REGISTER_REQUEST, largest, kind, answered)
    assert answer.status == kind.OK, answer.message
    refused = processor_pb2.TpRegisterRequest(family=TEXT, version="1.0")
    answer = await talk.ask(Envelope.TP_REGISTER_REQUEST, refused, kind, answered)
    assert "at most" in answer.message
    own = processor_pb2.TpRegisterRequest(family=FAMILY, version="1.0", namespaces=["1cf126"])
    assert (await talk.ask(Envelope.TP_REGISTER_REQUEST, own, kind, answered)).status == kind.OK


async def _state_get(talk: Conversation) -> None:
    """As many values as one answer takes, then as many addresses, then as many as one message takes."""
    kind, answered = state_pb2.TpStateGetResponse, Envelope.TP_STATE_GET_RESPONSE
    for addresses, status in (
        (LARGE[:3], kind.OK),
        (LARGE, kind.AUTHORIZATION_ERROR),
        ([_unset(number) for number in range(STATE_REQUEST_ADDRESSES_MAX)], kind.OK),
        ([_unset(number) for number in range(440_000)], kind.AUTHORIZATION_ERROR),
    ):
        request = state_pb2.TpStateGetRequest(context_id=talk.context_id, addresses=addresses)
        answer = await talk.ask(Envelope.TP_STATE_GET_REQUEST, request, kind, answered)
        assert answer.status == status


async def _state_set(talk: Conversation) -> None:
    entries = [state_pb2.TpStateEntry(address=address(1 + number), data=VALUE) for number in range(7)]
    request = state_pb2.TpStateSetRequest(context_id=talk.context_id, entries=entries)
    kind, answered = state_pb2.TpStateSetResponse, Envelope.TP_STATE_SET_RESPONSE
    assert (await talk.ask(Envelope.TP_STATE_SET_REQUEST, request, kind, answered)).status == kind.OK
    for count, status in ((STATE_REQUEST_ADDRESSES_MAX, kind.OK), (430_000, kind.AUTHORIZATION_ERROR)):
        many = [state_pb2.TpStateEntry(address=_unset(number)) for number in range(count)]
        request = state_pb2.TpStateSetRequest(context_id=talk.context_id, entries=many)
        assert (await talk.ask(Envelope.TP_STATE_SET_REQUEST, request, kind, answered)).status == status


async def _state_delete(talk: Conversation) -> None:
    kind, answered = state_pb2.TpStateDeleteResponse, Envelope.TP_STATE_DELETE_RESPONSE
    for count, status in ((STATE_REQUEST_ADDRESSES_MAX, kind.OK), (440_000, kind.AUTHORIZATION_ERROR)):
        many = [_unset(number) for number in range(count)]
        request = state_pb2.TpStateDeleteRequest(context_id=talk.context_id, addresses=many)
        assert (await talk.ask(Envelope.TP_STATE_DELETE_REQUEST, request, kind, answered)).status == status


async def _state_list(talk: Conversation) -> None:
    kind, answered = packed_pb2.StateListResponse, Envelope.STATE_LIST_RESPONSE
    for request in (
        packed_pb2.StateListRequest(context_id=talk.context_id, prefix="1cf126"),
        packed_pb2.StateListRequest(context_id=talk.context_id, prefix=TEXT),
    ):
        await talk.ask(Envelope.STATE_LIST_REQUEST, request, kind, answered)


async def _receipt_data(talk: Conversation) -> None:
    kind, answered = state_pb2.TpReceiptAddDataResponse, Envelope.TP_RECEIPT_ADD_DATA_RESPONSE
    for size in (LIMITS.receipt_bytes_max // 2, len(TEXT)):
        request = state_pb2.TpReceiptAddDataRequest(context_id=talk.context_id, data=bytes(size))
        await talk.ask(Envelope.TP_RECEIPT_ADD_DATA_REQUEST, request, kind, answered)


async def _event(talk: Conversation) -> None:
    kind, answered = state_pb2.TpEventAddResponse, Envelope.TP_EVENT_ADD_RESPONSE
    for event in (events_pb2.Event(event_type=TEXT), events_pb2.Event(data=TEXT.encode())):
        request = state_pb2.TpEventAddRequest(context_id=talk.context_id, event=event)
        await talk.ask(Envelope.TP_EVENT_ADD_REQUEST, request, kind, answered)


async def _process(talk: Conversation) -> None:
    half = len(TEXT) // 2
    answer = processor_pb2.TpProcessResponse(
        status="INVALID_TRANSACTION", message=TEXT[:half], extended_data=bytes(half)
    )
    talk.peer.send(Envelope.TP_PROCESS_RESPONSE, talk.context_id, answer.SerializeToString())


async def _packed(talk: Conversation) -> None:
    kind, answered = processor_pb2.TpRegisterResponse, Envelope.TP_REGISTER_RESPONSE
    own = processor_pb2.TpRegisterRequest(family=PACKED, version="1.0", namespaces=["1cf126"], packed_version=2)
    assert (await talk.ask(Envelope.TP_REGISTER_REQUEST, own, kind, answered)).status == kind.OK
    task = await talk.task(Envelope.PACKED_PROCESS_REQUEST)
    changes = [
        {"address": address(1 + number), "value": VALUE, "type": "SET"}
        for number in range(LIMITS.message_bytes_max // len(VALUE) - 1)
    ]
    results = [packed_pb2.PackedProcessResponse.TransactionResult(status="OK", state_changes=changes)]
    answer = packed_pb2.PackedProcessResponse(units=[{"results": results}])
    talk.peer.send(Envelope.PACKED_PROCESS_RESPONSE, task.correlation_id, answer.SerializeToString())


async def _unregister(talk: Conversation) -> None:
    request = node_pb2.NotAllowed(message=TEXT)
    kind, answered = processor_pb2.TpUnregisterResponse, Envelope.TP_UNREGISTER_RESPONSE
    assert (await talk.ask(Envelope.TP_UNREGISTER_REQUEST, request, kind, answered)).status == kind.OK


PROCESSOR_ROWS: dict[int, Callable[[Conversation], Any]] = {
    Envelope.TP_REGISTER_REQUEST: _register,
    Envelope.TP_STATE_GET_REQUEST: _state_get,
    Envelope.TP_STATE_SET_REQUEST: _state_set,
    Envelope.TP_STATE_DELETE_REQUEST: _state_delete,
    Envelope.STATE_LIST_REQUEST: _state_list,
    Envelope.TP_RECEIPT_ADD_DATA_REQUEST: _receipt_data,
    Envelope.TP_EVENT_ADD_REQUEST: _event,
    Envelope.TP_PROCESS_RESPONSE: _process,
    Envelope.PACKED_PROCESS_RESPONSE: _packed,
    Envelope.TP_UNREGISTER_REQUEST: _unregister,
}
"""In the order in which a processor sends them."""


# The requests of the REST API


HTTP_ROWS: dict[int, Callable[[World], tuple[str, str, bytes]]] = {
    Envelope.CLIENT_BATCH_SUBMIT_REQUEST: lambda world: (
        "POST",
        "/batches",
        raw_pb2.RawBatchList(batches=[world.pending[0].raw]).SerializeToString(),
    ),
    Envelope.CLIENT_BATCH_STATUS_REQUEST: lambda world: ("POST", "/batch_status", json.dumps(world.invalid).encode()),
    Envelope.NODE_STATUS_REQUEST: lambda _: ("GET", "/status/config", b""),
    Envelope.METRICS_REQUEST: lambda _: ("GET", "/metrics", b""),
    Envelope.PROCESSORS_REQUEST: lambda _: ("GET", "/status/processors", b""),
    Envelope.FAMILIES_REQUEST: lambda _: ("GET", "/status/families", b""),
    Envelope.CLIENT_BLOCK_GET_BY_ID_REQUEST: lambda world: ("GET", f"/blocks/{world.block.id}", b""),
    Envelope.CLIENT_BLOCK_GET_BY_NUM_REQUEST: lambda world: ("GET", f"/blocks/{world.block.num}", b""),
    Envelope.CLIENT_BATCH_GET_REQUEST: lambda world: ("GET", f"/batches/{world.large.id}", b""),
    Envelope.CLIENT_TRANSACTION_GET_REQUEST: lambda world: (
        "GET",
        f"/transactions/{world.large.transactions[0].id}",
        b"",
    ),
    Envelope.LIST_REQUEST: lambda _: ("GET", "/blocks?count=1000", b""),
}


# The tests


def test_every_message_type_has_a_row(tmp_path: Path) -> None:
    """Add a row for a new type: its largest request, and its largest answer."""
    handled: set[int] = set()

    async def test() -> None:
        async with open_node(tmp_path) as node:
            handled.update(node._clients._handlers)

    run(test)
    assert set(CLIENT_ROWS) == handled
    assert set(PROCESSOR_ROWS) == PROCESSOR_MESSAGES
    assert set(HTTP_ROWS) == _asked_by_the_rest_api()
    # Nobody answers the others: responses, what 1.x has and this node has not, and pings, which have no content.
    rows = {Envelope.MessageType.Name(number) for number in (*CLIENT_ROWS, *PROCESSOR_ROWS)}
    requests = {name for name in dict(Envelope.MessageType.items()) if name.endswith("_REQUEST")}
    assert requests - rows == {
        "CLIENT_BLOCK_LIST_REQUEST",
        "CLIENT_BATCH_LIST_REQUEST",
        "CLIENT_TRANSACTION_LIST_REQUEST",
        "CLIENT_STATE_CURRENT_REQUEST",
        "CLIENT_STATE_LIST_REQUEST",
        "CLIENT_PEERS_GET_REQUEST",
        "CLIENT_STATUS_GET_REQUEST",
        "CLIENT_EVENTS_SUBSCRIBE_REQUEST",
        "CLIENT_EVENTS_UNSUBSCRIBE_REQUEST",
        "CLIENT_EVENTS_GET_REQUEST",
        "PING_REQUEST",
        # The validator sends them; ``_process`` and ``_packed`` get the largest.
        "TP_PROCESS_REQUEST",
        "PACKED_PROCESS_REQUEST",
    }


def _asked_by_the_rest_api() -> set[int]:
    """The message types that its handlers name."""
    (folder,) = dovetail.rest_api.__path__
    names = {
        node.attr
        for source in (Path(folder) / "handlers").rglob("*.py")
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Attribute) and node.attr.endswith("_REQUEST")
    }
    known = dict(Envelope.MessageType.items())
    return {known[name] for name in names & set(known)}


@pytest.mark.parametrize("message_type", CLIENT_ROWS, ids=Envelope.MessageType.Name)
def test_a_client_and_the_validator_outlive_their_largest_messages(world: World, message_type: int) -> None:
    row = CLIENT_ROWS[message_type]

    async def test() -> None:
        async with world.node() as node:
            peer = Peer(node.endpoint, bytes_max=LIMITS.message_bytes_max)
            try:
                for make in (row.largest, row.asks):
                    if make is None:
                        continue
                    request = make(world)
                    content = request if isinstance(request, bytes) else request.SerializeToString()
                    assert len(content) + ENVELOPE_BYTES <= LIMITS.message_bytes_max
                    peer.send(message_type, "asked", content)
                    answered = await peer.receive() if row.answered else None
                    if answered is not None:
                        assert (answered.message_type, answered.correlation_id) == (row.answered, "asked")
                        size = len(answered.content)
                        assert size < LIMITS.message_bytes_max
                        assert make is row.largest or size >= row.bytes_min
                    await peer.ping()
            finally:
                peer.close()

    with capture_logs() as logs:
        run(test, SECONDS_MAX)
    assert [line for line in logs if line["log_level"] == "error"] == []


def test_a_processor_and_the_validator_outlive_their_largest_messages(world: World) -> None:
    async def test() -> None:
        async with world.node() as node:
            peers = [Peer(node.endpoint, bytes_max=LIMITS.message_bytes_max) for _ in range(3)]
            try:
                single, packed, client = map(Conversation, peers)
                for batch in world.pending:
                    # One after the other, as one submission takes no more.
                    content = raw_pb2.RawBatchList(batches=[batch.raw])
                    kind = client_batch_submit_pb2.ClientBatchSubmitResponse
                    answer = await client.ask(
                        Envelope.CLIENT_BATCH_SUBMIT_REQUEST, content, kind, Envelope.CLIENT_BATCH_SUBMIT_RESPONSE
                    )
                    assert answer.status == kind.OK, answer.message
                for message_type, row in PROCESSOR_ROWS.items():
                    talk = packed if message_type == Envelope.PACKED_PROCESS_RESPONSE else single
                    await row(talk)
                    if message_type == Envelope.TP_REGISTER_REQUEST:
                        task = await talk.task(Envelope.TP_PROCESS_REQUEST)
                        talk.context_id = processor_pb2.TpProcessRequest.FromString(task.content).context_id
                asked = client_batch_submit_pb2.ClientBatchStatusRequest(
                    batch_ids=[batch.id for batch in world.pending], wait=True, timeout=SECONDS_MAX
                )
                statuses = await client.ask(
                    Envelope.CLIENT_BATCH_STATUS_REQUEST,
                    asked,
                    client_batch_submit_pb2.ClientBatchStatusResponse,
                    Envelope.CLIENT_BATCH_STATUS_RESPONSE,
                )
                words = [
                    client_batch_submit_pb2.ClientBatchStatus.Status.Name(item.status)
                    for item in statuses.batch_statuses
                ]
                assert words == ["INVALID", "INVALID"]
                for peer in peers:
                    await peer.ping()
            finally:
                for peer in peers:
                    peer.close()

    with capture_logs() as logs:
        run(test, SECONDS_MAX)
    assert [line for line in logs if line["log_level"] == "error"] == []


@pytest.mark.parametrize("message_type", HTTP_ROWS, ids=Envelope.MessageType.Name)
def test_the_rest_api_and_the_validator_outlive_their_largest_messages(world: World, message_type: int) -> None:
    method, path, body = HTTP_ROWS[message_type](world)

    async def test() -> None:
        async with world.node() as node:
            app = create_app(RestConfig(validator=node.endpoint))
            connection: ValidatorConnection = app.state.context.validator
            transport = httpx.ASGITransport(app)
            async with (
                app.router.lifespan_context(app),
                httpx.AsyncClient(transport=transport, base_url="http://node:8080") as http,
            ):
                await connection.wait_connected()
                kind = "application/json" if path == "/batch_status" else "application/octet-stream"
                answer = await http.request(method, path, content=body, headers={"Content-Type": kind})
                assert answer.status_code in (200, 202), answer.text[:500]
                assert len(answer.content) <= 6 * LIMITS.message_bytes_max
                # A connection that was lost is lost by now: this answer comes after the one before.
                assert (await http.get("/blocks?count=1&max=0")).status_code == 200
                assert connection.connected

    with capture_logs() as logs:
        run(test, SECONDS_MAX)
    assert [line for line in logs if line["log_level"] == "error" or line["event"] == "lost the validator"] == []
