"""Client messages with a real store and queue: answers, refusals, and one log line with the correlation id each."""

import json
import re
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from google.protobuf.message import Message
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.errors import RefusedBatch
from dovetail.ledger.ids import BatchId, TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.admission.verifier import Verified
from dovetail.validator.blocks.production import Work
from dovetail.validator.client_api.clients import Clients
from dovetail.validator.client_api.queries import DAMAGED
from dovetail.validator.config import ValidatorConfig
from dovetail.validator.core.mempool.queue import Pending, PendingQueue
from dovetail.validator.metrics import DropCause, Metrics
from dovetail.validator.processors.comparing import Comparisons
from dovetail.validator.processors.registry import Processors
from dovetail.validator.store import Store
from dovetail.validator.transport.gateway import Delivery, Request
from protos import client_block_pb2, processor_pb2, raw_pb2
from protos.client_batch_submit_pb2 import (
    ClientBatchStatusRequest,
    ClientBatchStatusResponse,
    ClientBatchSubmitResponse,
)
from protos.node_pb2 import MetricsResponse, NodeStatusRequest, NodeStatusResponse, ProcessorsResponse, StatusWaitCancel
from protos.query_pb2 import ListRequest
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.peers import run
from tests.dovetail.validator.support import LIMITS, commit, make_batch, make_id, make_transaction, open_store

INTKEY = FamilyVersion("intkey", "1.0")
SUBMIT, SUBMITTED = Envelope.CLIENT_BATCH_SUBMIT_REQUEST, Envelope.CLIENT_BATCH_SUBMIT_RESPONSE
STATUS = Envelope.CLIENT_BATCH_STATUS_REQUEST

Log = list[MutableMapping[str, Any]]


def _too_long_for_an_id() -> ClientBatchStatusRequest:
    return ClientBatchStatusRequest(batch_ids=[make_id("id"), "x" * 129], wait=True)


