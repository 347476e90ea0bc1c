"""What each key may say: a processor's messages, a client's, or both. Whoever says more is refused, with the reason.

At an open door there are no keys and everybody may say everything. Which keys there are is ``doors``' business.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from google.protobuf.message import Message

from ledger.connection_keys import ConnectionPublicKey
from protos.client_batch_submit_pb2 import ClientBatchStatusResponse, ClientBatchSubmitResponse
from protos.processor_pb2 import TpRegisterResponse, TpUnregisterResponse
from protos.validator_pb2 import Message as Envelope
from validator.connections import Seldom
from validator.doors import Caller, Door, Right
from validator.gateway import Delivery, Request
from validator.metrics import type_name
from validator.processors import registry
from validator.queries import Queries

_EVERYBODYS: Final = frozenset({Envelope.PING_REQUEST, Envelope.PING_RESPONSE})
"""Whoever is let in may ask whether the other lives."""

NOT_ALLOWED: Final = "not_allowed"
"""The reason of a refused submission, in one word."""

_NOBODY: Final = Caller("", frozenset())

Send = Callable[[bytes, int, str, bytes], Delivery]


def right_for(message_type: int) -> Right | None:
    """What a message of this type asks for; None for what everybody may send."""
    if message_type in _EVERYBODYS:
        return None
    return Right.PROCESSOR if message_type in registry.MESSAGE_TYPES else Right.CLIENT


class Rights:
    """``send`` is the gateway's."""

    def __init__(self, door: Door, send: Send) -> None:
        self._callers = None if door.key is None else door.callers
        self._send = send
        self._seldom: defaultdict[tuple[str, str], Seldom] = defaultdict(
            lambda: Seldom("refused: the key is not allowed for it")
        )
        """By key and type of message, of which there are so many: one that asks without end must not fill the log."""

    def permits(self, request: Request) -> bool:
        """Whether whoever sent this may. If not, it was told so, and the log names its key."""
        if self._callers is None:
            return True
        right = right_for(request.message_type)
        # A connection without a key cannot be here; should it be, nothing is allowed to it.
        caller = self._callers.get(ConnectionPublicKey(request.key), _NOBODY)
        if caller is not _NOBODY and (right is None or right in caller.rights):
            return True
        self._refuse(request, caller, right)
        return False

    def _refuse(self, request: Request, caller: Caller, right: Right | None) -> None:
        name = type_name(request.message_type)
        wanted = right.value if right else "allowed"
        seldom = self._seldom[request.key, name]
        seldom.warn(type=name, name=caller.name, key=request.key, list=wanted)
        whose = f"the key {caller.name} ({request.key})" if caller.name else f"the key {request.key}"
        answer = _answer(request.message_type, f"{whose} is not among the allowed {wanted} of this validator: {name}")
        if answer is not None:
            response_type, response = answer
            self._send(request.identity, response_type, request.correlation_id, response.SerializeToString())


def _answer(message_type: int, message: str) -> tuple[int, Message] | None:
    """Response type and response of a refusal; None where the protocol has no answer that could say it."""
    if message_type == Envelope.TP_REGISTER_REQUEST:
        return Envelope.TP_REGISTER_RESPONSE, TpRegisterResponse(status=TpRegisterResponse.ERROR, message=message)
    if message_type == Envelope.TP_UNREGISTER_REQUEST:
        return Envelope.TP_UNREGISTER_RESPONSE, TpUnregisterResponse(status=TpUnregisterResponse.ERROR)
    if message_type == Envelope.CLIENT_BATCH_SUBMIT_REQUEST:
        return Envelope.CLIENT_BATCH_SUBMIT_RESPONSE, ClientBatchSubmitResponse(
            status="INTERNAL_ERROR", reason=NOT_ALLOWED, message=message
        )
    if message_type == Envelope.CLIENT_BATCH_STATUS_REQUEST:
        return Envelope.CLIENT_BATCH_STATUS_RESPONSE, ClientBatchStatusResponse(status="INTERNAL_ERROR")
    if message_type in Queries.TABLE:
        _, response_type, response_class, _ = Queries.TABLE[message_type]
        return response_type, response_class(status="INTERNAL_ERROR")
    return None
