"""Rehearses a version's migration: the changes of each slice to the state of a store. Writes nothing."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Literal

from dovetail.common.errors import Refused
from dovetail.ledger import migration
from dovetail.ledger.ids import TransactionId
from dovetail.ledger.permitted import Permission, locks, permitted_families
from dovetail.ledger.settings import SETTINGS, FamilyVersion
from dovetail.rehearsal.differences import failure_of, kept_of
from dovetail.rehearsal.history import Before
from dovetail.rehearsal.rehearser import Rehearser
from dovetail.rehearsal.values import Value, codecs_of, shown
from dovetail.validator.core.journal import migrations
from dovetail.validator.core.state.view import Stored
from dovetail.validator.store import StoreReader
from processor_sdk.context import Context
from processor_sdk.handler import TransactionHandler

_SOME_ID: Final = TransactionId("0" * 128)
"""Any id, to measure receipts: all ids have the same length."""


@dataclass(frozen=True, slots=True)
class Change:
    """The value at an address before and after the migration; None: no value."""

    address: str
    old: Value | None
    new: Value | None


@dataclass(frozen=True, slots=True)
class SliceFindings:
    """The effects of one slice. ``unchanged``: the number of entries written with the same value.

    ``changes``: the first changes.

    ``refused``: why the whole migration would fail; None if the slice succeeds.
    """

    prefixes: tuple[str, ...]
    leaves: int
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    refused: Literal["invalid", "internal_error"] | None = None
    message: str = ""
    changes: tuple[Change, ...] = ()


def state_after(store: StoreReader, block_num: int) -> Before:
    """The state after a block; empty before the first block."""
    return Before(Stored(store.node, store.root_after(block_num)))


def prefixes_for(store: StoreReader, block_num: int, handler: TransactionHandler[Any]) -> tuple[tuple[str, ...], bool]:
    """The prefixes that the handler's version migrates after block ``block_num``, and whether the chain names them.

    The prefixes come from the version's plan with the lowest ``from_block`` that is neither committed nor expired at
    block ``block_num``. If there is no such plan and none was committed, they are the handler's namespaces. Raises
    Refused if there is no such plan and one was committed, or if no plan may name the namespaces. Raises StorageFailed.
    """
    family = FamilyVersion(handler.family_name, handler.family_version)
    permitted = permitted_families(state_after(store, block_num).get) or ()
    done = None
    for permission in sorted(permitted, key=attrgetter("from_block")):
        if permission.family == family and permission.migrate:
            num = _block_of(store, permission)
            ended = permission.until_block is not None and permission.until_block <= block_num
            if num is not None and num <= block_num:
                done = num
            elif not ended:
                return permission.migrate, True
    if done is not None:
        raise Refused(
            f"the migration to {family} is in block {done} already: --blocks ..{done - 1} shows what it found, and did"
        )
    locked = locks((Permission(SETTINGS), Permission(family, migrate=handler.namespaces)))
    if locked:
        raise Refused(locked)
    return handler.namespaces, False


def _block_of(store: StoreReader, permission: Permission) -> int | None:
    """The block that holds the migration of a version."""
    for transaction_id in migrations.transaction_ids_of(permission):
        number = store.transaction_number(transaction_id)
        if number is not None:
            return store.block_of_transaction(number).num
    return None


def slices_of(before: Before, prefixes: Sequence[str]) -> list[tuple[str, ...]]:
    """The slices in which a validator would migrate this state. Raises StorageFailed."""
    values = (value for prefix in prefixes for _, value in before.under(prefix))
    return migration.slices(prefixes, sliced=migration.is_sliced(values))


def migrate_slice(rehearser: Rehearser, block_num: int, prefixes: tuple[str, ...], changes_max: int) -> SliceFindings:
    """Migrate the slice under ``prefixes`` of the state after block ``block_num``. Raises StorageFailed."""
    rehearser.store.refresh()
    before = state_after(rehearser.store, block_num)
    leaves = sum(1 for prefix in prefixes for _ in before.under(prefix))
    result = rehearser.slice(prefixes, before)
    context = result.context
    if context is None:
        refused, message = failure_of(result)
        return SliceFindings(prefixes, leaves, refused=refused, message=message)
    name, namespaces, limits = rehearser.family_name, rehearser.namespaces, rehearser.limits
    kept = kept_of(_SOME_ID, name, prefixes, context, before, namespaces, limits, migrates=True)
    if isinstance(kept, str):
        return SliceFindings(prefixes, leaves, refused="invalid", message=kept)
    counts: Counter[str] = Counter()
    changes: list[Change] = []
    for kind, address, old, new in _effects(context, before):
        counts[kind] += 1
        if kind != "unchanged" and len(changes) < changes_max:
            codecs = codecs_of(context)
            changes.append(Change(address, shown(old, address, codecs), shown(new, address, codecs)))
    return SliceFindings(
        prefixes,
        leaves,
        added=counts["added"],
        changed=counts["changed"],
        unchanged=counts["unchanged"],
        removed=counts["removed"],
        changes=tuple(changes),
    )


def _effects(context: Context, before: Before) -> Iterator[tuple[str, str, bytes | None, bytes | None]]:
    """Kind, address, old and new value of each write, in address order."""
    for address, new in sorted(context.changes.items()):
        old = before.get(address)
        if old == new:
            if new is not None:
                yield "unchanged", address, old, new
        else:
            yield "added" if old is None else "removed" if new is None else "changed", address, old, new
