"""The invariants of a node between two events: counts, waits, and the places of batches."""

from dovetail.ledger.ids import BatchId, TransactionId
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.journal.proposing import Candidate
from dovetail.validator.core.mempool.queue import INJECTED, Pending, Reason
from dovetail.validator.node import Node
from tests.system.simulation.disk import Disk
from tests.system.simulation.model import Model, Violated
from tests.system.simulation.promises import pending_ids


def check_node(node: Node, disk: Disk) -> None:
    """Check a node that has restored its pending batches. Raises Violated."""
    queue = node._queue
    entries = list(queue)
    _same(
        "transactions of the queue", queue.quota.transactions, sum(len(entry.batch.transactions) for entry in entries)
    )
    each = [item for entry in entries for item in entry.batch.transactions]
    declared = sum(len(item.inputs) + len(item.outputs) + len(item.dependencies) for item in each)
    data_bytes = sum(len(entry.batch.raw) for entry in entries) + 200 * declared
    _same("bytes of the queue", queue.quota.data_bytes, data_bytes)
    held = {entry.batch.id: entry.arrival for entry in entries if entry.arrival != INJECTED}
    if node._store.head is not None:
        # No table holds the genesis batches.
        _same("pending batches on the disk", pending_ids(disk), held)
    parked = {batch_id for waiting in queue._parked.values() for batch_id in waiting}
    waiting = {entry.batch.id for entry in entries if entry.reason not in (Reason.QUEUED, Reason.EXECUTING)}
    _same("parked batches", parked, waiting)
    executing = node._production._proposing
    in_block = _batches_of(executing)
    if built := node._production._built:
        # Batches without a result are no longer in the block.
        results = zip(built.entries, built.run.results(), strict=True)
        in_block |= _batches_of(built) - {entry.batch.id for entry, result in results if result is None}
    if executing is not None and not _tasks_held(node) and node._advance_handle is None:
        raise Violated("a block is being executed, and no processor has a task of it")
    _same("batches of the block", {entry.batch.id for entry in entries if entry.reason is Reason.EXECUTING}, in_block)
    ready = {item[1] for item in queue._ready if queue._is_ready(item)}
    backing_off = set(queue._backing_off)
    queued = {entry.batch.id for entry in entries if entry.reason is Reason.QUEUED}
    _same("batches that are ready or back off", queued, ready | backing_off)
    _check_waits(node)


def _batches_of(candidate: Candidate | None) -> set[BatchId]:
    if candidate is None:
        return set()
    return {entry.batch.id for entry in candidate.entries}


def check_quiet(node: Node) -> None:
    """Check that no client waits and nothing runs. Raises Violated."""
    statuses = node._clients.statuses
    _same("waits of clients", (statuses.waiters, len(statuses._of_batch)), (0, 0))
    _same("tasks that run", node._production._driver.tasks_out, 0)
    _same("tasks at processors", _tasks_held(node), 0)
    _same("tasks that are timed", len(node._metrics._given_s), 0)
    _same("lists that are verified", node._clients.submissions._checking_bytes, 0)
    _same("a block being built", node._production._proposing or node._production._built, None)


def may_wait(node: Node, model: Model, entry: Pending) -> bool:
    """Whether a batch may stay pending although honest processors of all families are connected.

    Such a batch waits for a later block, by the model's permitted families, or for a transaction of another such batch.
    """
    seen: set[str] = set()
    while entry.reason is Reason.WAITING_FOR_DEPENDENCY and entry.batch.id not in seen:
        seen.add(entry.batch.id)
        holder = _other_holder(node, entry, entry.dependency)
        if holder is None:
            return False
        entry = holder
    family: FamilyVersion | None = entry.family
    return entry.reason is Reason.WAITING_FOR_ACTIVATION and family is not None and model.may_enter_later(family)


def _tasks_held(node: Node) -> int:
    return sum(status.in_flight_tasks for status in node._processors.statuses())


def _other_holder(node: Node, entry: Pending, dependency: TransactionId | None) -> Pending | None:
    holder = None if dependency is None else node._queue.holder(dependency)
    return None if holder is entry else holder


def _check_waits(node: Node) -> None:
    statuses = node._clients.statuses
    waits = [wait for of_peer in statuses._of_peer.values() for wait in of_peer.values()]
    _same("ids that are waited for", statuses._ids_held, sum(wait.ids for wait in waits))
    _same("unknown ids that are waited for", statuses._unknown_held, sum(wait.unknown for wait in waits))
    registered = {id(wait) for of_batch in statuses._of_batch.values() for wait in of_batch}
    if not registered <= {id(wait) for wait in waits}:
        raise Violated("a wait that ended is still registered under a batch")
    for wait in waits:
        if wait.timer is None or wait.timer.cancelled():
            raise Violated("a wait has no timer")


def _same(what: str, found: object, expected: object) -> None:
    if found == expected:
        return
    if isinstance(found, dict) and isinstance(expected, dict):
        found, expected = set(found), set(expected)
    if isinstance(found, set) and isinstance(expected, set):
        more = [str(name)[:8] for name in sorted(found - expected)]
        less = [str(name)[:8] for name in sorted(expected - found)]
        raise Violated(f"{what}: too many are {more}, missing are {less}")
    raise Violated(f"{what}: {found!r}, expected {expected!r}")
