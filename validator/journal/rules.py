"""What must hold before a batch may enter a block: uniqueness, dependencies, permitted families.

The one home of these rules, for blocks that are built and blocks that are checked. Signatures were checked before; what
the transactions do is the executor's business.
"""

from collections.abc import Callable
from typing import Final

from ledger import settings
from ledger.batch import VerifiedBatch
from ledger.errors import NotDecodable
from ledger.ids import TransactionId
from ledger.settings import FamilyVersion
from validator.execution.executor import ReadState
from validator.execution.model import Rejected, Withdrawn

PERMITTED_AT: Final = settings.setting_address(settings.TRANSACTION_FAMILIES)
"""The address of the leaf that says which families may enter a block."""

_SHOWN_MAX: Final = 10
_SHOWN_CHARACTERS_MAX: Final = 80

Knows = Callable[[TransactionId], bool]


class Body:
    """The batches of one block so far, over the chain that it extends.

    ``read``: the state that the block builds on. ``committed``: whether the chain holds a transaction. ``invalid``:
    whether a transaction was judged invalid and is not pending.
    """

    def __init__(self, read: ReadState, committed: Knows, invalid: Knows) -> None:
        self._permitted = permitted_families(read)
        self._committed = committed
        self._invalid = invalid
        self._included: set[TransactionId] = set()

    def include(self, batch: VerifiedBatch) -> None:
        """Make ``batch`` the next one of the body; it was checked."""
        self._included.update(transaction.id for transaction in batch.transactions)

    def check(self, batch: VerifiedBatch) -> Rejected | Withdrawn | None:
        """Why ``batch`` may never, or not now, be the next one of the body; None if it may."""
        own: set[TransactionId] = set()
        for transaction in batch.transactions:
            family = transaction.family
            if self._permitted is not None and family not in self._permitted:
                listed = _listed(self._permitted)
                message = f"{family} is not permitted; {settings.TRANSACTION_FAMILIES} permits: {listed}"
                return Rejected("family_not_permitted", message, transaction.id, family=family)
            if self._committed(transaction.id):
                return Rejected(
                    "duplicate_transaction", f"transaction {transaction.id} is already committed", transaction.id
                )
            if transaction.id in self._included:
                return Withdrawn("waiting_for_dependency", dependency=transaction.id)
            for dependency in transaction.dependencies:
                if dependency in own or dependency in self._included or self._committed(dependency):
                    continue
                if self._invalid(dependency):
                    return Rejected(
                        "dependency_invalid",
                        f"it depends on transaction {dependency}, which was judged invalid",
                        transaction.id,
                    )
                return Withdrawn("waiting_for_dependency", dependency=dependency)
            own.add(transaction.id)
        return None


def _listed(families: frozenset[FamilyVersion]) -> str:
    """Some of the permitted families, for a message that is kept for every batch that they refuse."""
    names = sorted(map(str, families))
    named = ", ".join(name[:_SHOWN_CHARACTERS_MAX] for name in names[:_SHOWN_MAX]) or "none"
    return f"{named} and {len(names) - _SHOWN_MAX} more" if len(names) > _SHOWN_MAX else named


def permitted_families(read: ReadState) -> frozenset[FamilyVersion] | None:
    """The families that may enter a block on this state; None where the setting is absent: all.

    A value that cannot be understood permits the settings family alone, so that it can be mended.
    """
    try:
        stored = settings.decode_setting(read(PERMITTED_AT))
        value = stored.get(settings.TRANSACTION_FAMILIES)
        return None if value is None else settings.decode_permitted_families(value)
    except NotDecodable:
        return frozenset({FamilyVersion(settings.FAMILY_NAME, settings.FAMILY_VERSION)})
