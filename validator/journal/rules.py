"""What must hold before a batch may enter a block: uniqueness, dependencies, permitted families.

The one home of these rules, for blocks that are built and blocks that are checked. Signatures were checked before; what
the transactions do is the executor's business.
"""

from collections.abc import Callable

from ledger.batch import VerifiedBatch
from ledger.ids import TransactionId
from ledger.permitted import permission_refusal, permitted_families
from validator.execution.model import Rejected, Withdrawn

Knows = Callable[[TransactionId], bool]
ReadState = Callable[[str], bytes | None]
"""What an address holds in the state that the block builds on."""


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
            not_permitted = permission_refusal(family, self._permitted)
            if not_permitted is not None:
                return Rejected("family_not_permitted", not_permitted, transaction.id, family=family)
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
