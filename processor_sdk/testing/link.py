"""The validator's side of a state conversation, in memory: answers state calls and collects a transaction's effects.

Packed execution reads and lists here; the 1.x conversation also writes here. No handlers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf.message import Message

from dovetail.ledger.access import list_refusal, read_refusal, write_refusal
from dovetail.ledger.addresses import AccessList
from dovetail.ledger.limits import Limits
from dovetail.ledger.listing import first_page
from dovetail.ledger.presence import get_response
from dovetail.ledger.receipt import Event, decode_event
from processor_sdk.testing.state import View
from processor_sdk.testing.transactions import UnsignedTransaction
from protos import packed_pb2, state_context_pb2
from protos.validator_pb2 import Message as Envelope

CONTEXT_ID: Final = "test"

_REQUESTS: Final[Mapping[int, type[Message]]] = {
    Envelope.TP_STATE_GET_REQUEST: state_context_pb2.TpStateGetRequest,
    Envelope.TP_STATE_SET_REQUEST: state_context_pb2.TpStateSetRequest,
    Envelope.TP_STATE_DELETE_REQUEST: state_context_pb2.TpStateDeleteRequest,
    Envelope.TP_RECEIPT_ADD_DATA_REQUEST: state_context_pb2.TpReceiptAddDataRequest,
    Envelope.TP_EVENT_ADD_REQUEST: state_context_pb2.TpEventAddRequest,
    Envelope.STATE_LIST_REQUEST: packed_pb2.StateListRequest,
}


class StateLink:
    """A ``processor_sdk.apply.state.Link`` for ``transactions`` over ``before``.

    Transaction n has the context id "test:n".
    """

    def __init__(
        self, transactions: Sequence[UnsignedTransaction], before: View, namespaces: tuple[str, ...], limits: Limits
    ) -> None:
        self._transactions = transactions
        self._family_name = transactions[0].family.name
        self._namespaces = namespaces
        self._limits = limits
        self.changes: dict[str, bytes | None] = {}
        self._state = View(before, self.changes)
        self.events: list[Event] = []
        self.data: list[bytes] = []

    def __call__(self, message_type: int, content: bytes) -> bytes:
        request: Any = _REQUESTS[message_type].FromString(content)
        transaction = self._transactions[int(request.context_id.removeprefix(f"{CONTEXT_ID}:"))]
        answer: Message
        if isinstance(request, state_context_pb2.TpStateGetRequest):
            answer = self._get(request, AccessList(transaction.inputs))
        elif isinstance(request, packed_pb2.StateListRequest):
            answer = self._list(request, AccessList(transaction.inputs))
        elif isinstance(request, state_context_pb2.TpStateSetRequest):
            answer = self._set(request, AccessList(transaction.outputs))
        elif isinstance(request, state_context_pb2.TpStateDeleteRequest):
            answer = self._delete(request, AccessList(transaction.outputs))
        elif isinstance(request, state_context_pb2.TpEventAddRequest):
            self.events.append(decode_event(request.event))
            answer = state_context_pb2.TpEventAddResponse(status="OK")
        else:
            self.data.append(request.data)
            answer = state_context_pb2.TpReceiptAddDataResponse(status="OK")
        return answer.SerializeToString()

    def _get(self, request: state_context_pb2.TpStateGetRequest, inputs: AccessList) -> Message:
        refused = state_context_pb2.TpStateGetResponse(status="AUTHORIZATION_ERROR")
        if any(read_refusal(address, inputs) for address in request.addresses):
            return refused
        values = ((address, self._state.get(address)) for address in dict.fromkeys(request.addresses))
        return get_response(values, self._limits.message_bytes_max // 2) or refused

    def _list(self, request: packed_pb2.StateListRequest, inputs: AccessList) -> Message:
        if list_refusal(request.prefix, inputs) is not None:
            return packed_pb2.StateListResponse(status="AUTHORIZATION_ERROR")
        return first_page(self._state.entries(request.prefix, request.after), self._limits)

    def _set(self, request: state_context_pb2.TpStateSetRequest, outputs: AccessList) -> Message:
        addresses = [entry.address for entry in request.entries]
        if any(write_refusal(self._family_name, address, outputs, self._namespaces) for address in addresses):
            return state_context_pb2.TpStateSetResponse(status="AUTHORIZATION_ERROR")
        self.changes.update({entry.address: entry.data for entry in request.entries})
        return state_context_pb2.TpStateSetResponse(addresses=addresses, status="OK")

    def _delete(self, request: state_context_pb2.TpStateDeleteRequest, outputs: AccessList) -> Message:
        if any(write_refusal(self._family_name, address, outputs, self._namespaces) for address in request.addresses):
            return state_context_pb2.TpStateDeleteResponse(status="AUTHORIZATION_ERROR")
        self.changes.update({address: None for address in request.addresses if self._state.get(address) is not None})
        return state_context_pb2.TpStateDeleteResponse(addresses=request.addresses, status="OK")
