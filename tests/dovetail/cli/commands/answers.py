"""Answers of a REST API for the tests of commands, and the batch that a command posted."""

import base64
from typing import Any

from dovetail.ledger.batch import decode_batch_list, verify_batch
from dovetail.ledger.transaction import Transaction, decode_transaction
from tests.dovetail.conftest import FakeApi

HEAD = "ee" * 64


def posted(api: FakeApi) -> tuple[str, Transaction]:
    """The id and the transaction of the only posted batch, which must be valid."""
    (request,) = [request for request in api.requests if request.method == "POST"]
    (raw,) = decode_batch_list(request.body)
    batch = verify_batch(raw)
    return batch.id, decode_transaction(batch.transactions[0].raw)


class Submissions(dict[str, Any]):
    """Accepts a batch, and answers ``status`` for every batch."""

    def __init__(self, status: str, details: dict[str, str] | None = None) -> None:
        super().__init__({"POST /batches": (202, {"link": "…"})})
        self._status, self._details = status, details or {}

    def get(self, asked: str, default: Any = None) -> Any:
        if not asked.startswith("GET /batch_status?"):
            return super().get(asked, default)
        batch_id = asked.partition("id=")[2].partition("&")[0]
        return (200, {"data": {batch_id: self._status}, "details": {batch_id: self._details}, "link": "…"})


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


def page(items: list[Any], start: int = 0, total: int | None = None, following: str | None = None) -> Any:
    paging: dict[str, Any] = {"start_index": start, "total_count": len(items) if total is None else total}
    if following:
        paging["next"] = following
    return (200, {"data": items, "head": HEAD, "link": "", "paging": paging})


def leaf_of(address: str, content: bytes) -> dict[str, str]:
    return {"address": address, "data": base64_of(content)}
