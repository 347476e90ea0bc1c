"""Versions and their migrations in a ledger in memory: which may enter, of what a migration is made, what is run again.

The rules are the validator's; that a migration is run, and what becomes of it, is the ledger's business.
"""

from collections.abc import Container, Sequence
from functools import lru_cache
from typing import Final

from dovetail.ledger import migration
from dovetail.ledger.ids import TransactionId
from dovetail.ledger.permitted import (
    Permission,
    awaiting_migration,
    decode_permitted_families,
    encode_permitted_families,
    permission_for,
    permission_refusal,
    permitted_families,
)
from dovetail.ledger.settings import FamilyVersion
from processor_sdk.testing.model import Outcome, Result, Verdict
from processor_sdk.testing.runs import OK
from processor_sdk.testing.state import State
from processor_sdk.testing.transactions import Batch, UnsignedTransaction, made, unsigned

SLICES_CHECKED_MAX: Final = 8
"""Most slices of one migration that are run again, beside one that is refused."""

_HOLDING_CHECKED_MAX: Final = 4
_PLANS_KEPT_MAX: Final = 64


def migration_of(plan: Permission, *, sliced: bool) -> Batch:
    """The batch by which a validator migrates by ``plan``, but for its signatures."""
    slices = migration.slices(plan.migrate, sliced=sliced)
    return made(tuple(_slice(plan, slices, number) for number in range(len(slices))))


def done(plan: Permission, committed: Container[TransactionId]) -> TransactionId | None:
    """The first transaction of the migration by ``plan`` where that is committed, in whichever way it was sliced."""
    return next((first for first in _firsts(plan) if first in committed), None)


class Activation:
    """Which versions may enter the next block, by the setting."""

    def __init__(self, state: State, block_num: int, committed: Container[TransactionId]) -> None:
        """``block_num``: of the next block; ``committed``: whether earlier ones hold a transaction."""
        self._permitted = permitted_families(state.get)
        self._block_num = block_num
        self._committed = committed
        self._awaiting = awaiting_migration(
            self._permitted, block_num, lambda entry: done(entry, committed) is not None
        )

    def plan(self, family: FamilyVersion, prefixes: Sequence[str], namespaces: Sequence[str]) -> Permission:
        """By what ``family`` migrates: the next of its entries that waits for that, else the one that permits it.

        Raises NotDecodable for ``prefixes`` that no setting can hold; without any they are the entry's, or
        ``namespaces``.
        """
        entry = next((entry for entry in self._awaiting if entry.family == family), None)
        entry = entry or permission_for(family, self._permitted, self._block_num) or Permission(family)
        plan = Permission(
            family, entry.from_block, migrate=tuple(prefixes or entry.migrate or dict.fromkeys(namespaces))
        )
        decode_permitted_families(encode_permitted_families([plan]))
        return plan

    def refusal(self, family: FamilyVersion, id_: TransactionId, plan: Permission | None) -> Result | None:
        """Why the transaction ``id_`` may not enter, by its family; ``plan``: it migrates by it."""
        not_permitted = permission_refusal(family, self._permitted, self._block_num)
        if not_permitted is not None:
            return Result(Verdict.INVALID, "family_not_permitted", not_permitted, id_)
        waits = self._waits(family, plan)
        return None if waits is None else Result(Verdict.PENDING, "waiting_for_activation", waits, id_)

    def _waits(self, family: FamilyVersion, plan: Permission | None) -> str | None:
        permission = permission_for(family, self._permitted, self._block_num)
        assert permission is not None, "what is not refused is permitted now or later"
        if not permission.covers(self._block_num):
            return f"{family} is permitted from block {permission.from_block} on"
        if plan is None:
            awaits = any(entry.family == family for entry in self._awaiting)
            return f"{family} is permitted when its migration is in a block" if awaits else None
        if done(plan, self._committed) is not None:
            return None
        for entry in self._awaiting:
            if entry[:2] == plan[:2] or entry.from_block > plan.from_block:
                break
            if entry.overlaps(plan):
                return f"{family} migrates state that {entry.family} has to migrate before"
        return None


class Sample:
    """Which slices are run again: the first, the last, and others that hold or write something.

    A run of one slice again costs as much as that of an apply, and 256 of them what no test can wait for.
    """

    def __init__(self, transactions: Sequence[UnsignedTransaction], state: State) -> None:
        """``state``: before the migration."""
        last = len(transactions) - 1
        self._holding = [
            place
            for place, transaction in enumerate(transactions)
            if any(next(state.entries(prefix), None) for prefix in transaction.inputs)
        ]
        self._places = {0, last, *_spread(self._holding, _HOLDING_CHECKED_MAX)}
        self._left = SLICES_CHECKED_MAX - len(self._places)

    def takes(self, place: int, outcome: Outcome) -> bool:
        """Whether the slice at ``place``, which ended as ``outcome``, is one of them; asked once for each, in order."""
        if place in self._places or outcome.verdict != OK:
            return True
        # What there is once, such as a mark of the version, may be written where there is nothing else.
        if self._left and outcome.changes and place not in self._holding:
            self._left -= 1
            return True
        return False


def _spread(places: Sequence[int], most: int) -> list[int]:
    """At most so many of ``places``, evenly: the last, and not the first unless it is the only one."""
    count = min(len(places), most)
    return [places[(number + 1) * len(places) // count - 1] for number in range(count)]


@lru_cache(maxsize=_PLANS_KEPT_MAX)
def _firsts(plan: Permission) -> tuple[TransactionId, ...]:
    forms = [migration.slices(plan.migrate, sliced=sliced) for sliced in (False, True)]
    return tuple(_slice(plan, slices, 0).id for slices in forms)


def _slice(plan: Permission, slices: Sequence[tuple[str, ...]], number: int) -> UnsignedTransaction:
    return unsigned(
        plan.family,
        b"",
        encoding=migration.PAYLOAD_ENCODING,
        inputs=slices[number],
        outputs=slices[number],
        signer=migration.PUBLIC_KEY,
        dependencies=(),
        nonce=migration.nonce(number, len(slices), plan.from_block, plan.migrate),
    )
