"""One task at one processor: its request, the processor's state requests, and its answer, in both protocols.

An assignment translates between tasks and protobuf messages. It has no sockets (``send`` is given) and decides nothing
about the block: that is the executor's part.
"""

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError, Message

from dovetail.ledger.access import list_refusal, read_refusal
from dovetail.ledger.addresses import ADDRESS_CHARACTERS, AccessList
from dovetail.ledger.batch import VerifiedTransaction
from dovetail.ledger.limits import Limits
from dovetail.ledger.listing import first_page
from dovetail.ledger.presence import get_response
from dovetail.ledger.receipt import decode_event
from dovetail.validator.core.execution.context import TransactionContext, Unauthorized
from dovetail.validator.core.execution.model import NotExecuting, Task, TransactionOutcome, Unit, Verdict
from dovetail.validator.core.state.view import Changed, View
from protos import packed_pb2, processor_pb2, state_context_pb2, transaction_pb2
from protos.transaction_receipt_pb2 import StateChange
from protos.validator_pb2 import Message as Envelope

Outcomes = Sequence[Sequence[TransactionOutcome]]
ViewFor = Callable[[int], View]
"""The state before the next transaction of a batch, by the batch's index in the block. Reads may raise NotExecuting."""

Send = Callable[[int, str, bytes], None]
"""Message type, correlation id, content."""

_MESSAGE_CHARACTERS_MAX: Final = 4_096
_EXTENDED_BYTES_MAX: Final = 65_536
_VERDICTS: Final = {verdict.value: verdict for verdict in Verdict}
_SET: Final = StateChange.SET
_REFUSALS: Final[dict[type[Message], Message]] = {
    state_context_pb2.TpStateGetRequest: state_context_pb2.TpStateGetResponse(status="AUTHORIZATION_ERROR"),
    state_context_pb2.TpStateSetRequest: state_context_pb2.TpStateSetResponse(status="AUTHORIZATION_ERROR"),
    state_context_pb2.TpStateDeleteRequest: state_context_pb2.TpStateDeleteResponse(status="AUTHORIZATION_ERROR"),
    state_context_pb2.TpReceiptAddDataRequest: state_context_pb2.TpReceiptAddDataResponse(status="ERROR"),
    state_context_pb2.TpEventAddRequest: state_context_pb2.TpEventAddResponse(status="ERROR"),
    packed_pb2.StateListRequest: packed_pb2.StateListResponse(status="AUTHORIZATION_ERROR"),
}


class Assignment(Protocol):
    task: Task
    namespaces: tuple[str, ...]
    """The namespaces that the processor had registered for the family when the task started."""

    @property
    def awaited(self) -> str:
        """The correlation id of the next answer."""

    def start(self) -> bool:
        """Send the task. False, with nothing sent, if the request would be too large."""

    def state_request(self, context_id: str, request: Message) -> Message:
        """The response to a state, receipt or event message of the processor.

        Refuses the request if the batch has a result already or its block was dropped.
        """

    def answer(self, correlation_id: str, content: bytes) -> Outcomes | None:
        """Process a response. Returns the outcomes with the last response of the task, None before."""


