"""What each step of a transaction's way costs, in one process: the real parts, called one after the other.

From verification to the synced block, without sockets and without the other processes: what is left out here is in the
table of processes of a whole benchmark. Processor time of the thread, so that a busy machine changes little.
"""

import asyncio
import pickle
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from dovetail.bench.progress import ProgressBars
from dovetail.bench.report import Machine, shown_options
from dovetail.bench.signed_load import Kind, Load, sign
from dovetail.common.workers import Workers
from dovetail.ledger.batch import VerifiedBatch, decode_batch_list, verify_batch
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

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_SIGNER: Final = Signer("11" * 32)
_PREPARED_SHAPE: Final = 100
_LIST_TRANSACTIONS: Final = 100
"""So many arrive together, as in the POSTs of a whole benchmark; one batch at least."""

_STEPS: Final = (
    "verify: signatures, hashes, headers",
    "hand over to and from the verifiers",
    "accept: on disk before the answer",
    "queue",
    "choose: rules and schedule",
    "ask: read inputs, build the task",
    "apply: SDK and handler",
    "read the answer",
    "authorize, merge, make receipts",
    "trie, seal",
    "commit",
    "forget",
)


@dataclass(frozen=True)
class BudgetOptions:
    """What ``dovetail bench --budget`` is asked for; its help says what each means."""

    transactions: int
    shape: int
    names: int | Literal["new"]
    block_transactions: int
    seed: int
    folder: Path | None


@dataclass(frozen=True)
class Step:
    """``cpu_us``: of processor time; ``waited_us``: of anything else, the disk mostly. Both a transaction."""

    name: str
    cpu_us: float
    waited_us: float


@dataclass(frozen=True)
class Budget:
    """The whole way."""

    machine: Machine
    options: dict[str, object]
    steps: tuple[Step, ...]
    blocks: int

    @property
    def cpu_us(self) -> float:
        """Of all steps, for one transaction."""
        return sum(step.cpu_us for step in self.steps)


async def measure_budget(options: BudgetOptions, progress: "Progress") -> Budget:
    """Sign a load, and take it through every step."""
    kind: Kind = "create" if options.names == "new" else "draw"
    names = options.names if isinstance(options.names, int) else 0
    loads = [
        Load(options.seed, "budget", "prepare", names, names, _PREPARED_SHAPE, 1),
        Load(options.seed, "budget", kind, names, options.transactions, options.shape, 1),
    ]
    steps = ProgressBars(progress)
    with Workers() as workers, tempfile.TemporaryDirectory(prefix="dovetail-bench-", dir=options.folder) as folder:
        signed: list[list[bytes]] = []
        for load in loads:
            async with steps.step(f"signing {load.transactions:,} transactions", load.transactions) as advance:
                posts = await sign(workers, load, advance)
            signed.append([raw for post in posts for raw in decode_batch_list(post.body)])
        async with steps.step("one step after the other", None):
            job = workers.submit(_measure, Path(folder), signed[0], signed[1], options.block_transactions)
            laps, blocks = await asyncio.wrap_future(job)
    each = 1e6 / options.transactions
    measured = tuple(Step(name, laps[name][0] * each, max(0.0, laps[name][1] * each)) for name in _STEPS)
    return Budget(Machine.here(None, options.folder), shown_options(asdict(options)), measured, blocks)


def show(budget: Budget, console: "Console") -> None:
    """The budget for people."""
    from rich import box
    from rich.table import Table

    budget.machine.show(budget.options, console)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("STEP", "µS A TX", "PART", "WAITED µS"):
        table.add_column(heading, justify="left" if heading == "STEP" else "right")
    for step in budget.steps:
        table.add_row(step.name, f"{step.cpu_us:.1f}", f"{step.cpu_us / budget.cpu_us:.0%}", f"{step.waited_us:.1f}")
    table.add_row("all", f"{budget.cpu_us:.1f}", "", f"{sum(step.waited_us for step in budget.steps):.1f}")
    console.print(table)
    cores = budget.machine.cores
    console.print(
        f"{budget.blocks} blocks; {cores} cores that did nothing else would do {cores * 1e6 / budget.cpu_us:,.0f}"
        f" transactions/s, {budget.steps[0].cpu_us / budget.cpu_us:.2f} of what they verify"
    )


