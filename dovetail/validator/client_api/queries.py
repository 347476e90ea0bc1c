"""Reads chain and state for clients: the get messages of the 1.x protocol, and lists by index (protos/query.proto).

A page costs O(count + log n): positions are computed from the store's numbers of blocks, batches and transactions, and
from the leaf counts of the trie. Reads only; nothing here waits.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import structlog
from google.protobuf.message import DecodeError, Message

from dovetail.ledger.addresses import ADDRESS_CHARACTERS, is_address, is_prefix
from dovetail.ledger.block import encode_block
from dovetail.ledger.ids import BatchId, BlockId, TransactionId, is_id
from dovetail.ledger.limits import Limits
from dovetail.validator.client_api.lists import List, block_finder, newest_block_first, select
from dovetail.validator.core.state import merkle, walk
from dovetail.validator.core.state.nodes import EMPTY
from dovetail.validator.store import BlockInfo, StorageFailed, Store
from protos import raw_pb2, state_context_pb2
from protos.client_batch_pb2 import ClientBatchGetRequest, ClientBatchGetResponse
from protos.client_block_pb2 import (
    ClientBlockGetByBatchIdRequest,
    ClientBlockGetByIdRequest,
    ClientBlockGetByNumRequest,
    ClientBlockGetByTransactionIdRequest,
    ClientBlockGetResponse,
)
from protos.client_receipt_pb2 import ClientReceiptGetRequest, ClientReceiptGetResponse
from protos.client_state_pb2 import ClientStateGetRequest, ClientStateGetResponse
from protos.client_transaction_pb2 import ClientTransactionGetRequest, ClientTransactionGetResponse
from protos.query_pb2 import ListRequest, ListResponse
from protos.validator_pb2 import Message as Envelope

_DIGITS_MAX: Final = 18
_BLOCK: Final = (Envelope.CLIENT_BLOCK_GET_RESPONSE, ClientBlockGetResponse)
_BATCH: Final = (Envelope.CLIENT_BATCH_GET_RESPONSE, ClientBatchGetResponse)
_TRANSACTION: Final = (Envelope.CLIENT_TRANSACTION_GET_RESPONSE, ClientTransactionGetResponse)
_RECEIPTS: Final = (Envelope.CLIENT_RECEIPT_GET_RESPONSE, ClientReceiptGetResponse)
_LEAF: Final = (Envelope.CLIENT_STATE_GET_RESPONSE, ClientStateGetResponse)

DAMAGED: Final = (
    "what was asked for is damaged on this node, and is not shown: its operator must repair the store or restore a"
    " backup; the validator's log says what it is"
)
"""The message to clients, without details that only the operator can use."""

log = structlog.get_logger("validator.queries")


class _Refused(Exception):
    def __init__(self, status: "ListResponse.Status", message: str) -> None:
        super().__init__(message)
        self.status = status


class QueryAnswer(NamedTuple):
    """``status``: the name of the response's status."""

    message_type: int
    content: bytes
    status: str


