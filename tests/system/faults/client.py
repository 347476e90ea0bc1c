"""A client that continues after every failure: it asks again by batch id, and records every status it gets.

Each client has a thread of its own. Processes, and checks of the result (``checks``), do not belong here.
"""

import threading
from collections.abc import Callable, Collection
from typing import Any

import httpx

from dovetail.ledger.building import SignedBatch, encode_batch_list
from dovetail.ledger.ids import BatchId
from tests.system.faults.load import MIXED, Kind, Load

_OUTSTANDING_MAX = 60
_A_POST = 6
_WAIT_S = 1
_TIMEOUT_S = 60.0
_REFUSED_AGAIN_S = 0.02

_CANNOT_NOW = (429, 502, 503, 504)
"""Refusals that say nothing about the batches, which may be submitted again."""

END = ("COMMITTED", "INVALID")


class Client(threading.Thread):
    """Submits batches of ``load`` to the REST API at ``url`` until it is stopped, then waits until all are settled.

    ``wait_until_serving`` returns when another request makes sense, or raises.
    """

    def __init__(
        self, url: str, load: Load, wait_until_serving: Callable[[], None], kinds: Collection[Kind] = MIXED
    ) -> None:
        super().__init__(name="client", daemon=True)
        self.load = load
        self.accepted: set[BatchId] = set()
        """The batches of answers with 202."""
        self.ended: dict[BatchId, str] = {}
        """The final status of each batch."""
        self._kinds = kinds
        self._http = httpx.Client(base_url=url, timeout=_TIMEOUT_S, trust_env=False, verify=False)
        self._again = wait_until_serving
        self._unsure: list[SignedBatch] = load.begin()
        self._outstanding: dict[BatchId, SignedBatch] = {}
        self._stopping = threading.Event()
        self._heard = threading.Condition()
        self.answers = 0
        """How many posts were accepted and batches settled so far; ``wait_for_answers`` waits for more."""
        self.failure: BaseException | None = None

    def wait_for_answers(self, more: int, timeout_s: float) -> bool:
        """Wait for so many more answers. Returns False if they do not come in time. Raises the client's own failure."""
        with self._heard:
            wanted = self.answers + more
            self._heard.wait_for(lambda: self.answers >= wanted or self.failure is not None, timeout_s)
        if self.failure is not None:
            raise self.failure
        return self.answers >= wanted

    def finish(self, timeout_s: float) -> None:
        """Stop submitting, and wait until every batch is settled. Raises the client's own failure."""
        self._stopping.set()
        self.join(timeout_s)
        if self.failure is not None:
            raise self.failure
        if self.is_alive():
            raise TimeoutError(f"{len(self._outstanding) + len(self._unsure)} batches are open after {timeout_s} s")

    def run(self) -> None:
        try:
            with self._http:
                while not self._stopping.is_set() or self._outstanding or self._unsure:
                    self._step()
        except BaseException as failure:
            self.failure = failure
        finally:
            self._count(0)

    def _step(self) -> None:
        try:
            if self._unsure:
                self._ask_for_unsure()
            elif not self._stopping.is_set() and len(self._outstanding) < _OUTSTANDING_MAX:
                self._post(self.load.make(_A_POST, self._kinds))
            if self._outstanding:
                wait_s = _WAIT_S if self._stopping.is_set() or len(self._outstanding) >= _OUTSTANDING_MAX else 0
                self._record(self._statuses(list(self._outstanding), wait_s))
        except _NotNow:
            # Do not send requests without a pause to a node that refuses them.
            self._stopping.wait(_REFUSED_AGAIN_S)
            self._again()

    def _post(self, batches: list[SignedBatch]) -> None:
        """Submit batches. Without a 202 it is unknown whether they were accepted."""
        self._unsure = batches
        content, headers = encode_batch_list(batches), {"Content-Type": "application/octet-stream"}
        answer = self._ask(lambda: self._http.post("/batches", content=content, headers=headers))
        assert answer.status_code == 202, f"{answer.status_code}: {answer.text}"
        self.accepted.update(batch.id for batch in batches)
        self._outstanding.update({batch.id: batch for batch in batches})
        self._unsure = []
        self._count(1)

    def _ask_for_unsure(self) -> None:
        told = self._statuses([batch.id for batch in self._unsure], 0)
        lost = [batch for batch in self._unsure if told[batch.id] == "UNKNOWN"]
        # A list is accepted as a whole or not at all, even if the answer to it is lost.
        if lost and len(lost) != len(self._unsure):
            raise Wrong(f"{len(lost)} of the {len(self._unsure)} batches of one list were not accepted: {told}")
        if lost:
            self._post(self._unsure)
        else:
            self._outstanding.update({batch.id: batch for batch in self._unsure})
            self._unsure = []

    def _record(self, told: dict[BatchId, str]) -> None:
        for batch_id, word in told.items():
            if word in END:
                self.ended[batch_id] = word
                del self._outstanding[batch_id]
                self._count(1)
            elif word == "UNKNOWN":
                raise Wrong(f"batch {batch_id} was accepted and is UNKNOWN")

    def _statuses(self, batch_ids: list[BatchId], wait_s: int) -> dict[BatchId, str]:
        answer = self._ask(lambda: self._http.post("/batch_status", params={"wait": wait_s} if wait_s else {},
                                                   json=batch_ids))  # fmt: skip
        assert answer.status_code == 200, f"{answer.status_code}: {answer.text}"
        body: dict[str, Any] = answer.json()
        return {BatchId(name): word for name, word in body["data"].items()}

    def _ask(self, ask: Callable[[], httpx.Response]) -> httpx.Response:
        try:
            answer = ask()
        except httpx.TransportError:
            raise _NotNow from None
        if answer.status_code in _CANNOT_NOW:
            raise _NotNow
        return answer

    def _count(self, more: int) -> None:
        with self._heard:
            self.answers += more
            self._heard.notify_all()


class Wrong(AssertionError):
    """A status that contradicts an earlier answer."""


class _NotNow(Exception):
    """No answer, or a refusal that says nothing about the batches."""
