"""The families that the node judges itself: their handlers run in the validator's process, on no connection.

The handlers are given, because the validator imports none. ``registry`` gives them tasks and takes their answers.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.store import StorageFailed, StorageLost

OWN_IDENTITY: Final = b""
"""The identity of the node's own processor. No peer can have it, because the identity of a peer is never empty."""

OCCUPANCY: Final = 64
"""The transactions that the node's own processor may hold, in at most two tasks. Each task occupies the event loop."""

StateCall = Callable[[int, bytes], bytes]
"""Takes message type and content of a state request; returns the content of its response."""


class OwnFamilies(NamedTuple):
    """Families that the node judges itself.

    ``namespaces``: of each family. ``judge`` takes message type and content of a task's request, in packed execution or
    the 1.x conversation, and returns the content of the response. An exception of a handler is an answer, too.
    """

    namespaces: Mapping[FamilyVersion, tuple[str, ...]]
    judge: Callable[[int, bytes, StateCall], bytes]

    def judges_name(self, family_name: str) -> bool:
        """Whether the node judges a version of this family."""
        return any(family.name == family_name for family in self.namespaces)

    def answer(self, message_type: int, content: bytes, call: StateCall) -> bytes:
        """The content of the response to a request.

        Raises StorageFailed and StorageLost of ``call``: a fault of the store is the node's, and no verdict.
        """
        faults: list[Exception] = []

        def checked(message_type: int, content: bytes) -> bytes:
            try:
                return call(message_type, content)
            except (StorageFailed, StorageLost) as fault:
                # ``judge`` makes an internal error of every exception.
                faults.append(fault)
                raise

        response = self.judge(message_type, content, checked)
        if faults:
            raise faults[0]
        return response


def _judges_nothing(message_type: int, content: bytes, call: StateCall) -> bytes:
    raise AssertionError("a node without own families gives itself no task")


NO_FAMILIES: Final = OwnFamilies({}, _judges_nothing)
"""A node that judges no family itself."""
