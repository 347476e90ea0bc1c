"""A client that works through every loss: what it could not be told it asks for by id, and it remembers all it heard.

What lives here: one client in a thread of its own. What must not: processes, what must hold; that is ``judged``.
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
"""Refusals that say nothing of the batches: they may be handed in again."""

END = ("COMMITTED", "INVALID")


class Client(threading.Thread):
    """Hands in batches of ``load`` to the REST API at ``url`` until it is stopped, then waits for the end of all.

    ``wait_until_serving`` returns when it is worth another try, or raises.
    """

    def __init__(
        self, url: str, load: Load, wait_until_serving: Callable[[], None], kinds: Collection[Kind] = MIXED
    ) -> None:
        super().__init__(name="client", daemon=True)
        self.load = load
        self.accepted: set[BatchId] = set()
        """Those for which a 202 came."""
        self.ended: dict[BatchId, str] = {}
        """What the client was told in the end."""
        self._kinds = kinds
        self._http = httpx.Client(base_url=url, timeout=_TIMEOUT_S, trust_env=False, verify=False)
        self._again = wait_until_serving
        self._unsure: list[SignedBatch] = load.begin()
        self._outstanding: dict[BatchId, SignedBatch] = {}
        self._stopping = threading.Event()
        self._heard = threading.Condition()
        self.answers = 0
        """How many of its posts were accepted and batches ended; ``wait_for_answers`` waits for more."""
        self.failure: BaseException | None = None

    def wait_for_answers(self, more: int, timeout_s: float) -> bool:
        """Until so many more have come; False where they do not in that time. Raises what the client died of."""
        with self._heard:
            wanted = self.answers + more
            self._heard.wait_for(lambda: self.answers >= wanted or self.failure is not None, timeout_s)
        if self.failure is not None:
            raise self.failure
        return self.answers >= wanted

    def finish(self, timeout_s: float) -> None:
        """Hand in no more, and wait until every batch has ended. Raises what the client died of."""
        self._stopping.set()
        self.join(timeout_s)
        if self.failure is not None:
            raise self.failure
        if self.is_alive():
            raise TimeoutError(f"{len(self._outstanding) + len(self._unsure)} batches have not ended in {timeout_s} s")

    def run(self) -> None:
        try:
            with self._http:
                while not self._stopping.is_set() or self._outstanding or self._unsure:
                    self._turn()
        except BaseException as failure:
            self.failure = failure
        finally:
            self._tell(0)

    def _turn(self) -> None:
        try:
            if self._unsure:
                self._ask_for_unsure()
            elif not self._stopping.is_set() and len(self._outstanding) < _OUTSTANDING_MAX:
                self._post(self.load.take(_A_POST, self._kinds))
            if self._outstanding:
                wait_s = _WAIT_S if self._stopping.is_set() or len(self._outstanding) >= _OUTSTANDING_MAX else 0
                self._hear(self._statuses(list(self._outstanding), wait_s))
        except _NotNow:
            # A node that serves and refuses is not asked all the time.
            self._stopping.wait(_REFUSED_AGAIN_S)
            self._again()

    def _post(self, batches: list[SignedBatch]) -> None:
        """Whatever comes back, or nothing: until a 202 nobody knows whether they were taken."""
        self._unsure = batches
        content, headers = encode_batch_list(batches), {"Content-Type": "application/octet-stream"}
        answer = self._ask(lambda: self._http.post("/batches", content=content, headers=headers))
        assert answer.status_code == 202, f"{answer.status_code}: {answer.text}"
        self.accepted.update(batch.id for batch in batches)
        self._outstanding.update({batch.id: batch for batch in batches})
        self._unsure = []
        self._tell(1)

    def _ask_for_unsure(self) -> None:
        told = self._statuses([batch.id for batch in self._unsure], 0)
        lost = [batch for batch in self._unsure if told[batch.id] == "UNKNOWN"]
        # A list is taken whole or not at all, also where nobody heard of it.
        if lost and len(lost) != len(self._unsure):
            raise Wrong(f"{len(lost)} of the {len(self._unsure)} batches of one list were not taken: {told}")
        if lost:
            self._post(self._unsure)
        else:
            self._outstanding.update({batch.id: batch for batch in self._unsure})
            self._unsure = []

    def _hear(self, told: dict[BatchId, str]) -> None:
        for batch_id, word in told.items():
            if word in END:
                self.ended[batch_id] = word
                del self._outstanding[batch_id]
                self._tell(1)
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

    def _tell(self, more: int) -> None:
        with self._heard:
            self.answers += more
            self._heard.notify_all()


class Wrong(AssertionError):
    """What a client should never have been told."""


class _NotNow(Exception):
    """No answer, or one that says nothing of what was asked."""
