"""Prunes old states of a store that no validator owns."""

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from dovetail.ledger.limits import Limits
from dovetail.validator.maintenance.child import OnStep, Step
from dovetail.validator.maintenance.inspection import Damage, damage_of
from dovetail.validator.store import StorageFailed, Store
from dovetail.validator.store.length import DATA


class PrunedTo(NamedTuple):
    """``states_from``: the first block with a state. ``nodes``: how many were removed. ``damage``: the damage in the
    remaining records."""

    states_from: int
    head_num: int
    nodes: int
    damage: Damage


def prune(on_step: OnStep, path: Path, limits: Limits, depth_blocks: int) -> PrunedTo:
    """Keep the newest ``depth_blocks`` states of the store in a folder. Raises StorageFailed."""
    if not (path / DATA).exists():
        # ``Store`` would create a missing store.
        raise StorageFailed(f"there is no store at {path}")
    with closing(Store(path, limits)) as store:
        if store.head is None:
            raise StorageFailed(f"the store at {path} holds no block yet")
        before = store.pruned
        total = max(0, store.head.num - depth_blocks + 1 - before.states_from)
        while store.prune(depth_blocks):
            on_step(Step("pruning, blocks", store.pruned.states_from - before.states_from, total))
        after = store.pruned
        if total > after.states_from - before.states_from:
            raise StorageFailed(
                f"what block {after.states_from + 1} replaced cannot be read, states are pruned up to there:"
                " `dovetail store repair` makes it anew"
            )
        # Damage is reported after pruning: a repair rebuilds states from receipts and needs no pruned node.
        damage = damage_of(store, on_step)
        return PrunedTo(after.states_from, store.head.num, after.nodes - before.nodes, damage)