class Pool:
    """Records batches to verify; the test provides the results."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[bytes], Callable[[Verified], None]]] = []

    def verify(self, raw_batches: list[bytes], on_verified: Callable[[Verified], None]) -> None:
        self.asked.append((raw_batches, on_verified))


class Bench:
    """Clients whose answers are recorded. ``gone``: disconnected identities."""

    def __init__(
        self,
        store: Store,
        limits: Limits = LIMITS,
        bind: str = "tcp://127.0.0.1:4004",
        *,
        work: Callable[[], Work] = lambda: Work(0, False),
        clock_ms: Callable[[], float] = lambda: 0,
    ) -> None:
        self.config = ValidatorConfig(Path("/secret/data"), Path("/secret/key"), bind, 3, limits)
        self.store = store
        self.queue = PendingQueue(limits)
        self.pool = Pool()
        self.metrics = Metrics(limits, lambda: 0)
        self.processors = Processors(self._send, lambda: 0, limits)
        self.gone: set[bytes] = set()
        self.sent: list[tuple[bytes, int, str, bytes]] = []
        self.comparisons = Comparisons(self.processors, limits, clock_ms)
        pool: Any = self.pool
        self.clients = Clients(
            self.config,
            self._send,
            store,
            self.queue,
            pool,
            self.processors,
            self.metrics,
            lambda _: ("NONE", ""),
            work,
            self._drop,
            lambda batches: [],
            self.comparisons,
            clock_ms,
        )
        self.clients.submissions.open = True
        self.dropped: list[tuple[list[VerifiedBatch], DropCause, str]] = []
        self.disk_is_full = False

    def _drop(self, entries: list[Pending], cause: DropCause, why: str) -> bool:
        """Keeps the queue as it is, so that tests see what would be dropped."""
        self.dropped.append(([entry.batch for entry in entries], cause, why))
        return not self.disk_is_full

    def _send(self, identity: bytes, message_type: int, correlation_id: str, content: bytes) -> Delivery:
        if identity in self.gone:
            return Delivery.GONE
        self.sent.append((identity, message_type, correlation_id, content))
        return Delivery.SENT

    def send(self, message_type: int, message: Message | bytes = b"", correlation_id: str = "http-1.7") -> Log:
        """Send a client's message. Returns its log line."""
        content = message if isinstance(message, bytes) else message.SerializeToString()
        with capture_logs() as lines:
            self.clients.handle(Request(b"client", message_type, correlation_id, content))
        return lines

    def ask(
        self, message_type: int, message: Message | bytes, answered: int, correlation_id: str = "http-1.7"
    ) -> bytes:
        """The content of the only answer to a message that is answered at once and logged once."""
        self.sent.clear()
        (line,) = self.send(message_type, message, correlation_id)
        assert (line["correlation_id"], line["log_level"]) == (correlation_id, "info")
        assert line["type"] == Envelope.MessageType.Name(message_type)
        ((identity, sent_type, sent_id, content),) = self.sent
        assert (identity, sent_type, sent_id) == (b"client", answered, correlation_id)
        return content

    def submitted(self, *batches: VerifiedBatch | bytes) -> ClientBatchSubmitResponse:
        """The answer to a list that is refused or accepted without verification."""
        raw = [batch if isinstance(batch, bytes) else batch.raw for batch in batches]
        content = raw_pb2.RawBatchList(batches=raw).SerializeToString()
        return ClientBatchSubmitResponse.FromString(self.ask(SUBMIT, content, SUBMITTED))

    def node_status(self) -> NodeStatusResponse:
        content = self.ask(Envelope.NODE_STATUS_REQUEST, NodeStatusRequest(), Envelope.NODE_STATUS_RESPONSE)
        return NodeStatusResponse.FromString(content)

    def samples(self) -> dict[str, float]:
        """Every sample of the metrics, by its Prometheus name."""
        content = self.ask(Envelope.METRICS_REQUEST, b"", Envelope.METRICS_RESPONSE)
        parsed = text_string_to_metric_families(MetricsResponse.FromString(content).text.decode())
        return {
            sample.name + "".join(f" {value}" for _, value in sorted(sample.labels.items())): sample.value
            for family in parsed
            for sample in family.samples
        }


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path)
    yield made
    made.close()


@pytest.fixture
def bench(store: Store) -> Bench:
    return Bench(store)


# Node status and metrics


def test_without_a_genesis_block_the_node_tells_of_itself_all_the_same(bench: Bench) -> None:
    status = bench.node_status()
    assert status.status == NodeStatusResponse.NOT_READY
    assert (status.head_id, status.head_num) == ("", 0)
    assert len(status.config) > len(fields(Limits))
    assert "dovetail_validator_head_block_num" not in bench.samples()


def test_totals_overall_and_by_family(bench: Bench) -> None:
    bench.metrics.family_registered(INTKEY)
    applied = make_batch("applied", make_transaction(1), make_transaction(2))
    refused = make_batch("refused", make_transaction(3), make_transaction(4, family=("no processor", "9")))
    info = commit(bench.store, [applied])
    bench.metrics.block_committed([applied], 0.1, 0)
    bench.metrics.judged_invalid([refused])
    bench.queue.add(0, make_batch("pending"))
    status = bench.node_status()
    assert status.status == NodeStatusResponse.OK
    assert (status.head_id, status.head_num, status.pending_batches) == (info.id, 0, 1)
    totals = status.totals
    assert (totals.blocks_committed, totals.blocks_claimed) == (1, 1)
    assert (totals.batches_committed, totals.batches_invalid) == (1, 1)
    assert (totals.transactions_committed, totals.transactions_invalid) == (2, 2)
    by_family = {(entry.family_name, entry.family_version): entry.totals for entry in status.families}
    assert by_family.keys() == {INTKEY, ("other", "")}
    assert by_family[INTKEY].transactions_invalid == by_family["other", ""].transactions_invalid == 1
    assert by_family["other", ""].blocks_committed == 0


