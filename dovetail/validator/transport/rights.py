"""Checks whether the sender's key allows a message: the messages of a processor, of a client, or both.

Other messages are refused with a reason. An open port has no keys and allows everything. ``access`` reads the keys.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from google.protobuf.message import Message

from dovetail.ledger.connection_keys import ConnectionPublicKey
from dovetail.validator.metrics import type_name
from dovetail.validator.transport.access import AccessPolicy, Caller, Right
from dovetail.validator.transport.connections import ThrottledWarning
from dovetail.validator.transport.gateway import Delivery, Request
from protos.node_pb2 import NotAllowed
from protos.processor_pb2 import TpRegisterResponse, TpUnregisterResponse
from protos.validator_pb2 import Message as Envelope

PROCESSOR_MESSAGES: Final = frozenset(
    {
        Envelope.TP_REGISTER_REQUEST,
        Envelope.TP_UNREGISTER_REQUEST,
        Envelope.TP_PROCESS_RESPONSE,
        Envelope.PACKED_PROCESS_RESPONSE,
        Envelope.TP_STATE_GET_REQUEST,
        Envelope.TP_STATE_SET_REQUEST,
        Envelope.TP_STATE_DELETE_REQUEST,
        Envelope.TP_RECEIPT_ADD_DATA_REQUEST,
        Envelope.TP_EVENT_ADD_REQUEST,
        Envelope.STATE_LIST_REQUEST,
    }
)
"""The messages that only processors send."""

_EVERYBODYS: Final = frozenset({Envelope.PING_REQUEST, Envelope.PING_RESPONSE})
"""Every connected peer may ping."""

_NOBODY: Final = Caller("", frozenset())

Send = Callable[[bytes, int, str, bytes], Delivery]


def right_for(message_type: int) -> Right | None:
    """The right that a message of this type needs; None if every peer may send it."""
    if message_type in _EVERYBODYS:
        return None
    return Right.PROCESSOR if message_type in PROCESSOR_MESSAGES else Right.CLIENT


class Rights:
    """``send``: a method of the gateway."""

    def __init__(self, access: AccessPolicy, send: Send) -> None:
        self._callers = None if access.key is None else access.callers
        self._send = send
        self._warnings: defaultdict[tuple[str, str], ThrottledWarning] = defaultdict(
            lambda: ThrottledWarning("message refused: the list that its sender's key is in does not allow it")
        )
        """By key and name of the message type: the number of both is bounded."""

    def permits(self, request: Request) -> bool:
        """Whether the sender may send this request. If not, sends a refusal and logs the sender's key."""
        if self._callers is None:
            return True
        right = right_for(request.message_type)
        # The authenticator refuses unknown keys. Without it, an unknown key would still have no rights.
        caller = self._callers.get(ConnectionPublicKey(request.key), _NOBODY)
        if caller is not _NOBODY and (right is None or right in caller.rights):
            return True
        self._refuse(request, caller, right)
        return False

    def _refuse(self, request: Request, caller: Caller, right: Right | None) -> None:
        name = type_name(request.message_type)
        wanted = right.value if right else "any"
        listed = ", ".join(sorted(held.value for held in caller.rights)) or "nothing"
        advice = (
            f"give its process a key that is listed under {wanted}, or put its .pub file into the folder {wanted} of"
            " allowed_keys too and restart the validator"
        )
        warning = self._warnings[request.key, name]
        warning.warn(type=name, name=caller.name, key=request.key, list=listed, needs=wanted, advice=advice)
        answer = _answer(
            request.message_type,
            right,
            f"{name} is refused: the key {caller.name} ({request.key}) is not among the allowed {wanted} of this"
            f" validator, it is listed under {listed}: {advice}",
        )
        if answer is not None:
            response_type, response = answer
            self._send(request.identity, response_type, request.correlation_id, response.SerializeToString())


def _answer(message_type: int, right: Right | None, message: str) -> tuple[int, Message] | None:
    """Response type and response of a refusal; None if the protocol has no such response."""
    if message_type == Envelope.TP_REGISTER_REQUEST:
        return Envelope.TP_REGISTER_RESPONSE, TpRegisterResponse(status=TpRegisterResponse.ERROR, message=message)
    if message_type == Envelope.TP_UNREGISTER_REQUEST:
        return Envelope.TP_UNREGISTER_RESPONSE, TpUnregisterResponse(status=TpUnregisterResponse.ERROR)
    # Without an answer, a client would time out and report a hanging validator.
    return (Envelope.NOT_ALLOWED, NotAllowed(message=message)) if right is Right.CLIENT else None
