"""Passes each client message to the part that answers it, and writes one log line for each.

The log line carries the correlation id. A REST API begins the correlation id with the id of its HTTP request (API.md,
Every response). The answers themselves are built elsewhere.
"""

from collections.abc import Callable
from typing import Any, Final

import structlog
from google.protobuf.message import DecodeError, Message

from dovetail.ledger.ids import ID_CHARACTERS
from dovetail.validator.admission.submission import Submissions, WouldWait
from dovetail.validator.admission.verifier import VerifierPool
from dovetail.validator.blocks.production import Work
from dovetail.validator.client_api.conditions import Conditions
from dovetail.validator.client_api.drops import Drop, Drops
from dovetail.validator.client_api.families import Families, MigrationOf
from dovetail.validator.client_api.node_status import NodeStatus
from dovetail.validator.client_api.queries import DAMAGED, Queries
from dovetail.validator.client_api.statuses import CORRELATION_CHARACTERS_MAX, Statuses
from dovetail.validator.config import ValidatorConfig
from dovetail.validator.core.mempool.queue import PendingQueue
from dovetail.validator.metrics import Metrics, type_name
from dovetail.validator.processors.comparing import Comparisons
from dovetail.validator.processors.registry import Processors
from dovetail.validator.store import Store
from dovetail.validator.transport.gateway import Delivery, Request
from protos.client_batch_submit_pb2 import (
    ClientBatchStatus,
    ClientBatchStatusRequest,
    ClientBatchStatusResponse,
    ClientBatchSubmitResponse,
)
from protos.node_pb2 import (
    MetricsResponse,
    NodeStatusResponse,
    PendingDropRequest,
    PendingDropResponse,
    StatusWaitCancel,
)
from protos.validator_pb2 import Message as Envelope

_STATUS_WAIT_S_DEFAULT: Final = 300

Send = Callable[[bytes, int, str, bytes], Delivery]
"""Identity, message type, correlation id, content."""

log = structlog.get_logger("validator.clients")


