"""Permitted versions and their migrations in a ledger in memory, under the validator's rules.

``processor_sdk.testing.ledger`` runs the migrations.
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
"""The most slices of one migration that run again, not counting a refused one."""

_HOLDING_CHECKED_MAX: Final = 4
_PLANS_KEPT_MAX: Final = 64


def migration_of(plan: Permission, *, sliced: bool) -> Batch:
    """The validator's batch for the migration by ``plan``, without signatures."""
    slices = migration.slices(plan.migrate, sliced=sliced)
    return made(tuple(_slice(plan, slices, number) for number in range(len(slices))))


def done(plan: Permission, committed: Container[TransactionId]) -> TransactionId | None:
    """The first transaction of the migration by ``plan`` if it is committed, sliced or not; else None."""
    return next((first for first in _firsts(plan) if first in committed), None)


class Activation:
    """The versions that may enter the next block, by the setting of permitted families."""

    def __init__(self, state: State, block_num: int, committed: Container[TransactionId]) -> None:
        """``block_num``: of the next block. ``committed``: the transactions of earlier blocks."""
        self._permitted = permitted_families(state.get)
        self._block_num = block_num
        self._committed = committed
        self._awaiting = awaiting_migration(
            self._permitted, block_num, lambda entry: done(entry, committed) is not None
        )

    def plan(self, family: FamilyVersion, prefixes: Sequence[str], namespaces: Sequence[str]) -> Permission:
        """The plan of a migration: the next entry of ``family`` that awaits one, else the entry that permits it.

        ``prefixes``: by default the entry's, or ``namespaces``. Raises NotDecodable if no setting can hold them.
        """
        entry = next((entry for entry in self._awaiting if entry.family == family), None)
        entry = entry or permission_for(family, self._permitted, self._block_num) or Permission(family)
        plan = Permission(
            family, entry.from_block, migrate=tuple(prefixes or entry.migrate or dict.fromkeys(namespaces))
        )
        decode_permitted_families(encode_permitted_families([plan]))
        return plan

    def refusal(self, family: FamilyVersion, id_: TransactionId, plan: Permission | None) -> Result | None:
        """Why the family of transaction ``id_`` may not enter. ``plan``: the transaction is part of this migration."""
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
    """The slices that run again: the first, the last, and some that hold or write entries.

    Running all 256 slices again would take too long for a test.
    """

    def __init__(self, transactions: Sequence[UnsignedTransaction], state: State) -> None:
        """``state``: the state before the migration."""
        last = len(transactions) - 1
        self._holding = [
            place
            for place, transaction in enumerate(transactions)
            if any(next(state.entries(prefix), None) for prefix in transaction.inputs)
        ]
        self._places = {0, last, *_spread(self._holding, _HOLDING_CHECKED_MAX)}
        self._left = SLICES_CHECKED_MAX - len(self._places)

    def takes(self, place: int, outcome: Outcome) -> bool:
        """Whether the slice at ``place`` runs again. Called once for each slice, in order."""
        if place in self._places or outcome.verdict != OK:
            return True
        # A slice may write a single entry, such as a version mark, although it holds nothing.
        if self._left and outcome.changes and place not in self._holding:
            self._left -= 1
            return True
        return False


def _spread(places: Sequence[int], most: int) -> list[int]:
    """At most ``most`` of ``places``, evenly spread. The last is included, the first only if it is the only one."""
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
