"""A node's parts in one process, called one after the other, with the time that each takes.

Leaves out sockets, frames between processes, and the REST API. Runs in a worker process.
"""

import pickle
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Final

from dovetail.ledger.batch import VerifiedBatch, verify_batch
from dovetail.ledger.block import Consensus
from dovetail.ledger.ids import NULL_BLOCK_ID
from dovetail.ledger.limits import Limits
from dovetail.ledger.permitted import permitted_families
from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.signing import Signer
from dovetail.validator.collector import collect_seldom
from dovetail.validator.core.consensus.solo import SoloEngine
from dovetail.validator.core.journal import proposing
from dovetail.validator.core.journal.rules import Body
from dovetail.validator.core.journal.sealing import OwnSeal, Parent
from dovetail.validator.core.mempool.queue import PendingQueue
from dovetail.validator.core.state.nodes import EMPTY
from dovetail.validator.core.state.view import Stored
from dovetail.validator.processors.assignment import PackedAssignment
from dovetail.validator.store import Store
from families.intkey.handler import IntkeyHandler
from processor_sdk.apply.dispatch import Dispatcher

PREPARED_SHAPE: Final = 100
_SIGNER: Final = Signer("11" * 32)
_LIST_TRANSACTIONS: Final = 100
"""Transactions that arrive together, as in a POST of ``bench load``; at least one batch."""


class Step(StrEnum):
    """The steps that a transaction passes, in order."""

    VERIFY = "verify: signatures, hashes, headers"
    HAND_OVER = "hand over to and from the verifiers"
    ACCEPT = "accept: on disk before the answer"
    QUEUE = "queue"
    CHOOSE = "choose: rules and schedule"
    ASK = "ask: read inputs, build the task"
    APPLY = "apply: SDK and handler"
    READ = "read the answer"
    MERGE = "authorize, merge, make receipts"
    SEAL = "trie, seal"
    COMMIT = "commit"
    FORGET = "forget"


class StepTimes:
    """Processor time of the thread and other time, in seconds, by step. A step begins when the previous step ends."""

    def __init__(self) -> None:
        self.cpu_s: defaultdict[Step, float] = defaultdict(float)
        self.waited_s: defaultdict[Step, float] = defaultdict(float)
        self.restart()

    def restart(self) -> None:
        self._cpu_s, self._now_s = time.thread_time(), time.perf_counter()

    def end(self, step: Step) -> None:
        cpu_s, now_s = time.thread_time(), time.perf_counter()
        self.cpu_s[step] += cpu_s - self._cpu_s
        self.waited_s[step] += (now_s - self._now_s) - (cpu_s - self._cpu_s)
        self.restart()


def time_steps(
    folder: Path, prepared: Sequence[bytes], load: Sequence[bytes], block_transactions: int
) -> tuple[StepTimes, int]:
    """Commit the batches of ``prepared``, then of ``load``. Returns the times of ``load``, and its number of blocks."""
    collect_seldom()
    limits = Limits(
        block_transactions_max=block_transactions,
        pending_transactions_max=10 * block_transactions + PREPARED_SHAPE,
        pending_batches_max=10 * block_transactions,
    )
    with closing(Store(folder / "store", limits)) as store:
        path = _Path(store, limits)
        path.commit(prepared, StepTimes())
        before = store.head.num if store.head else -1
        times = StepTimes()
        path.commit(load, times)
        assert store.head is not None, "blocks were committed"
        return times, store.head.num - before


class _Path:
    """The parts that a batch passes, as ``dovetail.validator.blocks.production`` drives them."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._queue = PendingQueue(limits)
        handler = IntkeyHandler()
        self._dispatcher = Dispatcher([handler])
        self._family = FamilyVersion(handler.family_name, handler.family_version)
        self._namespaces = tuple(handler.namespaces)
        self._sent = b""

    def _send(self, message_type: int, correlation_id: str, content: bytes) -> None:
        self._sent = content

    def commit(self, raw_batches: Sequence[bytes], times: StepTimes) -> None:
        """Take batches to their commit, block by block."""
        waiting = list(raw_batches)[::-1]
        while waiting or len(self._queue):
            while waiting and self._queue.quota.transactions < self._limits.block_transactions_max:
                self._accept(waiting, times)
            self._make_block(times)

    def _accept(self, waiting: list[bytes], times: StepTimes) -> None:
        """Accept as many batches as arrive together, from the end of ``waiting``."""
        times.restart()
        raw_batches: list[bytes] = []
        verified: list[VerifiedBatch] = []
        transactions = 0
        while waiting and transactions < _LIST_TRANSACTIONS:
            raw_batches.append(waiting.pop())
            verified.append(verify_batch(raw_batches[-1]))
            transactions += len(verified[-1].transactions)
        times.end(Step.VERIFY)
        verified = pickle.loads(pickle.dumps(verified, pickle.HIGHEST_PROTOCOL))
        times.end(Step.HAND_OVER)
        new = [batch for batch in verified if self._store.batch_number(batch.id) is None]
        first = self._store.add_pending(raw_batches)
        times.end(Step.ACCEPT)
        for arrival, batch in enumerate(new, first):
            self._queue.add(arrival, batch)
        times.end(Step.QUEUE)

    def _make_block(self, times: StepTimes) -> None:
        store, limits = self._store, self._limits
        head = store.head
        num, parent_id, root = (head.num, head.id, head.root) if head else (-1, NULL_BLOCK_ID, EMPTY)
        base = Stored(store.node, root)
        body = Body(
            num + 1,
            permitted_families(base.get),
            lambda transaction_id: store.transaction_number(transaction_id) is not None,
            store.judged_invalid,
        )
        candidate = proposing.choose(self._queue, body, base, self._family.__eq__, limits, 0, None)
        run = candidate.run
        times.end(Step.CHOOSE)
        while (task := run.next_task(self._family, limits.packed_transactions_max)) is not None:
            assignment = PackedAssignment(task, run.view, self._send, "c", "", self._namespaces, limits)
            assignment.start()
            times.end(Step.ASK)
            answer = self._dispatcher.packed(self._sent, _no_link)
            times.end(Step.APPLY)
            outcomes = assignment.answer("c", answer)
            assert outcomes is not None, "a packed task has one answer"
            times.end(Step.READ)
            run.complete(task, outcomes, self._namespaces)
            times.end(Step.MERGE)
        parent = Parent(num, parent_id, root, store.next_node_number, time_ms=0)
        concluded = run.conclude(parent, store.node, OwnSeal(_SIGNER, Consensus(SoloEngine.name, num + 1, time_ms=0)))
        assert concluded.commit is not None, "every transaction of the load is valid"
        times.end(Step.SEAL)
        settled = [entry.arrival for entry in candidate.entries]
        store.commit_block(concluded.commit._replace(settled=settled))
        times.end(Step.COMMIT)
        for entry in candidate.entries:
            self._queue.remove(entry)
        times.end(Step.FORGET)


def _no_link(message_type: int, content: bytes) -> bytes:
    raise AssertionError("the load names its inputs in full, so that the task holds all of them")
