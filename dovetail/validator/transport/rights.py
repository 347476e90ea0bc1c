"""What each key may say: a processor's messages, a client's, or both. Whoever says more is refused, with the reason.

At an open door there are no keys and everybody may say everything. Which keys there are is ``doors``' business.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from google.protobuf.message import Message

from dovetail.ledger.connection_keys import ConnectionPublicKey
from dovetail.validator.metrics import type_name
from dovetail.validator.processors import registry
from dovetail.validator.transport.access import Caller, Door, Right
from dovetail.validator.transport.connections import Seldom
from dovetail.validator.transport.gateway import Delivery, Request
from protos.node_pb2 import NotAllowed
from protos.processor_pb2 import TpRegisterResponse, TpUnregisterResponse
from protos.validator_pb2 import Message as Envelope

_EVERYBODYS: Final = frozenset({Envelope.PING_REQUEST, Envelope.PING_RESPONSE})
"""Whoever is let in may ask whether the other lives."""

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
            lambda: Seldom("message refused: the list that its sender's key is in does not allow it")
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
        wanted = right.value if right else "any"
        listed = ", ".join(sorted(held.value for held in caller.rights)) or "nothing"
        seldom = self._seldom[request.key, name]
        advice = (
            f"give its process a key that is listed under {wanted}, or put its .pub file into the folder {wanted} of"
            " allowed_keys too and restart the validator"
        )
        seldom.warn(type=name, name=caller.name, key=request.key, list=listed, needs=wanted, advice=advice)
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
    """Response type and response of a refusal; None where the protocol has no answer that could say it."""
    if message_type == Envelope.TP_REGISTER_REQUEST:
        return Envelope.TP_REGISTER_RESPONSE, TpRegisterResponse(status=TpRegisterResponse.ERROR, message=message)
    if message_type == Envelope.TP_UNREGISTER_REQUEST:
        return Envelope.TP_UNREGISTER_RESPONSE, TpUnregisterResponse(status=TpUnregisterResponse.ERROR)
    # A client waits for what it asked, and takes silence for a validator that hangs.
    return (Envelope.NOT_ALLOWED, NotAllowed(message=message)) if right is Right.CLIENT else None