class Clients:
    """Owns the parts that serve clients. ``send``: a method of the gateway; ``migration_of`` and ``work``: methods of
    block production."""

    def __init__(
        self,
        config: ValidatorConfig,
        send: Send,
        store: Store,
        queue: PendingQueue,
        pool: VerifierPool,
        processors: Processors,
        metrics: Metrics,
        migration_of: MigrationOf,
        work: Callable[[], Work],
        drop: Drop,
        would_wait: WouldWait,
        comparisons: Comparisons,
        clock_ms: Callable[[], float],
    ) -> None:
        self._send = send
        self._limits = config.limits
        self._queries = Queries(store, config.limits)
        self.submissions = Submissions(store, queue, pool, config.limits, self._answer_submission, would_wait)
        self.statuses = Statuses(queue, store, config.limits, self._answer_status)
        self._drops = Drops(queue, store, drop, config.limits)
        self.families = Families(store, queue, processors, migration_of)
        self.conditions = Conditions(
            store, queue, work, processors, self.submissions, comparisons, config.limits, clock_ms
        )
        self.node_status = NodeStatus(
            config, metrics, store, queue, processors, self.statuses, self.families, self.conditions, comparisons
        )
        self._handlers: dict[int, Callable[[Request], None]] = {
            Envelope.CLIENT_BATCH_SUBMIT_REQUEST: self.submissions.submit,
            Envelope.CLIENT_BATCH_STATUS_REQUEST: self._answer_status_request,
            Envelope.STATUS_WAIT_CANCEL: self._cancel_wait,
            Envelope.NODE_STATUS_REQUEST: self._answer_node_status,
            Envelope.METRICS_REQUEST: self._answer_metrics,
            Envelope.PROCESSORS_REQUEST: self._answer_processors,
            Envelope.FAMILIES_REQUEST: self._answer_families,
            Envelope.PENDING_DROP_REQUEST: self._answer_drop,
            **dict.fromkeys(self._queries.TABLE, self._query),
        }

    def handle(self, request: Request) -> None:
        """Process one message. Ignores messages that do not come from a client."""
        handler = self._handlers.get(request.message_type)
        if handler is not None:
            handler(request)

    def probe(self) -> None:
        """Free the waits of clients whose connection is closed. To be called when any connection closed."""
        for identity in self.statuses.peers:
            if self._send(identity, Envelope.PING_REQUEST, "", b"") is Delivery.GONE:
                log.info("client gone, it waits no longer", waits=self.statuses.cancel_all(identity))

    def _answer_submission(self, request: Request, response: ClientBatchSubmitResponse) -> None:
        self._answer(request.identity, Envelope.CLIENT_BATCH_SUBMIT_RESPONSE, request.correlation_id, response)
        if response.status == ClientBatchSubmitResponse.OK:
            self._log(request, "OK", batches=len(response.batch_ids))
        else:
            status = ClientBatchSubmitResponse.Status.Name(response.status)
            self._log(request, status, reason=response.reason, message=_shown(response.message))

    def _answer_status_request(self, request: Request) -> None:
        identity, _, correlation_id, content, _ = request
        response_type = Envelope.CLIENT_BATCH_STATUS_RESPONSE
        try:
            asked = ClientBatchStatusRequest.FromString(content)
        except DecodeError:
            self._log(request, "INTERNAL_ERROR", bytes=len(content))
            self._answer(identity, response_type, correlation_id, ClientBatchStatusResponse(status="INTERNAL_ERROR"))
            return
        batch_ids = list(asked.batch_ids)
        # The answer and a wait repeat the texts, so a text that is too long to be an id is refused.
        if not 0 < len(batch_ids) <= self._limits.status_ids_max or max(map(len, batch_ids)) > ID_CHARACTERS:
            self._log(request, "INVALID_ID", ids=len(batch_ids))
            self._answer(identity, response_type, correlation_id, ClientBatchStatusResponse(status="INVALID_ID"))
        elif asked.wait:
            timeout_s = min(asked.timeout or _STATUS_WAIT_S_DEFAULT, self._limits.status_wait_s_max)
            self._log(request, "OK", ids=len(batch_ids), wait_s=timeout_s)
            self.statuses.wait(identity, correlation_id, batch_ids, timeout_s)
        else:
            self._log(request, "OK", ids=len(batch_ids))
            self.statuses.answer(identity, correlation_id, batch_ids)

    def _answer_status(self, identity: bytes, correlation_id: str, statuses: list[ClientBatchStatus] | None) -> None:
        if statuses is None:
            response = ClientBatchStatusResponse(status="INTERNAL_ERROR", message=DAMAGED)
        else:
            response = ClientBatchStatusResponse(status="OK", batch_statuses=statuses)
        self._answer(identity, Envelope.CLIENT_BATCH_STATUS_RESPONSE, correlation_id, response)

    def _cancel_wait(self, request: Request) -> None:
        try:
            cancelled = StatusWaitCancel.FromString(request.content).correlation_id
        except DecodeError:
            self._log(request, "INTERNAL_ERROR", bytes=len(request.content))
            return
        freed = self.statuses.cancel(request.identity, cancelled)
        self._log(request, "OK" if freed else "NO_RESOURCE", wait=_shown(cancelled))

    def _answer_node_status(self, request: Request) -> None:
        response = self.node_status.status()
        self._answer(request.identity, Envelope.NODE_STATUS_RESPONSE, request.correlation_id, response)
        self._log(request, NodeStatusResponse.Status.Name(response.status))

    def _answer_metrics(self, request: Request) -> None:
        response = MetricsResponse(text=self.node_status.text())
        self._answer(request.identity, Envelope.METRICS_RESPONSE, request.correlation_id, response)
        self._log(request, "OK")

    def _answer_processors(self, request: Request) -> None:
        response = self.node_status.processors()
        self._answer(request.identity, Envelope.PROCESSORS_RESPONSE, request.correlation_id, response)
        self._log(request, "OK", processors=len(response.processors))

    def _answer_families(self, request: Request) -> None:
        response = self.families.status()
        self._answer(request.identity, Envelope.FAMILIES_RESPONSE, request.correlation_id, response)
        self._log(request, NodeStatusResponse.Status.Name(response.status), families=len(response.families))

    def _answer_drop(self, request: Request) -> None:
        try:
            asked = PendingDropRequest.FromString(request.content)
        except DecodeError:
            response = PendingDropResponse(status="INVALID_REQUEST", message="the request cannot be decoded")
        else:
            response = self._drops.answer(asked, _shown(asked.reason))
        self._answer(request.identity, Envelope.PENDING_DROP_RESPONSE, request.correlation_id, response)
        status = PendingDropResponse.Status.Name(response.status)
        self._log(request, status, batches=response.batches, left=response.left, message=_shown(response.message))

    def _query(self, request: Request) -> None:
        response_type, content, status = self._queries.answer(request.message_type, request.content)
        self._send(request.identity, response_type, request.correlation_id, content)
        self._log(request, status)

    def _answer(self, identity: bytes, message_type: int, correlation_id: str, response: Message) -> None:
        self._send(identity, message_type, correlation_id, response.SerializeToString())

    def _log(self, request: Request, outcome: str, **values: Any) -> None:
        name = type_name(request.message_type)
        log.info("client asked", type=name, correlation_id=_shown(request.correlation_id), outcome=outcome, **values)


def _shown(text: str) -> str:
    """A peer's text for a log line: shortened, and without line breaks or control characters."""
    text = text[:CORRELATION_CHARACTERS_MAX]
    return text if text.isprintable() else repr(text)
