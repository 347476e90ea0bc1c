"""The get messages of the 1.x protocol: the result of each id, and the status of unknown ones."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.message import Message

from dovetail.ledger.limits import Limits
from dovetail.validator.client_api.queries import Queries
from protos import client_batch_pb2, client_block_pb2, client_receipt_pb2, client_state_pb2, client_transaction_pb2
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.chain import Chain
from tests.dovetail.validator.support import LIMITS, address, make_id


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    made = Chain(tmp_path_factory.mktemp("chain"))
    yield made
    made.store.close()


def test_blocks_are_got_by_each_of_their_names(chain: Chain) -> None:
    asked: list[tuple[int, Message, int]] = []
    for num, info in enumerate(chain.infos):
        asked.append(
            (Envelope.CLIENT_BLOCK_GET_BY_ID_REQUEST, client_block_pb2.ClientBlockGetByIdRequest(block_id=info.id), num)
        )
        asked.append(
            (Envelope.CLIENT_BLOCK_GET_BY_NUM_REQUEST, client_block_pb2.ClientBlockGetByNumRequest(block_num=num), num)
        )
        for batch in chain.batches[num]:
            by_batch = client_block_pb2.ClientBlockGetByBatchIdRequest(batch_id=batch.id)
            asked.append((Envelope.CLIENT_BLOCK_GET_BY_BATCH_ID_REQUEST, by_batch, num))
            for transaction in batch.transactions:
                by_transaction = client_block_pb2.ClientBlockGetByTransactionIdRequest(transaction_id=transaction.id)
                asked.append((Envelope.CLIENT_BLOCK_GET_BY_TRANSACTION_ID_REQUEST, by_transaction, num))
    for message_type, request, num in asked:
        response = chain.get(message_type, request, client_block_pb2.ClientBlockGetResponse)
        assert response.status == client_block_pb2.ClientBlockGetResponse.OK
        assert response.block.header_signature == chain.infos[num].id
        assert response.block.header == chain.infos[num].header_bytes
        assert [batch.header_signature for batch in response.block.batches] == [b.id for b in chain.batches[num]]


def test_batches_transactions_receipts_and_leaves_are_got(chain: Chain) -> None:
    batch = chain.batches[2][0]
    got = chain.get(
        Envelope.CLIENT_BATCH_GET_REQUEST,
        client_batch_pb2.ClientBatchGetRequest(batch_id=batch.id),
        client_batch_pb2.ClientBatchGetResponse,
    )
    assert (got.status, got.batch.SerializeToString()) == (got.OK, batch.raw)
    ids = [transaction.id for transaction in batch.transactions]
    for transaction in batch.transactions:
        got = chain.get(
            Envelope.CLIENT_TRANSACTION_GET_REQUEST,
            client_transaction_pb2.ClientTransactionGetRequest(transaction_id=transaction.id),
            client_transaction_pb2.ClientTransactionGetResponse,
        )
        assert (got.status, got.transaction.SerializeToString()) == (got.OK, transaction.raw)
    got = chain.get(
        Envelope.CLIENT_RECEIPT_GET_REQUEST,
        client_receipt_pb2.ClientReceiptGetRequest(transaction_ids=ids),
        client_receipt_pb2.ClientReceiptGetResponse,
    )
    assert (got.status, [receipt.transaction_id for receipt in got.receipts]) == (got.OK, ids)
    root = chain.infos[-1].state_root
    for name, value in chain.states[-1].items():
        for state_root in ("", root):
            request = client_state_pb2.ClientStateGetRequest(address=name, state_root=state_root)
            got = chain.get(Envelope.CLIENT_STATE_GET_REQUEST, request, client_state_pb2.ClientStateGetResponse)
            assert (got.status, got.value, got.state_root) == (got.OK, value, root)


ById = client_block_pb2.ClientBlockGetByIdRequest
ByTransaction = client_block_pb2.ClientBlockGetByTransactionIdRequest
ByBatch = client_block_pb2.ClientBlockGetByBatchIdRequest
GetBlock = client_block_pb2.ClientBlockGetResponse


@pytest.mark.parametrize(
    ("message_type", "request_type", "response_type"),
    [
        (104, ById, GetBlock),
        (127, ByTransaction, GetBlock),
        (128, ByBatch, GetBlock),
        (108, client_batch_pb2.ClientBatchGetRequest, client_batch_pb2.ClientBatchGetResponse),
        (112, client_transaction_pb2.ClientTransactionGetRequest, client_transaction_pb2.ClientTransactionGetResponse),
        (122, client_receipt_pb2.ClientReceiptGetRequest, client_receipt_pb2.ClientReceiptGetResponse),
    ],
)
@pytest.mark.parametrize(
    ("text", "status"),
    [(make_id("nothing"), "NO_RESOURCE"), ("", "INVALID_ID"), ("A" * 128, "INVALID_ID"), ("zz", "INVALID_ID")],
)
def test_ids_that_name_nothing(
    chain: Chain, message_type: int, request_type: Any, response_type: Any, text: str, status: str
) -> None:
    (field,) = request_type.DESCRIPTOR.fields
    request = request_type(**{field.name: [text] if field.name == "transaction_ids" else text})
    response = chain.get(message_type, request, response_type)
    assert response.Status.Name(response.status) == status


@pytest.mark.parametrize("num", [5, 2**63, 2**64 - 1])
def test_block_numbers_that_name_nothing(chain: Chain, num: int) -> None:
    request = client_block_pb2.ClientBlockGetByNumRequest(block_num=num)
    got = chain.get(Envelope.CLIENT_BLOCK_GET_BY_NUM_REQUEST, request, client_block_pb2.ClientBlockGetResponse)
    assert got.status == got.NO_RESOURCE


@pytest.mark.parametrize(
    ("name", "state_root", "status"),
    [
        (address(12_345), "", "NO_RESOURCE"),
        (address(1)[:-2], "", "INVALID_ADDRESS"),
        (address(1).upper(), "", "INVALID_ADDRESS"),
        ("", "", "INVALID_ADDRESS"),
        (address(1), "00" * 32, "NO_ROOT"),
        (address(1), "zz", "NO_ROOT"),
    ],
)
def test_leaves_that_are_none(chain: Chain, name: str, state_root: str, status: str) -> None:
    request = client_state_pb2.ClientStateGetRequest(address=name, state_root=state_root)
    got = chain.get(Envelope.CLIENT_STATE_GET_REQUEST, request, client_state_pb2.ClientStateGetResponse)
    assert got.Status.Name(got.status) == status


def test_undecodable_requests_are_answered(chain: Chain) -> None:
    for message_type, (_, response_type, response, _) in Queries.TABLE.items():
        answer = chain.queries.answer(message_type, b"\x0a\xff")
        assert (answer.message_type, answer.status) == (response_type, "INTERNAL_ERROR")
        decoded: Any = type(response()).FromString(answer.content)
        assert decoded.Status.Name(decoded.status) == "INTERNAL_ERROR"
        chain.queries.answer(message_type, b"")


def test_receipts_are_bounded_by_a_page(chain: Chain) -> None:
    ids = [transaction.id for batches in chain.batches for batch in batches for transaction in batch.transactions]

    def status(limits: Limits, asked: Sequence[str]) -> str:
        request = client_receipt_pb2.ClientReceiptGetRequest(transaction_ids=asked).SerializeToString()
        answer = Queries(chain.store, limits).answer(Envelope.CLIENT_RECEIPT_GET_REQUEST, request)
        response = client_receipt_pb2.ClientReceiptGetResponse.FromString(answer.content)
        assert len(response.receipts) in (0, len(asked))
        return response.Status.Name(response.status)

    assert status(LIMITS, ids) == "OK"
    assert status(replace(LIMITS, page_items_max=3), ids[:3]) == "OK"
    assert status(replace(LIMITS, page_items_max=3), ids[:4]) == "INTERNAL_ERROR"
    assert status(replace(LIMITS, page_bytes_max=1), ids[:1]) == "OK"
    assert status(replace(LIMITS, page_bytes_max=1), ids[:2]) == "INTERNAL_ERROR"
