"""Damaged records are never returned as a batch, transaction, block, receipt or leaf."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dovetail.ledger.ids import BatchId, TransactionId
from dovetail.validator.core.journal.model import InvalidBatch
from dovetail.validator.store import StorageDamaged, StorageFailed
from dovetail.validator.store.records import TABLES, opened, sealed
from protos import client_batch_pb2, client_block_pb2, client_receipt_pb2, client_state_pb2, client_transaction_pb2
from protos.query_pb2 import ListRequest, ListResponse
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.cli.commands.flipped import lead_nowhere
from tests.dovetail.validator.chain import Chain
from tests.dovetail.validator.support import LIMITS, address, make_commit, make_id, open_store


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    made = Chain(tmp_path)
    yield made
    made.store.close()


DAMAGED = (
    "what was asked for is damaged on this node, and is not shown: its operator must repair the store or restore a"
    " backup; the validator's log says what it is"
)


def damage(store: Any, table: str) -> None:
    """Flip the lowest bit in the middle of every record of a table."""
    store._nodes.clear()
    with store._env.begin(write=True) as transaction, transaction.cursor(db=store._tables[table]) as cursor:
        for name, record in list(cursor):
            at = len(record) // 2
            transaction.put(name, record[:at] + bytes((record[at] ^ 1,)) + record[at + 1 :], db=store._tables[table])
    store._end_snapshot()
    store._begin_snapshot()


def asked(chain: Chain) -> dict[str, tuple[int, Any, Any]]:
    """For each table, a query whose answer needs that table: message type, request, response."""
    batch = chain.batches[1][0]
    info = chain.infos[1]
    return {
        "blocks": (
            Envelope.CLIENT_BLOCK_GET_BY_NUM_REQUEST,
            client_block_pb2.ClientBlockGetByNumRequest(block_num=1),
            client_block_pb2.ClientBlockGetResponse,
        ),
        "block_ids": (
            Envelope.CLIENT_BLOCK_GET_BY_ID_REQUEST,
            client_block_pb2.ClientBlockGetByIdRequest(block_id=info.id),
            client_block_pb2.ClientBlockGetResponse,
        ),
        "batches": (
            Envelope.CLIENT_BATCH_GET_REQUEST,
            client_batch_pb2.ClientBatchGetRequest(batch_id=batch.id),
            client_batch_pb2.ClientBatchGetResponse,
        ),
        "batch_ids": (
            Envelope.CLIENT_BATCH_GET_REQUEST,
            client_batch_pb2.ClientBatchGetRequest(batch_id=batch.id),
            client_batch_pb2.ClientBatchGetResponse,
        ),
        "transactions": (
            Envelope.CLIENT_RECEIPT_GET_REQUEST,
            client_receipt_pb2.ClientReceiptGetRequest(transaction_ids=[batch.transactions[0].id]),
            client_receipt_pb2.ClientReceiptGetResponse,
        ),
        "transaction_ids": (
            Envelope.CLIENT_TRANSACTION_GET_REQUEST,
            client_transaction_pb2.ClientTransactionGetRequest(transaction_id=batch.transactions[0].id),
            client_transaction_pb2.ClientTransactionGetResponse,
        ),
        "nodes": (
            Envelope.CLIENT_STATE_GET_REQUEST,
            client_state_pb2.ClientStateGetRequest(address=address(13)),
            client_state_pb2.ClientStateGetResponse,
        ),
    }


@pytest.mark.parametrize("table", ["invalid", "invalid_order", "invalid_transactions", "invalid_transactions_order"])
def test_a_damaged_record_of_an_invalid_batch_stops_no_block(tmp_path: Path, table: str) -> None:
    limits = replace(LIMITS, invalid_batches_remembered=3, invalid_transactions_remembered=3)
    store = open_store(tmp_path, limits)
    names = [make_id(number) for number in range(9)]
    entries = [
        InvalidBatch(BatchId(name), "invalid_transaction", "no", transaction_ids=(TransactionId(name),))
        for name in names
    ]
    store.reject(entries[:3], [])
    damage(store, table)
    # A damaged order record is met when it is over the limit, another record when its batch is judged again.
    for again in (entries[3:6], entries[6:]) if table.endswith("_order") else (entries[:3], entries[6:]):
        head = store.head
        store.commit_block(make_commit(store, [], invalid=again))
        assert store.head != head
    assert [store.invalid(entry.batch_id) is not None for entry in entries[6:]] == [True] * 3
    assert [store.judged_invalid(TransactionId(name)) for name in names[6:]] == [True] * 3
    store.close()


@pytest.mark.parametrize(
    "table", ["blocks", "block_ids", "batches", "batch_ids", "transactions", "transaction_ids", "nodes"]
)
def test_no_answer_is_made_of_a_damaged_record(chain: Chain, table: str) -> None:
    message_type, question, response = asked(chain)[table]
    assert chain.queries.answer(message_type, question.SerializeToString()).status == "OK"
    damage(chain.store, table)
    answer = chain.queries.answer(message_type, question.SerializeToString())
    assert answer.status == "INTERNAL_ERROR"
    message = {"message": DAMAGED} if "message" in response.DESCRIPTOR.fields_by_name else {}
    assert response.FromString(answer.content) == response(status="INTERNAL_ERROR", **message)
    assert bool(message) == (table not in ("transactions", "nodes"))
    assert chain.store.damaged_reads == 1
    assert f"of the table {table} is not what was written" in chain.store.damage


@pytest.mark.parametrize(
    ("resource", "table"),
    [
        (ListRequest.BLOCKS, "batches"),
        (ListRequest.BATCHES, "batches"),
        (ListRequest.TRANSACTIONS, "transactions"),
        (ListRequest.STATE, "nodes"),
    ],
)
def test_no_list_is_made_of_a_damaged_record(chain: Chain, resource: int, table: str) -> None:
    assert chain.list(resource=resource).items
    damage(chain.store, table)
    assert chain.list(resource=resource) == ListResponse(status=ListResponse.INTERNAL_ERROR, message=DAMAGED)


def test_a_node_that_is_missing_is_damage(chain: Chain) -> None:
    store: Any = chain.store
    with pytest.raises(StorageDamaged, match="the store lacks entry 999 of nodes"):
        store.node(999)
    assert (store.damaged_reads, store.damage) == (1, "the store lacks entry 999 of nodes")


def test_a_page_that_cannot_be_read_costs_no_other_read(tmp_path: Path) -> None:
    """After a failed read, LMDB refuses all further reads in the same snapshot.

    Other reads must succeed all the same.
    """
    made = Chain(tmp_path)
    made.store.close()
    file = tmp_path / "store" / "data.mdb"
    content = bytearray(file.read_bytes())
    lead_nowhere(content, b"batch_ids")
    file.write_bytes(content)
    store = open_store(tmp_path)
    try:
        for times in (1, 2):
            with pytest.raises(StorageDamaged, match="the table batch_ids cannot be read"):
                store.batch_number(made.batches[1][0].id)
            assert store.damaged_reads == times
            assert store.block(1) == made.infos[1]
    finally:
        store.close()


def test_a_record_belongs_to_its_table_and_its_key() -> None:
    for table in TABLES:
        record = sealed(table, b"key", b"content")
        assert [other for other in TABLES if opened(other, b"key", record) == b"content"] == [table]
        assert opened(table, b"kez", record) is None


def test_the_state_of_a_pruned_block_is_refused_with_what_is_there(chain: Chain) -> None:
    assert not chain.store.prune(2)
    answer = chain.list(resource=ListRequest.STATE, head="1")
    assert answer.status == ListResponse.HEAD_NOT_FOUND
    assert answer.message == "the state after block 1 is pruned; kept are those of blocks 3 and later"
    for head in (3, 4):
        assert chain.list(resource=ListRequest.STATE, head=str(head)).items
    # Only states are unreadable. Everything else is there as before.
    assert chain.list(resource=ListRequest.BATCHES, head="1").total_count == 3


def test_a_damaged_pending_batch_has_no_bytes_and_costs_no_other_its_place(chain: Chain) -> None:
    chain.store.add_pending([b"one", b"two", b"three"])
    store: Any = chain.store
    with store._env.begin(write=True) as transaction:
        transaction.put((1).to_bytes(8, "big"), b"damaged record", db=store._tables["pending"])
    store.refresh()
    assert list(chain.store.pending()) == [(0, b"one"), (1, b""), (2, b"three")]
    with pytest.raises(StorageFailed, match="entry 1 of the table pending is not what was written"):
        list(chain.store.entries("pending"))
