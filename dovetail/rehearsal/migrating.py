"""A version's migration, rehearsed: what each slice would write over the state of a store. Nothing is written."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dovetail.rehearsal.differences import place_of, too_large
from dovetail.rehearsal.history import Before
from dovetail.rehearsal.judging import Judge
from dovetail.rehearsal.values import Value, codecs_of, shown
from ledger import migration
from ledger.ids import TransactionId
from ledger.permitted import permitted_families
from ledger.settings import FamilyVersion
from processor_sdk.context import Context
from processor_sdk.dispatch import Judgement
from processor_sdk.handler import TransactionHandler
from protos import processor_pb2
from validator.state import walk
from validator.state.nodes import EMPTY, Ref
from validator.state.view import Stored
from validator.store import StoreReader

_SOME_ID: Final = TransactionId("0" * 128)
"""Receipts are measured with it; every id is as long."""


@dataclass(frozen=True, slots=True)
class Change:
    """What an address would hold afterwards; None: nothing."""

    address: str
    old: Value | None
    new: Value | None


@dataclass(frozen=True, slots=True)
class SliceFindings:
    """What one slice would do. ``unchanged``: written with what was there; ``changes``: the first of them.

    ``refused``: why the whole migration would leave nothing; None where the slice is done.
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


def root_after(store: StoreReader, block_num: int) -> Ref:
    """The state after a block; the empty one where there is none."""
    block = store.block(block_num)
    return block.root if block else EMPTY


def prefixes_for(store: StoreReader, root: Ref, handler: TransactionHandler[object]) -> tuple[tuple[str, ...], bool]:
    """What the migration of the handler's version covers, and whether the chain says so; else its namespaces."""
    family = FamilyVersion(handler.family_name, handler.family_version)
    for permission in permitted_families(Stored(store.node, root).get) or ():
        if permission.family == family and permission.migrate:
            return permission.migrate, True
    return handler.namespaces, False


def leaves_under(store: StoreReader, root: Ref, prefixes: Sequence[str]) -> int:
    """How many entries begin with one of ``prefixes``."""
    tops = (walk.subtree(store.node, root, prefix) for prefix in prefixes)
    return sum(top.leaves for top in tops if top is not None)


def slices_of(store: StoreReader, root: Ref, prefixes: Sequence[str]) -> list[tuple[str, ...]]:
    """The slices in which the validator would migrate that state."""
    return migration.slices(prefixes, leaves_under(store, root, prefixes))


def migrate_slice(judge: Judge, block_num: int, prefixes: tuple[str, ...], changes_max: int) -> SliceFindings:
    """What the slice under ``prefixes`` of the state after block ``block_num`` would do."""
    store = judge.store
    root = root_after(store, block_num)
    before = Before(Stored(store.node, root))
    leaves = leaves_under(store, root, prefixes)
    judgement = judge.slice(prefixes, before)
    context = judgement.context
    if context is None:
        return _refused(prefixes, leaves, judgement)
    refusal = too_large(_SOME_ID, context)
    if refusal:
        return SliceFindings(prefixes, leaves, refused="invalid", message=refusal)
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


def _refused(prefixes: tuple[str, ...], leaves: int, judgement: Judgement) -> SliceFindings:
    invalid = judgement.status == processor_pb2.TpProcessResponse.INVALID_TRANSACTION
    message = judgement.message if invalid else judgement.message + place_of(judgement.error)
    return SliceFindings(prefixes, leaves, refused="invalid" if invalid else "internal_error", message=message)