def test_the_configuration_is_shown_without_paths_and_secrets(bench: Bench) -> None:
    status = bench.node_status()
    shown = {entry.key: entry.number if entry.HasField("number") else entry.text for entry in status.config}
    for field in fields(Limits):
        assert shown[f"limits.{field.name}"] == getattr(LIMITS, field.name)
    assert shown["validator.bind"] == "tcp://127.0.0.1:4004"
    assert shown["validator.verifier_processes"] == 3
    assert shown["validator.state_depth_blocks"] == 0
    assert shown["validator.version"]
    assert "secret" not in json.dumps(shown)


def test_the_path_of_an_ipc_socket_is_not_shown(store: Store) -> None:
    bench = Bench(store, bind="ipc:///secret/validator.sock")
    assert {entry.text for entry in bench.node_status().config if entry.key == "validator.bind"} == {"ipc://…"}


def test_the_status_tells_when_it_was_told(bench: Bench) -> None:
    before = datetime.now(UTC)
    told = bench.node_status().timestamp
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", told)
    assert before - timedelta(milliseconds=1) < datetime.fromisoformat(told) <= datetime.now(UTC)


def test_who_asks_for_the_load_does_not_shorten_the_time_that_it_is_of(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = iter((0.0, 50.0, 75.0))
    asked: list[object] = []

    def cpu_percent(interval: object) -> float:
        asked.append(interval)
        return next(loads)

    monkeypatch.setattr(psutil, "cpu_percent", cpu_percent)
    bench = Bench(store)
    shown = []
    for _ in range(8):
        bench.clients.node_status.tick()
        system = [bench.node_status().system for _ in range(10)][-1]
        shown.append(system.percent_cpu)
        assert 0 < system.percent_memory <= 1
    assert shown == [0, 0, 0, 0.5, 0.5, 0.5, 0.5, 0.75]
    # The CPU usage must never be read with an interval, because that would block the loop.
    assert asked == [None] * 3


def test_the_network_counts_from_the_start_of_the_validator(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    counters = [SimpleNamespace(bytes_recv=5_000, bytes_sent=700)]
    monkeypatch.setattr(psutil, "net_io_counters", lambda: counters[-1])
    bench = Bench(store)
    counters.append(SimpleNamespace(bytes_recv=5_300, bytes_sent=740))
    system = bench.node_status().system
    assert (system.network_rx, system.network_tx) == (300, 40)
    # One network interface disappears, then the last one.
    for fewer in (SimpleNamespace(bytes_recv=1, bytes_sent=1), None):
        counters.append(fewer)  # type: ignore[arg-type]
        system = bench.node_status().system
        assert (system.network_rx, system.network_tx) == (0, 0)


def test_the_queue_the_waits_and_the_head_stand_in_the_metrics(bench: Bench) -> None:
    async def test() -> None:
        commit(bench.store, [make_batch("genesis")])
        commit(bench.store, [make_batch("next")])
        batches = [make_batch(n, make_transaction(n), make_transaction((n, 2))) for n in range(3)]
        for arrival, batch in enumerate(batches):
            bench.queue.add(arrival, batch)
        first = bench.queue.pop_ready()
        assert first is not None
        bench.queue.park_for_dependency(first, TransactionId(make_id("missing")), 1)
        bench.send(STATUS, ClientBatchStatusRequest(batch_ids=[first.batch.id], wait=True, timeout=3_600))
        found = bench.samples()
        prefix = "dovetail_validator_"
        assert found[prefix + "pending_batches queued"] == 2
        assert found[prefix + "pending_batches waiting_for_dependency"] == 1
        assert found[prefix + "pending_batches executing"] == 0
        assert found[prefix + "pending_transactions"] == 6
        assert found[prefix + "pending_bytes"] == sum(len(batch.raw) for batch in batches)
        assert found[prefix + "pending_batches_max"] == LIMITS.pending_batches_max
        assert found[prefix + "pending_transactions_max"] == LIMITS.pending_transactions_max
        assert found[prefix + "waiters"] == 1
        assert found[prefix + "head_block_num"] == 1
        assert found[prefix + "process_resident_memory_bytes"] > 0
        assert bench.clients.statuses.cancel(b"client", "http-1.7")

    run(test)


def test_processors_counters_and_messages_stand_in_the_metrics(bench: Bench) -> None:
    request = processor_pb2.TpRegisterRequest(family="intkey", version="1.0")
    for identity in (b"one", b"two"):
        bench.processors.handle(identity, Envelope.TP_REGISTER_REQUEST, "c", request.SerializeToString())
    bench.metrics.family_registered(INTKEY)
    bench.metrics.block_committed([make_batch("a", make_transaction(1), make_transaction(2))], 0.1, 0)
    bench.metrics.judged_invalid([make_batch("b")])
    bench.metrics.message_arrived(Envelope.LIST_REQUEST)
    found = bench.samples()
    prefix = "dovetail_validator_"
    assert found[prefix + "processors intkey 1.0"] == 2
    assert found[prefix + "blocks_total"] == 1
    assert found[prefix + "batches_total committed"] == found[prefix + "batches_total invalid"] == 1
    assert found[prefix + "transactions_total intkey committed 1.0"] == 2
    assert found[prefix + "transactions_total intkey invalid 1.0"] == 1
    assert found[prefix + "requests_total LIST_REQUEST"] == 1
    bench.gone |= {b"one", b"two"}
    bench.processors.probe()
    assert bench.samples()[prefix + "processors intkey 1.0"] == 0


# Waits


def test_a_wait_is_taken_back_by_whoever_asked_and_nobody_else(bench: Bench) -> None:
    async def test() -> None:
        batch = make_batch("pending")
        bench.queue.add(0, batch)
        asked = ClientBatchStatusRequest(batch_ids=[batch.id], wait=True, timeout=60)
        (line,) = bench.send(STATUS, asked, "http-1.1")
        assert (line["outcome"], line["ids"], line["wait_s"], line["correlation_id"]) == ("OK", 1, 60, "http-1.1")
        cancel = StatusWaitCancel(correlation_id="http-1.1").SerializeToString()
        bench.clients.handle(Request(b"another", Envelope.STATUS_WAIT_CANCEL, "http-2.1", cancel))
        assert bench.clients.statuses.waiters == 1
        (line,) = bench.send(Envelope.STATUS_WAIT_CANCEL, cancel, "http-1.2")
        assert (line["outcome"], line["wait"], line["correlation_id"]) == ("OK", "http-1.1", "http-1.2")
        (line,) = bench.send(Envelope.STATUS_WAIT_CANCEL, cancel, "http-1.3")
        assert line["outcome"] == "NO_RESOURCE"
        (line,) = bench.send(Envelope.STATUS_WAIT_CANCEL, b"\x0a\xff")
        assert line["outcome"] == "INTERNAL_ERROR"
        assert (bench.clients.statuses.waiters, bench.sent) == (0, [])

    run(test)


def test_clients_that_are_gone_are_found_by_a_ping(bench: Bench) -> None:
    async def test() -> None:
        batch = make_batch("pending")
        bench.queue.add(0, batch)
        content = ClientBatchStatusRequest(batch_ids=[batch.id], wait=True, timeout=60).SerializeToString()
        for identity in (b"stays", b"leaves"):
            for number in range(3):
                bench.clients.handle(Request(identity, STATUS, str(number), content))
        bench.gone.add(b"leaves")
        bench.clients.probe()
        assert bench.clients.statuses.peers == [b"stays"]
        assert [(identity, kind) for identity, kind, _, _ in bench.sent] == [(b"stays", Envelope.PING_REQUEST)]
        bench.gone.add(b"stays")
        bench.clients.probe()
        assert bench.clients.statuses.waiters == 0
        bench.sent.clear()
        bench.clients.probe()
        assert bench.sent == []

    run(test)


def test_processors_are_listed_as_far_as_a_message_has_room(store: Store) -> None:
    bench = Bench(store, replace(LIMITS, message_bytes_max=4_000))
    for number in range(4):
        request = processor_pb2.TpRegisterRequest(
            family=INTKEY.name, version=INTKEY.version, build_id=f"{number}" * 256, namespaces=["1cf126"] * 40
        )
        content = request.SerializeToString()
        bench.processors.handle(b"%d" % number, Envelope.TP_REGISTER_REQUEST, "", content)
    content = bench.ask(Envelope.PROCESSORS_REQUEST, b"", Envelope.PROCESSORS_RESPONSE)
    told = ProcessorsResponse.FromString(content)
    assert len(content) < 2_000
    assert [entry.families[0].build_id[0] for entry in told.processors] == ["0", "1", "2"]
    assert bench.samples()["dovetail_validator_processor_connections takes_work"] == 4


# Log lines and statuses


def test_reads_are_logged_with_their_outcome(bench: Bench) -> None:
    asked: list[tuple[int, Message | bytes, int, str]] = [
        (Envelope.LIST_REQUEST, ListRequest(resource="BLOCKS"), Envelope.LIST_RESPONSE, "NOT_READY"),
        (Envelope.LIST_REQUEST, b"\x0a\xff", Envelope.LIST_RESPONSE, "INTERNAL_ERROR"),
        (
            Envelope.CLIENT_BLOCK_GET_BY_NUM_REQUEST,
            client_block_pb2.ClientBlockGetByNumRequest(block_num=7),
            Envelope.CLIENT_BLOCK_GET_RESPONSE,
            "NO_RESOURCE",
        ),
        (STATUS, ClientBatchStatusRequest(batch_ids=["x"]), Envelope.CLIENT_BATCH_STATUS_RESPONSE, "OK"),
        (STATUS, ClientBatchStatusRequest(), Envelope.CLIENT_BATCH_STATUS_RESPONSE, "INVALID_ID"),
        (STATUS, _too_long_for_an_id(), Envelope.CLIENT_BATCH_STATUS_RESPONSE, "INVALID_ID"),
        (STATUS, b"\x0a\xff", Envelope.CLIENT_BATCH_STATUS_RESPONSE, "INTERNAL_ERROR"),
        (Envelope.NODE_STATUS_REQUEST, b"", Envelope.NODE_STATUS_RESPONSE, "NOT_READY"),
        (Envelope.METRICS_REQUEST, b"", Envelope.METRICS_RESPONSE, "OK"),
        (Envelope.PROCESSORS_REQUEST, b"", Envelope.PROCESSORS_RESPONSE, "OK"),
    ]
    for message_type, message, answered, outcome in asked:
        bench.ask(message_type, message, answered)
        (line,) = bench.send(message_type, message)
        assert line["outcome"] == outcome


def test_what_a_peer_writes_stays_on_its_line(bench: Bench) -> None:
    for hostile in ("a\nvalidator fell over", "\x1b[2J", "x" * 100_000, "\u2028", "\x85"):
        (line,) = bench.send(Envelope.NODE_STATUS_REQUEST, b"", hostile)
        shown = line["correlation_id"]
        assert shown.isprintable()
        assert len(shown) < 3_000


def test_what_is_no_clients_message_changes_nothing(bench: Bench) -> None:
    for message_type in (Envelope.PING_RESPONSE, Envelope.LIST_RESPONSE, 77_777, -1):
        assert bench.send(message_type) == []
    assert bench.sent == []


# Submissions


def test_a_submission_is_logged_when_it_is_answered(bench: Bench) -> None:
    batch = make_batch("good")
    content = raw_pb2.RawBatchList(batches=[batch.raw]).SerializeToString()
    assert bench.send(SUBMIT, content, "http-1.1") == bench.send(SUBMIT, content, "http-2.1") == []
    (_, accept), (_, refuse) = bench.pool.asked
    accept([batch])
    refuse(RefusedBatch("signature_mismatch", "batch … is signed by nobody"))
    with capture_logs() as lines:
        bench.clients.submissions.accept_checked()
    told = [(line["correlation_id"], line["outcome"], line.get("batches"), line.get("reason")) for line in lines]
    assert sorted(told) == [("http-1.1", "OK", 1, None), ("http-2.1", "INVALID_BATCH", None, "signature_mismatch")]
    assert {line["log_level"] for line in lines} == {"info"}


def test_a_full_queue_refuses_at_the_first_batch_that_it_does_not_know(store: Store) -> None:
    bench = Bench(store, replace(LIMITS, pending_batches_max=2))
    committed, first, second = (make_batch(name) for name in ("committed", "first", "second"))
    commit(store, [committed])
    for arrival, batch in enumerate((first, second)):
        bench.queue.add(arrival, batch)
    opened: list[BatchId] = []
    knows = bench.clients.submissions._knows

    def counting(batch_id: BatchId) -> bool:
        opened.append(batch_id)
        return knows(batch_id)

    bench.clients.submissions._knows = counting  # type: ignore[method-assign]
    new, last = make_batch("new"), make_batch("last")
    answer = bench.submitted(first, new, last)
    assert (answer.status, answer.reason) == (ClientBatchSubmitResponse.QUEUE_FULL, "queue_full")
    assert "2 of at most 2 batches" in answer.message
    assert opened == [first.id, new.id]
    assert bench.submitted(b"\xff" * 10).status == ClientBatchSubmitResponse.QUEUE_FULL
    assert bench.pool.asked == []


def test_a_full_queue_takes_what_it_knows_again(store: Store) -> None:
    bench = Bench(store, replace(LIMITS, pending_batches_max=2))
    committed, first, second = (make_batch(name) for name in ("committed", "first", "second"))
    commit(store, [committed])
    for arrival, batch in enumerate((first, second)):
        bench.queue.add(arrival, batch)
    known = [committed, second]
    content = raw_pb2.RawBatchList(batches=[batch.raw for batch in known]).SerializeToString()
    assert bench.send(SUBMIT, content) == []
    # The node knows both ids, but must still verify the batches, because a copy with a known id may be forged.
    ((raw_batches, verified),) = bench.pool.asked
    assert raw_batches == [batch.raw for batch in known]
    verified(known)
    bench.clients.submissions.accept_checked()
    ((_, message_type, _, answer),) = bench.sent
    assert message_type == SUBMITTED
    assert ClientBatchSubmitResponse.FromString(answer).status == ClientBatchSubmitResponse.OK
    assert len(bench.queue) == 2


def test_a_batch_that_a_list_names_twice_takes_one_place(store: Store) -> None:
    bench = Bench(store, replace(LIMITS, pending_batches_max=2, pending_unserved_percent_max=100))
    bench.queue.add(0, make_batch("pending"))
    new = make_batch("new")
    content = raw_pb2.RawBatchList(batches=[new.raw, new.raw]).SerializeToString()
    assert bench.send(SUBMIT, content) == []
    ((_, verified),) = bench.pool.asked
    verified([new, new])
    bench.clients.submissions.accept_checked()
    ((_, _, _, answer),) = bench.sent
    assert ClientBatchSubmitResponse.FromString(answer).status == ClientBatchSubmitResponse.OK
    assert len(bench.queue) == 2
    assert len(list(store.pending())) == 1


def test_a_full_queue_still_says_what_is_wrong_with_a_list_that_is_none(store: Store) -> None:
    bench = Bench(store, replace(LIMITS, pending_batches_max=1))
    bench.queue.add(0, make_batch("pending"))
    answer = ClientBatchSubmitResponse.FromString(bench.ask(SUBMIT, b"\x0a\xff", SUBMITTED))
    assert (answer.status, answer.reason) == (ClientBatchSubmitResponse.INVALID_BATCH, "not_decodable")
    assert "(2 bytes)" in answer.message
    assert bench.submitted().reason == "no_batches"


def test_a_list_of_more_batches_than_can_ever_be_pending_is_refused_unverified(store: Store) -> None:
    bench = Bench(store, replace(LIMITS, pending_batches_max=3))
    answer = bench.submitted(*[b""] * 4)
    assert (answer.status, answer.reason) == (ClientBatchSubmitResponse.INVALID_BATCH, "too_large")
    assert answer.message == "the list holds 4 batches, at most 3 can be pending"
    assert bench.pool.asked == []


def test_one_connection_takes_the_verification_of_no_other(store: Store) -> None:
    batch = make_batch("first")
    content = raw_pb2.RawBatchList(batches=[batch.raw]).SerializeToString()
    size = len(content)
    bench = Bench(store, replace(LIMITS, connection_checking_bytes_max=2 * size))
    for _ in range(2):
        assert bench.send(SUBMIT, content) == []
    answer = bench.submitted(batch)
    assert (answer.status, answer.reason) == (ClientBatchSubmitResponse.QUEUE_FULL, "queue_full")
    assert answer.message == (
        f"{2 * size} bytes of batches of this connection are being verified, {size} more are over its {2 * size}"
    )
    bench.sent.clear()
    bench.clients.handle(Request(b"another", SUBMIT, "http-2.1", content))
    assert (bench.sent, len(bench.pool.asked)) == ([], 3)
    for _, verified in bench.pool.asked:
        verified([batch])
    assert not bench.clients.submissions._checking_bytes_of
    # The disk has space again.
    assert bench.send(SUBMIT, content) == []


def test_statuses_stand_in_the_order_asked(bench: Bench) -> None:
    committed, pending = make_batch("committed"), make_batch("pending")
    commit(bench.store, [committed])
    bench.queue.add(0, pending)
    asked = ClientBatchStatusRequest(batch_ids=[pending.id, make_id("?"), committed.id, "no id"])
    answer = ClientBatchStatusResponse.FromString(bench.ask(STATUS, asked, Envelope.CLIENT_BATCH_STATUS_RESPONSE))
    assert [status.batch_id for status in answer.batch_statuses] == list(asked.batch_ids)
    names = [status.Status.Name(status.status) for status in answer.batch_statuses]
    assert names == ["PENDING", "UNKNOWN", "COMMITTED", "UNKNOWN"]


def test_who_asks_for_a_damaged_index_or_hands_such_a_batch_in_ends_no_node(tmp_path: Path) -> None:
    """The status is neither COMMITTED nor UNKNOWN, because it cannot be read."""

    async def test() -> None:
        store: Any = open_store(tmp_path)
        batch = make_batch("genesis", make_transaction("genesis"))
        commit(store, [batch])
        store._end_snapshot()
        with store._env.begin(write=True) as transaction:
            transaction.put(bytes.fromhex(batch.id), b"not what was written", db=store._tables["batch_ids"])
        store._begin_snapshot()
        bench = Bench(store)
        for wait in (False, True):
            bench.sent.clear()
            bench.send(STATUS, ClientBatchStatusRequest(batch_ids=[batch.id], wait=wait, timeout=1))
            ((*_, content),) = bench.sent
            told = ClientBatchStatusResponse.FromString(content)
            assert told == ClientBatchStatusResponse(status="INTERNAL_ERROR", message=DAMAGED)
        bench.send(SUBMIT, raw_pb2.RawBatchList(batches=[batch.raw]))
        ((_, on_verified),) = bench.pool.asked
        on_verified([batch])
        bench.clients.submissions.accept_checked()
        answer = ClientBatchSubmitResponse.FromString(bench.sent[-1][3])
        assert (answer.status, answer.reason) == (ClientBatchSubmitResponse.INTERNAL_ERROR, "storage_failed")
        assert "of the table batch_ids is not what was written" in answer.message
        store.close()

    run(test)
