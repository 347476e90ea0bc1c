"""A small chain in a store, and the same chain as plain Python lists."""

from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from dovetail.ledger.batch import VerifiedBatch
from dovetail.validator.client_api.queries import Queries
from dovetail.validator.store import BlockInfo
from protos.query_pb2 import ListRequest, ListResponse
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.support import LIMITS, address, commit, make_batch, make_transaction, open_store

Item = tuple[str, bytes]
"""The id of a list's item, and the fields that the list returns of it."""

BLOCKS = [[[1]], [[2], [1]], [[3], [1], [1]], [], [[1]]]
"""The numbers of transactions by batch and block; one block has no batch."""


class Chain:
    """A small chain, with each of its lists at each head as plain Python lists."""

    def __init__(self, path: Path) -> None:
        self.store = open_store(path)
        self.queries = Queries(self.store, LIMITS)
        self.infos: list[BlockInfo] = []
        self.batches: list[list[VerifiedBatch]] = []
        self.states: list[dict[str, bytes]] = []
        state: dict[str, bytes] = {}
        for num, shape in enumerate(BLOCKS):
            batches = [
                make_batch((num, index), *(make_transaction((num, index, place)) for place in range(count)))
                for index, (count,) in enumerate(shape)
            ]
            # Leaves in two namespaces: some written again, one removed, one with an empty value.
            changes: dict[str, bytes | None] = {address(num * 3 + place): b"%d" % num for place in range(2)}
            changes |= {address(num + 1, "00"): b"", address((num - 1) * 3): None}
            self.infos.append(commit(self.store, batches, changes))
            self.batches.append(batches)
            state = {name: value for name, value in {**state, **changes}.items() if value is not None}
            self.states.append(state)

    def full(self, resource: int, head: int, prefix: str = "") -> list[Item]:
        """The whole list, in the order of API.md."""
        if resource == ListRequest.STATE:
            return [item for item in sorted(self.states[head].items()) if item[0].startswith(prefix)]
        items: list[Item] = []
        for num in range(head, -1, -1):
            if resource == ListRequest.BLOCKS:
                items.append((self.infos[num].id, self.infos[num].header_bytes))
            for batch in self.batches[num]:
                if resource == ListRequest.BATCHES:
                    items.append((batch.id, batch.raw))
                elif resource == ListRequest.TRANSACTIONS:
                    items += [(transaction.id, transaction.raw) for transaction in batch.transactions]
        return items

    def list(self, **fields: Any) -> ListResponse:
        answer = self.queries.answer(Envelope.LIST_REQUEST, ListRequest(**fields).SerializeToString())
        assert answer.message_type == Envelope.LIST_RESPONSE
        response = ListResponse.FromString(answer.content)
        assert answer.status == ListResponse.Status.Name(response.status)
        return response

    def get(self, message_type: int, request: Message, response_type: Any) -> Any:
        return response_type.FromString(self.queries.answer(message_type, request.SerializeToString())[1])
