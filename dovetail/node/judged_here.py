"""The families that a node judges in the validator's process (ADR 24): ``sawtooth_settings``.

The validator imports no handlers. This module gives it theirs, behind the messages that connected processors get.
"""

from collections.abc import Iterable
from typing import Any, Final

from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.processors.own import OwnFamilies, StateCall
from families.settings.handler import SettingsHandler
from processor_sdk.apply.dispatch import Dispatcher
from processor_sdk.handler import TransactionHandler
from protos.validator_pb2 import Message as Envelope

HANDLERS: Final = (SettingsHandler,)


def judged_here(handlers: Iterable[TransactionHandler[Any]] | None = None) -> OwnFamilies:
    """The families of ``handlers``; by default, of HANDLERS."""
    made = [handler() for handler in HANDLERS] if handlers is None else list(handlers)
    dispatcher = Dispatcher(made)

    def judge(message_type: int, content: bytes, call: StateCall) -> bytes:
        packed = message_type == Envelope.PACKED_PROCESS_REQUEST
        return (dispatcher.packed if packed else dispatcher.single)(content, call)

    namespaces = {FamilyVersion(one.family_name, one.family_version): one.namespaces for one in made}
    return OwnFamilies(namespaces, judge)