class _Laps:
    """Time since the lap before, by step: processor time of the thread, and the rest."""

    def __init__(self) -> None:
        self.cpu_s: defaultdict[str, float] = defaultdict(float)
        self.waited_s: defaultdict[str, float] = defaultdict(float)
        self.restart()

    def restart(self) -> None:
        self._cpu_s, self._now_s = time.thread_time(), time.perf_counter()

    def end(self, step: int) -> None:
        cpu_s, now_s = time.thread_time(), time.perf_counter()
        self.cpu_s[_STEPS[step]] += cpu_s - self._cpu_s
        self.waited_s[_STEPS[step]] += (now_s - self._now_s) - (cpu_s - self._cpu_s)
        self.restart()


def _measure(
    folder: Path, prepared: Sequence[bytes], load: Sequence[bytes], block_transactions: int
) -> tuple[dict[str, tuple[float, float]], int]:
    """Processor time and other time of each step, in seconds, and how many blocks there were."""
    collect_seldom()
    limits = Limits(
        block_transactions_max=block_transactions,
        pending_transactions_max=10 * block_transactions + _PREPARED_SHAPE,
        pending_batches_max=10 * block_transactions,
    )
    store = Store(folder / "store", limits)
    try:
        path = _Path(store, limits)
        path.take(prepared, _Laps())
        before = store.head.num if store.head else -1
        laps = _Laps()
        path.take(load, laps)
        assert store.head is not None, "blocks were committed"
        return {step: (laps.cpu_s[step], laps.waited_s[step]) for step in _STEPS}, store.head.num - before
    finally:
        store.close()


class _Path:
    """The parts that a batch passes on its way, as ``dovetail.validator.blocks.production`` drives them."""

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

    def take(self, raw_batches: Sequence[bytes], laps: _Laps) -> None:
        """Take these batches to their commit, block by block."""
        waiting = list(raw_batches)[::-1]
        while waiting or len(self._queue):
            while waiting and self._queue.room.transactions < self._limits.block_transactions_max:
                self._arrive(waiting, laps)
            self._make_block(laps)

    def _arrive(self, waiting: list[bytes], laps: _Laps) -> None:
        """The last of ``waiting``, as many as arrive together."""
        laps.restart()
        raw_batches: list[bytes] = []
        verified: list[VerifiedBatch] = []
        transactions = 0
        while waiting and transactions < _LIST_TRANSACTIONS:
            raw_batches.append(waiting.pop())
            verified.append(verify_batch(raw_batches[-1]))
            transactions += len(verified[-1].transactions)
        laps.end(0)
        verified = pickle.loads(pickle.dumps(verified, pickle.HIGHEST_PROTOCOL))
        laps.end(1)
        new = [batch for batch in verified if self._store.batch_number(batch.id) is None]
        first = self._store.add_pending(raw_batches)
        laps.end(2)
        for arrival, batch in enumerate(new, first):
            self._queue.add(arrival, batch)
        laps.end(3)

    def _make_block(self, laps: _Laps) -> None:
        store, limits = self._store, self._limits
        head = store.head
        base = Stored(store.node, head.root if head else EMPTY)
        body = Body(
            head.num + 1 if head else 0,
            permitted_families(base.get),
            lambda transaction_id: store.transaction_number(transaction_id) is not None,
            store.judged_invalid,
        )
        candidate = proposing.choose(self._queue, body, base, self._family.__eq__, limits, 0, None)
        run = candidate.run
        laps.end(4)
        while (task := run.next_task(self._family, limits.packed_transactions_max)) is not None:
            assignment = PackedAssignment(task, run.view, self._send, "c", "", self._namespaces, limits)
            assignment.start()
            laps.end(5)
            answer = self._dispatcher.packed(self._sent, _no_link)
            laps.end(6)
            outcomes = assignment.answer("c", answer)
            assert outcomes is not None, "a packed task has one answer"
            laps.end(7)
            run.complete(task, outcomes, self._namespaces)
            laps.end(8)
        num, parent_id, root = (head.num, head.id, head.root) if head else (-1, NULL_BLOCK_ID, EMPTY)
        parent = Parent(num, parent_id, root, store.next_node_number, time_ms=0)
        concluded = run.conclude(parent, store.node, OwnSeal(_SIGNER, Consensus(SoloEngine.name, num + 1, time_ms=0)))
        assert concluded.commit is not None, "every transaction of the load is valid"
        laps.end(9)
        settled = [entry.arrival for entry in candidate.entries]
        store.commit_block(concluded.commit._replace(settled=settled))
        laps.end(10)
        for entry in candidate.entries:
            self._queue.remove(entry)
        laps.end(11)


def _no_link(message_type: int, content: bytes) -> bytes:
    raise AssertionError("the load names its inputs in full: all of them are in the task")