class PackedAssignment:
    """The whole task in one round trip (protos/packed.proto)."""

    def __init__(
        self,
        task: Task,
        view_for: ViewFor,
        send: Send,
        context_id: str,
        follows: str,
        namespaces: tuple[str, ...],
        limits: Limits,
    ) -> None:
        """``follows``: the context id of the task that this one follows, or empty."""
        self.task = task
        self.namespaces = namespaces
        self._follows = follows
        self._view_for = view_for
        self._send = send
        self._context_id = context_id
        self._limits = limits

    @property
    def awaited(self) -> str:
        return self._context_id

    def start(self) -> bool:
        request = packed_pb2.PackedProcessRequest(context_id=self._context_id, follows=self._follows)
        add_unit, add_entry = request.units.add, request.entries.add
        seen: set[str] = set()
        for unit in self.task.units:
            add_unit(batch_id=unit.batch_id).transactions.extend([transaction.raw for transaction in unit.transactions])
            get = self._view_for(unit.batch).get
            for transaction in unit.transactions:
                for address in transaction.inputs:
                    if len(address) == ADDRESS_CHARACTERS and address not in seen:
                        seen.add(address)
                        value = get(address)
                        if value is not None:
                            add_entry(address=address, data=value)
        content = request.SerializeToString()
        # Half the limit, so that an answer that writes as much as the task reads fits too.
        if len(content) > self._limits.processor_message_bytes_max // 2:
            return False
        self._send(Envelope.PACKED_PROCESS_REQUEST, self._context_id, content)
        return True

    def state_request(self, context_id: str, request: Message) -> Message:
        addressed = self._transaction(context_id)
        if addressed is None:
            return refused(request)
        unit, transaction = addressed
        view, inputs = self._view_for(unit.batch), AccessList(transaction.inputs)
        try:
            if isinstance(request, state_context_pb2.TpStateGetRequest):
                return self._get(request, view, inputs)
            if isinstance(request, packed_pb2.StateListRequest) and list_refusal(request.prefix, inputs) is None:
                return first_page(view.under(request.prefix, request.after), self._limits)
        except NotExecuting:
            pass
        return refused(request)

    def _get(self, request: state_context_pb2.TpStateGetRequest, view: View, inputs: AccessList) -> Message:
        wanted = dict.fromkeys(request.addresses)
        if any(read_refusal(address, inputs) is not None for address in wanted):
            return refused(request)
        values = ((address, view.get(address)) for address in wanted)
        return get_response(values, self._limits.processor_message_bytes_max // 2) or refused(request)

    def _transaction(self, context_id: str) -> tuple[Unit, VerifiedTransaction] | None:
        number = context_id.removeprefix(self._context_id + ":")
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            return None
        left = int(number)
        for unit in self.task.units:
            if left < len(unit.transactions):
                return unit, unit.transactions[left]
            left -= len(unit.transactions)
        return None

    def answer(self, correlation_id: str, content: bytes) -> Outcomes | None:
        outcomes: list[list[TransactionOutcome]] = []
        try:
            response = packed_pb2.PackedProcessResponse.FromString(content)
        except DecodeError:
            return [[] for _ in self.task.units]
        for unit, results in zip(self.task.units, response.units, strict=False):
            outcomes.append([_packed_outcome(result) for result in results.results[: len(unit.transactions)]])
        return outcomes + [[] for _ in range(len(self.task.units) - len(outcomes))]


class Conversation:
    """A task of one unit, one transaction at a time, for 1.x processors (WIRE.md, The life of a processor)."""

    def __init__(
        self,
        task: Task,
        view_for: ViewFor,
        send: Send,
        context_id: str,
        namespaces: tuple[str, ...],
        raw_header: bool,
        limits: Limits,
    ) -> None:
        """``raw_header``: send the signed bytes of the header in place of the decoded message."""
        self.task = task
        self._send = send
        self._context_id = context_id
        self.namespaces = namespaces
        self._raw_header = raw_header
        self._limits = limits
        (self._unit,) = task.units
        self._overlay: dict[str, bytes | None] = {}
        self._view = Changed(view_for(self._unit.batch), self._overlay)
        self._outcomes: list[TransactionOutcome] = []
        self._context = self._next_context()
        self._serving: dict[type[Message], Callable[[Any], Message]] = {
            state_context_pb2.TpStateGetRequest: self._get,
            state_context_pb2.TpStateSetRequest: self._set,
            state_context_pb2.TpStateDeleteRequest: self._delete,
            state_context_pb2.TpReceiptAddDataRequest: self._add_receipt_data,
            state_context_pb2.TpEventAddRequest: self._add_event,
            packed_pb2.StateListRequest: self._list,
        }

    def start(self) -> bool:
        message = transaction_pb2.Transaction.FromString(self._context.transaction.raw)
        request = processor_pb2.TpProcessRequest(
            payload=message.payload,
            signature=message.header_signature,
            context_id=self.awaited,
            batch_id=self._unit.batch_id,
            migration=self.task.migration,
        )
        if self._raw_header:
            request.header_bytes = message.header
        else:
            request.header.ParseFromString(message.header)
        self._send(Envelope.TP_PROCESS_REQUEST, self.awaited, request.SerializeToString())
        return True

    def state_request(self, context_id: str, request: Message) -> Message:
        serve = self._serving.get(type(request)) if context_id == self.awaited else None
        if serve is None:
            return refused(request)
        try:
            return serve(request)
        except (Unauthorized, NotExecuting):
            return refused(request)

    def answer(self, correlation_id: str, content: bytes) -> Outcomes | None:
        if correlation_id != self.awaited:
            return None
        try:
            response = processor_pb2.TpProcessResponse.FromString(content)
        except DecodeError:
            response = processor_pb2.TpProcessResponse(message=f"{len(content)} bytes that are no TpProcessResponse")
        verdict = _VERDICTS.get(response.status, Verdict.ERROR)
        outcome = self._context.outcome(
            verdict, response.message[:_MESSAGE_CHARACTERS_MAX], response.extended_data[:_EXTENDED_BYTES_MAX]
        )
        self._outcomes.append(outcome)
        if outcome.verdict is Verdict.OK and len(self._outcomes) < len(self._unit.transactions):
            self._overlay.update(outcome.changes)
            self._context = self._next_context()
            self.start()
            return None
        return [self._outcomes]

    @property
    def awaited(self) -> str:
        return f"{self._context_id}:{len(self._outcomes)}"

    def _next_context(self) -> TransactionContext:
        transaction = self._unit.transactions[len(self._outcomes)]
        return TransactionContext(transaction, self._view, self.namespaces, self._limits)

    def _get(self, request: state_context_pb2.TpStateGetRequest) -> Message:
        values = self._context.get(request.addresses)
        return get_response(values, self._limits.processor_message_bytes_max // 2) or refused(request)

    def _list(self, request: packed_pb2.StateListRequest) -> Message:
        return first_page(self._context.under(request.prefix, request.after), self._limits)

    def _set(self, request: state_context_pb2.TpStateSetRequest) -> Message:
        addresses = self._context.set((entry.address, entry.data) for entry in request.entries)
        return state_context_pb2.TpStateSetResponse(addresses=addresses, status="OK")

    def _delete(self, request: state_context_pb2.TpStateDeleteRequest) -> Message:
        addresses = self._context.delete(request.addresses)
        return state_context_pb2.TpStateDeleteResponse(addresses=addresses, status="OK")

    def _add_receipt_data(self, request: state_context_pb2.TpReceiptAddDataRequest) -> Message:
        self._context.add_receipt_data(request.data)
        return state_context_pb2.TpReceiptAddDataResponse(status="OK")

    def _add_event(self, request: state_context_pb2.TpEventAddRequest) -> Message:
        self._context.add_event(decode_event(request.event))
        return state_context_pb2.TpEventAddResponse(status="OK")


def new_context_id() -> str:
    """A context id that no other assignment uses."""
    return secrets.token_hex(16)


def refused(request: Message) -> Message:
    """The refusal of a state, receipt or event message. Do not change the returned message."""
    return _REFUSALS[type(request)]


def _packed_outcome(result: packed_pb2.PackedProcessResponse.TransactionResult) -> TransactionOutcome:
    verdict = _VERDICTS.get(result.status, Verdict.ERROR)
    if verdict is not Verdict.OK:
        return TransactionOutcome(
            verdict, result.message[:_MESSAGE_CHARACTERS_MAX], result.extended_data[:_EXTENDED_BYTES_MAX]
        )
    # Most transactions have no events and no data; testing for an empty field is faster than iterating over it.
    events, data = result.events, result.data
    return TransactionOutcome(
        verdict,
        "",
        b"",
        {change.address: change.value if change.type == _SET else None for change in result.state_changes},
        tuple(map(decode_event, events)) if events else (),
        tuple(data) if data else (),
    )