class Queries:
    """Answers the message types of ``TABLE``."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._opened: tuple[int, list[bytes]] = (-1, [])

    def answer(self, message_type: int, content: bytes) -> "QueryAnswer":
        request_type, response_type, response_class, answer = self.TABLE[message_type]
        response: Any
        try:
            response = answer(self, request_type.FromString(content))
        except DecodeError:
            response = response_class(status="INTERNAL_ERROR")
        except StorageFailed as failure:
            log.error("the store is damaged, a client gets no answer", reason=str(failure))
            response = response_class(status="INTERNAL_ERROR")
            # The 1.x responses have no field for a message.
            if hasattr(response, "message"):
                response.message = DAMAGED
        return QueryAnswer(response_type, response.SerializeToString(), response.Status.Name(response.status))

    @property
    def _head_id(self) -> str:
        return self._store.head.id if self._store.head else ""

    def _block_by_id(self, request: ClientBlockGetByIdRequest) -> Message:
        if not is_id(request.block_id):
            return ClientBlockGetResponse(status="INVALID_ID")
        return self._block(self._store.block_num(BlockId(request.block_id)))

    def _block_by_num(self, request: ClientBlockGetByNumRequest) -> Message:
        return self._block(request.block_num)

    def _block_by_batch(self, request: ClientBlockGetByBatchIdRequest) -> Message:
        if not is_id(request.batch_id):
            return ClientBlockGetResponse(status="INVALID_ID")
        number = self._store.batch_number(BatchId(request.batch_id))
        return self._block(None if number is None else self._store.batch(number).block_num)

    def _block_by_transaction(self, request: ClientBlockGetByTransactionIdRequest) -> Message:
        if not is_id(request.transaction_id):
            return ClientBlockGetResponse(status="INVALID_ID")
        number = self._store.transaction_number(TransactionId(request.transaction_id))
        return self._block(None if number is None else self._store.block_of_transaction(number).num)

    def _block(self, num: int | None) -> Message:
        info = None if num is None else self._store.block(num)
        if info is None:
            return ClientBlockGetResponse(status="NO_RESOURCE", head_id=self._head_id)
        # The parsed bytes are serialized again at once: the response has no raw form. It holds one block only.
        response = ClientBlockGetResponse(status="OK", head_id=self._head_id)
        response.block.ParseFromString(self._raw_block(info))
        return response

    def _batch(self, request: ClientBatchGetRequest) -> Message:
        if not is_id(request.batch_id):
            return ClientBatchGetResponse(status="INVALID_ID")
        number = self._store.batch_number(BatchId(request.batch_id))
        if number is None:
            return ClientBatchGetResponse(status="NO_RESOURCE", head_id=self._head_id)
        response = ClientBatchGetResponse(status="OK", head_id=self._head_id)
        response.batch.ParseFromString(self._store.batch(number).raw)
        return response

    def _transaction(self, request: ClientTransactionGetRequest) -> Message:
        if not is_id(request.transaction_id):
            return ClientTransactionGetResponse(status="INVALID_ID")
        number = self._store.transaction_number(TransactionId(request.transaction_id))
        if number is None:
            return ClientTransactionGetResponse(status="NO_RESOURCE", head_id=self._head_id)
        response = ClientTransactionGetResponse(status="OK", head_id=self._head_id)
        response.transaction.ParseFromString(self._raw_transaction(number))
        return response

    def _receipts(self, request: ClientReceiptGetRequest) -> Message:
        if len(request.transaction_ids) > self._limits.page_items_max:
            return ClientReceiptGetResponse(status="INTERNAL_ERROR")
        response = ClientReceiptGetResponse(status="OK")
        left = self._limits.page_bytes_max
        for transaction_id in request.transaction_ids:
            if not is_id(transaction_id):
                return ClientReceiptGetResponse(status="INVALID_ID")
            number = self._store.transaction_number(TransactionId(transaction_id))
            if number is None:
                return ClientReceiptGetResponse(status="NO_RESOURCE")
            receipt = self._store.transaction(number).receipt
            left -= len(receipt)
            if left < 0 and response.receipts:
                return ClientReceiptGetResponse(status="INTERNAL_ERROR")
            response.receipts.add().ParseFromString(receipt)
        return response

    def _state_leaf(self, request: ClientStateGetRequest) -> Message:
        head = self._store.head
        if head is None:
            return ClientStateGetResponse(status="NOT_READY")
        if not is_address(request.address):
            return ClientStateGetResponse(status="INVALID_ADDRESS")
        if request.state_root and request.state_root != head.state_root:
            return ClientStateGetResponse(status="NO_ROOT")
        value = merkle.get(self._store.node, head.root, request.address)
        if value is None:
            return ClientStateGetResponse(status="NO_RESOURCE", state_root=head.state_root)
        return ClientStateGetResponse(status="OK", value=value, state_root=head.state_root)

    def _list(self, request: ListRequest) -> Message:
        try:
            return self._page(request)
        except _Refused as refused:
            return ListResponse(status=refused.status, message=str(refused))

    def _page(self, request: ListRequest) -> ListResponse:
        head = self._find_head(request.head)
        listed = self._open(request, head)
        if request.ids:
            listed = select(listed, request.ids[: self._limits.page_items_max], self._limits.page_bytes_max)
        start, end = self._bounds(request, listed)
        if request.max and not request.min:
            # The request names the end of the page, so entries that do not fit are left out at the page's beginning.
            kept = self._cut(listed.items(range(end - 1, start - 1, -1)))[::-1]
            start = end - len(kept)
        else:
            kept = self._cut(listed.items(range(start, end)))
        return ListResponse(status="OK", head_id=head.id, items=kept, start_index=start, total_count=listed.total)

    def _find_head(self, text: str) -> BlockInfo:
        head = self._store.head
        if head is None:
            raise _Refused(ListResponse.NOT_READY, "there is no genesis block yet")
        if not text:
            return head
        num = self._store.block_num(BlockId(text)) if is_id(text) else _index(text)
        block = None if num is None else self._store.block(num)
        if block is None:
            raise _Refused(
                ListResponse.HEAD_NOT_FOUND, f"head {text[:140]!r} names no block; the chain ends at block {head.num}"
            )
        return block

    def _open(self, request: ListRequest, head: BlockInfo) -> List:
        if request.resource == ListRequest.BLOCKS:
            return self._blocks(head)
        if request.resource == ListRequest.BATCHES:
            return self._batches(head)
        if request.resource == ListRequest.TRANSACTIONS:
            return self._transactions(head)
        if request.resource == ListRequest.STATE:
            return self._state(head, request.address)
        raise _Refused(ListResponse.INVALID_RESOURCE, f"there is no list of resource {request.resource}")

    def _blocks(self, head: BlockInfo) -> List:
        def number(text: str) -> int | None:
            num = self._store.block_num(BlockId(text)) if is_id(text) else None
            return None if num is None or num > head.num else num

        def position(text: str) -> int | None:
            num = number(text)
            return None if num is None else head.num - num

        def item(num: int) -> bytes:
            return self._raw_block(self._store.required_block(num))

        def items(indexes: range) -> Iterator[bytes]:
            return (item(head.num - index) for index in indexes)

        return List(head.num + 1, position, items, number, item)

    def _batches(self, head: BlockInfo) -> List:
        store = self._store
        return newest_block_first(
            head.batch_end,
            lambda text: store.batch_number(BatchId(text)),
            block_finder(store, store.block_of_batch, lambda block: block.batches),
            lambda number: store.batch(number).raw,
        )

    def _transactions(self, head: BlockInfo) -> List:
        store = self._store
        return newest_block_first(
            head.transaction_end,
            lambda text: store.transaction_number(TransactionId(text)),
            block_finder(store, store.block_of_transaction, lambda block: block.transactions),
            self._raw_transaction,
        )._replace(in_batches=True)

    def _state(self, head: BlockInfo, prefix: str) -> List:
        if not is_prefix(prefix):
            raise _Refused(
                ListResponse.INVALID_ADDRESS,
                f"address {prefix[:80]!r} is not an even number of lower-case hex characters, at most"
                f" {ADDRESS_CHARACTERS}",
            )
        first = self._store.pruned.states_from
        if head.num < first:
            raise _Refused(
                ListResponse.HEAD_NOT_FOUND,
                f"the state after block {head.num} is pruned; kept are those of blocks {first} and later",
            )
        read = self._store.node
        top = walk.subtree(read, head.root, prefix)

        def position(text: str) -> int | None:
            return walk.position(read, top, text) if top is not None and is_address(text) else None

        def items(indexes: range) -> Iterator[bytes]:
            if top is not None and indexes:
                backwards = indexes.step < 0
                skip = top.leaves - 1 - indexes.start if backwards else indexes.start
                for leaf in islice(walk.leaves(read, top, skip, backwards=backwards), len(indexes)):
                    yield state_context_pb2.TpStateEntry(address=leaf.address, data=leaf.value).SerializeToString()

        # Leaves have no numbers in the store; their positions serve as numbers.
        return List(
            (top or EMPTY).leaves, position, items, position, lambda place: next(items(range(place, place + 1)))
        )

    def _bounds(self, request: ListRequest, listed: List) -> tuple[int, int]:
        """The first index of the page, and the index after its last (API.md, Lists)."""
        limits = self._limits
        count = min(request.count or limits.page_items_default, limits.page_items_max)
        first = self._resolve("min", request.min, listed) if request.min else None
        last = self._resolve("max", request.max, listed) if request.max else None
        if first is not None and last is not None and first > last:
            raise _Refused(
                ListResponse.INVALID_PAGING, f"min {request.min[:140]!r} comes after max {request.max[:140]!r}"
            )
        end = listed.total if last is None else last + 1
        if first is None:
            first = 0 if last is None else max(0, end - count)
        return first, min(end, first + count)

    def _resolve(self, name: str, text: str, listed: List) -> int:
        # An address may consist of digits only, but an index is never that long.
        named = listed.position(text) if len(text) > _DIGITS_MAX else None
        index = _index(text) if named is None else named
        if index is None or index >= listed.total:
            raise _Refused(
                ListResponse.INVALID_PAGING, f"{name} {text[:140]!r} names nothing in a list of {listed.total} entries"
            )
        return index

    def _cut(self, items: Iterator[bytes]) -> list[bytes]:
        """The first items, as many as fit into a page, but at least one."""
        # JSON with base64 and member names has about 1.5 times the length of the raw bytes.
        left = self._limits.page_bytes_max * 2 // 3
        kept: list[bytes] = []
        for item in items:
            left -= len(item)
            if kept and left < 0:
                break
            kept.append(item)
        return kept

    def _raw_block(self, info: BlockInfo) -> bytes:
        return encode_block(info.id, info.header_bytes, self._store.batches(info))

    def _raw_transaction(self, number: int) -> bytes:
        entry = self._store.transaction(number)
        if entry.batch_number != self._opened[0]:
            # Cache the last batch: the transactions of a page are in few batches.
            batch = raw_pb2.RawBatch.FromString(self._store.batch(entry.batch_number).raw)
            self._opened = (entry.batch_number, list(batch.transactions))
        return self._opened[1][entry.position]

    TABLE: Final[dict[int, tuple[type[Message], int, Callable[..., Message], Callable[..., Message]]]] = {
        Envelope.CLIENT_BLOCK_GET_BY_ID_REQUEST: (ClientBlockGetByIdRequest, *_BLOCK, _block_by_id),
        Envelope.CLIENT_BLOCK_GET_BY_NUM_REQUEST: (ClientBlockGetByNumRequest, *_BLOCK, _block_by_num),
        Envelope.CLIENT_BLOCK_GET_BY_BATCH_ID_REQUEST: (ClientBlockGetByBatchIdRequest, *_BLOCK, _block_by_batch),
        Envelope.CLIENT_BLOCK_GET_BY_TRANSACTION_ID_REQUEST: (
            ClientBlockGetByTransactionIdRequest,
            *_BLOCK,
            _block_by_transaction,
        ),
        Envelope.CLIENT_BATCH_GET_REQUEST: (ClientBatchGetRequest, *_BATCH, _batch),
        Envelope.CLIENT_TRANSACTION_GET_REQUEST: (ClientTransactionGetRequest, *_TRANSACTION, _transaction),
        Envelope.CLIENT_RECEIPT_GET_REQUEST: (ClientReceiptGetRequest, *_RECEIPTS, _receipts),
        Envelope.CLIENT_STATE_GET_REQUEST: (ClientStateGetRequest, *_LEAF, _state_leaf),
        Envelope.LIST_REQUEST: (ListRequest, Envelope.LIST_RESPONSE, ListResponse, _list),
    }


def _index(text: str) -> int | None:
    """The index or block number in a text; None if the text is no number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else None
