"""Dropping pending batches for the operator: what is selected, counted, dropped and refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail import rest_api
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.client_api.drops import DROPPED_MAX
from dovetail.validator.core.mempool.queue import INJECTED
from dovetail.validator.metrics import DropCause
from dovetail.validator.store import StorageFailed, Store
from protos.client_batch_submit_pb2 import ClientBatchStatus
from protos.node_pb2 import PendingDropRequest, PendingDropResponse
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.activations import status_of, told
from tests.dovetail.validator.client_api.test_clients import Bench
from tests.dovetail.validator.nodes import open_node, open_peers, register, signed_batch
from tests.dovetail.validator.peers import Peer, run
from tests.dovetail.validator.support import commit, make_batch, make_transaction, open_store

ASK, TOLD = Envelope.PENDING_DROP_REQUEST, Envelope.PENDING_DROP_RESPONSE
OLD, NEW, OTHER = FamilyVersion("f", "1"), FamilyVersion("f", "2"), FamilyVersion("g", "1")
BATCHES = {
    name: make_batch(name, *(make_transaction((name, family), family=family) for family in families), signer=signer)
    for name, signer, families in (
        ("a", "alice", [OLD]),
        ("b", "bob", [NEW]),
        ("c", "alice", [OTHER, OLD]),
        ("d", "bob", [OTHER]),
    )
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path)
    commit(made, [make_batch("genesis")])
    yield made
    made.close()


@pytest.fixture
def bench(store: Store) -> Bench:
    made = Bench(store)
    for arrival, batch in enumerate(BATCHES.values()):
        made.queue.add(arrival, batch)
    return made


def asked(bench: Bench, **fields: Any) -> PendingDropResponse:
    return PendingDropResponse.FromString(bench.ask(ASK, PendingDropRequest(**fields), TOLD))


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"batch_ids": [BATCHES["a"].id, BATCHES["d"].id, "unknown"]}, "ad"),
        ({"batch_ids": ["unknown"]}, ""),
        ({"family_name": "f"}, "abc"),
        ({"family_name": "f", "family_version": "1"}, "ac"),
        ({"family_name": "f", "family_version": "3"}, ""),
        ({"signer_pubkey": "bob"}, "bd"),
        ({"signer_pubkey": "nobody"}, ""),
    ],
)
def test_ids_families_and_signers_select(bench: Bench, fields: dict[str, Any], names: str) -> None:
    counted = asked(bench, count_only=True, **fields)
    assert (counted.status, counted.batches, counted.left) == (PendingDropResponse.OK, len(names), 0)
    assert bench.dropped == []
    answer = asked(bench, reason="why\nnot", **fields)
    assert (answer.status, answer.batches, answer.left) == (PendingDropResponse.OK, len(names), 0)
    batches = [BATCHES[name] for name in names]
    words = "the operator dropped it: 'why\\nnot'"
    assert bench.dropped == ([(batches, DropCause.OPERATOR, words)] if names else [])


def test_a_count_names_the_largest_families_and_signers(bench: Bench) -> None:
    counted = asked(bench, count_only=True)
    assert counted.batches == 4
    families = [(each.family_name, each.family_version, each.batches) for each in counted.families]
    assert families == [("f", "1", 2), ("g", "1", 2), ("f", "2", 1)]
    assert [(each.signer_pubkey, each.batches) for each in counted.signers] == [("alice", 2), ("bob", 2)]
    for number in range(100):
        one = make_transaction(number, family=FamilyVersion(str(number), "1"))
        bench.queue.add(10 + number, make_batch(number, one, signer=str(number)))
    counted = asked(bench, count_only=True)
    assert (counted.batches, len(counted.families), len(counted.signers)) == (104, 10, 10)


def test_what_a_block_runs_stays_and_is_told(bench: Bench) -> None:
    running = bench.queue.pop_ready()
    assert running is not None
    answer = asked(bench, family_name="f")
    assert (answer.batches, answer.executing, answer.left) == (2, 1, 0)
    # A migration is nobody's batch, and the node would make it again.
    migration = make_batch("migration", make_transaction("migration", family=OLD))
    bench.queue.inject(migration)
    assert asked(bench, batch_ids=[migration.id]).batches == 0
    entry = bench.queue.get(migration.id)
    assert entry is not None
    assert entry.arrival == INJECTED


def test_one_request_drops_a_bounded_number(bench: Bench) -> None:
    for number in range(DROPPED_MAX):
        bench.queue.add(10 + number, make_batch(number, signer="alice"))
    answer = asked(bench, signer_pubkey="alice")
    assert (answer.batches, answer.left) == (DROPPED_MAX, 2)
    assert asked(bench, signer_pubkey="alice", count_only=True).batches == DROPPED_MAX + 2


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "0 of batch ids, family and signer are given"),
        ({"batch_ids": ["x"], "family_name": "f"}, "2 of batch ids"),
        ({"family_name": "f", "signer_pubkey": "alice", "count_only": True}, "2 of batch ids"),
        ({"batch_ids": ["x"] * 1_001}, "1001 batch ids are given, at most 1000"),
    ],
)
def test_what_selects_nothing_or_twice_is_refused(bench: Bench, fields: dict[str, Any], words: str) -> None:
    answer = asked(bench, **fields)
    assert answer.status == PendingDropResponse.INVALID_REQUEST
    assert words in answer.message
    assert bench.dropped == []


def test_what_is_no_request_is_refused(bench: Bench) -> None:
    answer = PendingDropResponse.FromString(bench.ask(ASK, b"\xff", TOLD))
    assert answer.status == PendingDropResponse.INVALID_REQUEST


def test_genesis_batches_stay(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    try:
        bench = Bench(store)
        bench.queue.add(0, BATCHES["a"])
        answer = asked(bench, family_name="f")
        assert (answer.status, answer.message) == (
            PendingDropResponse.INVALID_REQUEST,
            "the validator has no genesis block yet",
        )
    finally:
        store.close()


def test_a_disk_that_refuses_is_told(bench: Bench) -> None:
    bench.disk_is_full = True
    bench.store.failure = "the disk is full"
    answer = asked(bench, family_name="f")
    assert (answer.status, answer.batches) == (PendingDropResponse.STORAGE_FAILED, 0)
    assert answer.message == "the disk is full"


async def _drop(client: Peer, **fields: Any) -> PendingDropResponse:
    answer: PendingDropResponse = await told(
        client, PendingDropRequest(**fields).SerializeToString(), ASK, TOLD, PendingDropResponse
    )
    return answer


def test_a_node_forgets_what_is_dropped_and_tells_who_waits(tmp_path: Path) -> None:
    async def test() -> None:
        unwanted, kept = signed_batch("unwanted", family="unserved"), signed_batch("kept")
        async with open_node(tmp_path, unwanted, kept) as node, open_peers(node, 3) as (client, operator, processor):
            waiting = node._loop.create_task(status_of(client, unwanted, wait=True))
            # The client's wait is there before the operator's request, which comes over another connection.
            while not node._clients.statuses.waiters:
                await operator.ping()
            assert (await _drop(operator, batch_ids=[unwanted.id])).batches == 1
            assert (await waiting).status == ClientBatchStatus.UNKNOWN
            assert [raw for _, raw in node._store.pending()] == [kept.raw]
            assert (await status_of(client, kept)).status == ClientBatchStatus.PENDING
            # A batch at a processor stays until the processor has answered.
            await register(processor)
            await processor.receive()
            answer = await _drop(operator, batch_ids=[kept.id])
            assert (answer.batches, answer.executing) == (0, 1)

    run(test)


def test_a_node_drops_nothing_that_its_disk_keeps(tmp_path: Path) -> None:
    async def test() -> None:
        batch = signed_batch("unwanted")
        async with open_node(tmp_path, batch) as node, open_peers(node, 1) as (operator,):

            def refuse(*_: object) -> None:
                raise StorageFailed("full")

            node._store.reject = refuse  # type: ignore[assignment, method-assign]
            assert (await _drop(operator, batch_ids=[batch.id])).status == PendingDropResponse.STORAGE_FAILED
            assert (await status_of(operator, batch)).status == ClientBatchStatus.PENDING

    run(test)


def test_no_rest_api_asks_for_it() -> None:
    sources = list(Path(rest_api.__file__).parent.rglob("*.py"))
    assert len(sources) > 10
    assert [path for path in sources if "PENDING_DROP" in path.read_text(encoding="utf-8")] == []
