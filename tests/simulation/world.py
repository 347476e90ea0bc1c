"""One simulated world: a node with everybody around it, drawn from a seed, run until it is calm and nothing is left.

What lives here: what is drawn, when things start, stop and crash, and when what is checked. What the actors do is
theirs; what must hold is in ``model``, ``promises`` and ``invariants``.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from ledger.limits import Limits
from ledger.signing import Signer
from protos import genesis_pb2
from tests.simulation.clients import Client
from tests.simulation.clock import SimulatedLoop, pause
from tests.simulation.disk import Crashed, Disk, Fault
from tests.simulation.invariants import check_node, check_quiet, may_wait
from tests.simulation.maker import Maker
from tests.simulation.model import Model, Violated
from tests.simulation.processors import LIES, Nature, Processor
from tests.simulation.programs import FLAKY, HOT, HOT_NEXT, LIST, SETTINGS
from tests.simulation.promises import Promises
from tests.simulation.stage import Stage
from tests.simulation.verifiers import SimulatedVerifiers
from tests.simulation.wire import Network, SimulatedGateway
from validator.config import ValidatorConfig
from validator.node import GENESIS_FILE, CannotStart, Node
from validator.store import StorageFailed, Store
from validator.surroundings import Surroundings

_SIGNER: Final = Signer("11" * 32)
_ROUNDS_MAX: Final = 300_000
_CHECK_MS: Final = 230
_SETTLE_MS_MAX: Final = 240_000
"""How much simulated time accepted batches have to end once it is calm."""


class Outcome(NamedTuple):
    """How a world ended. ``digest``: of its transcript. ``failure``: what did not hold."""

    seed: int
    failure: BaseException | None
    digest: int
    blocks: int
    batches: int
    accepted: int
    crashes: int
    rounds: int


def run_world(seed: int, folder: Path, show: Callable[[str], None] | None = None) -> Outcome:
    """Run the world of a seed. ``folder``: for what the node reads as files, the same for all worlds."""
    world = World(seed, folder, show)
    try:
        return world.run()
    finally:
        world.loop.close()


class World:
    """Everything of one seed."""

    def __init__(self, seed: int, folder: Path, show: Callable[[str], None] | None) -> None:
        self.seed = seed
        self.rng = rng = Random(seed)
        self.loop = SimulatedLoop(_ROUNDS_MAX)
        self.loop.set_exception_handler(self._on_exception)
        self.stage = Stage(self.loop, rng, self._fail, show)
        self.model = Model()
        self.disk = Disk(self._next_fault, self._on_synced)
        self.limits = _limits(rng)
        self._disk_faults = rng.choice([0.0, 0.0, 0.01, 0.05])
        self._disk_crashes = rng.choice([0.0, 0.0, 0.005, 0.02])
        self._slow_disk_ms = rng.choice([0, 0, 3, 60])
        self._full_until_ms = 0
        self._active_ms = rng.randint(1_000, 8_000)
        self._crash_times = sorted(rng.randint(0, self._active_ms) for _ in range(rng.choice([0, 0, 1, 2, 3])))
        upgrade_at = rng.choice([None, None, rng.randint(1, 25)])
        self._families = [HOT, *rng.sample([LIST, FLAKY], rng.randint(0, 2))]
        self.maker = Maker(rng, self._families + [HOT_NEXT] * (upgrade_at is not None), upgrade_at, rng.choice([0, 0, 5]))
        self.promises = Promises(self.disk, self.model, self.maker, self.stage)
        self.network = self.stage.network = Network(
            self.loop, rng, rng.choice([30, 1_000]), self.promises.watch
        )
        self.config = ValidatorConfig(folder, folder / "key", "simulated", 1, self.limits)
        self.node: Node | None = None
        self._store: Store | None = None
        self._restored = False
        self._starting: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None
        self._failed: asyncio.Future[None]
        self.crashes = 0
        self._processors: list[Processor] = []
        self._clients: list[Client] = []

    def run(self) -> Outcome:
        self._write_genesis()
        try:
            self.loop.run_until_complete(self._main())
        except Exception as error:  # noqa: BLE001 (whatever it is, it is what the seed found)
            self._fail(error)
        with suppress(Exception):
            self.loop.run_until_complete(self._end())
        return Outcome(
            self.seed, self._failure, self.stage.digest, len(self.model.blocks), len(self.model.batches),
            len(self.promises.accepted), self.crashes, self.loop.rounds,
        )  # fmt: skip

    # The course of things

    async def _main(self) -> None:
        self._failed = self.loop.create_future()
        course = self._spawn(self._course())
        await asyncio.wait({course, self._failed}, return_when=asyncio.FIRST_COMPLETED)

    async def _course(self) -> None:
        rng = self.rng
        self._start()
        self._processors = [Processor(f"p{number}", _nature(rng, self._families, number), self.stage) for number in range(rng.randint(1, 5))]
        self._processors.append(Processor("s0", Nature((SETTINGS,), packed=rng.random() < 0.5), self.stage))
        busy_ms = rng.choice([20, 100, 400])
        self._clients = [
            Client(number, rng.randint(10, 70), busy_ms, self.maker, self.stage) for number in range(rng.randint(1, 5))
        ]
        for actor in (*self._processors, *self._clients):
            self._spawn(actor.live())
        self._spawn(self._check_often())
        for when_ms in self._crash_times:
            self.loop.call_at(when_ms / 1000, self._crash_unless_calm)
        await pause(self._active_ms)
        await self._calm_down()
        await self._settle()
        self._check_end()

    async def _calm_down(self) -> None:
        """Faults end, everybody honest is there, and nobody hands in anything."""
        self.stage.trace("calm")
        self.stage.calmed.set()
        for processor in self._processors:
            processor.leave()
        # Whoever sat where the last was lost comes anew, so that what was refused for them is tried again.
        await pause(3_000)
        for number, families in enumerate([(HOT, LIST, HOT_NEXT), (FLAKY, SETTINGS), (HOT, HOT_NEXT, FLAKY)]):
            honest = Processor(f"h{number}", Nature(families, packed=number != 1), self.stage)
            self._processors.append(honest)
            self._spawn(honest.live())

    async def _settle(self) -> None:
        """Wait until every accepted batch has ended, or waits for what it may wait for. Raises Violated."""
        end_ms = self.loop.now_ms + _SETTLE_MS_MAX
        while left := self._unsettled():
            if self.loop.now_ms > end_ms:
                raise Violated(f"accepted and without an end: {'; '.join(left[:3])}")
            await pause(500)
        # The waits of clients, the longest of which is 15 s, and what is still on its way.
        await pause(20_000)

    def _unsettled(self) -> list[str]:
        """The accepted batches that have no end, and may not wait; in words."""
        node = self.node
        if node is None or not self._restored or node._store.head is None:
            return ["the node starts"]
        left = []
        for entry in node._queue:
            if not may_wait(node, self.model, entry):
                left.append(f"batch {entry.batch.id[:8]} {entry.reason} {entry.family} {entry.dependency} {entry.failure}")
        if node._production._executing or node._production._built:
            left.append("a block is in the making")
        return left

    def _check_end(self) -> None:
        node = self.node
        assert node is not None, "it is calm"
        check_node(node, self.disk)
        check_quiet(node)
        self.promises.check()
        for client in self._clients:
            if unanswered := client.unanswered():
                raise Violated(f"{client.name} waits for answers: {unanswered}")

    async def _check_often(self) -> None:
        gone: set[bytes] = set()
        while True:
            await pause(_CHECK_MS)
            if self.node is None or not self._restored:
                gone.clear()
                continue
            check_node(self.node, self.disk)
            # Who was gone when last looked at has no waits any more.
            waiting = set(self.node._clients.statuses.peers)
            if left := gone & waiting:
                raise Violated(f"waits of connections that are gone: {sorted(left)}")
            gone = {identity for identity in waiting if not self.network.has(identity)}

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        for processor in self._processors:
            processor.leave()
        self._stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # The node

    def _start(self) -> None:
        self.stage.trace("the node starts")
        try:
            self._store = self.disk.open_store(self.config.data_dir / "store", self.limits)
        except (StorageFailed, Crashed) as failure:
            self.stage.trace(f"the node cannot start: {failure}")
            self.disk.crash()
            self.loop.call_later(0.1, self._start)
            return
        surroundings = Surroundings(
            lambda config, door, on_sweep, on_disconnect: SimulatedGateway(self.network, on_sweep, on_disconnect),
            lambda config, on_results: SimulatedVerifiers(self.loop, self.rng, on_results),
            self.loop.time,
        )
        self.node = Node(self.config, self._store, _SIGNER, surroundings=surroundings)
        self._starting = self._spawn(self._reach_genesis(self.node))

    async def _reach_genesis(self, node: Node) -> None:
        try:
            await node.restore()
            self._restored = True
            await node.reach_genesis(lambda lacking: self.stage.trace(f"the node waits for {lacking}"))
            self.stage.trace("the node is ready")
        except CannotStart as refusal:
            # A processor lied about the genesis: whoever operates the node starts it again.
            if not self.stage.lied:
                raise
            self.stage.trace(f"the node cannot start: {refusal}")
            self._starting = None
            self._crash()
        except Crashed:
            self._starting = None
            self._crash()

    def _crash_unless_calm(self) -> None:
        if not self.stage.calm:
            self._crash()

    def _crash(self) -> None:
        """The node is gone in the middle of things; a new one starts from what is on the disk."""
        if self.node is None:
            return
        self.crashes += 1
        self.stage.trace("the node crashes")
        self._stop()
        self.disk.crash()
        try:
            self.promises.check()
        except Violated as violation:
            self._fail(violation)
        self.loop.call_later(self.rng.choice([1, 50, 1_500]) / 1000, self._start)

    def _stop(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            self._starting = None
        if self.node is not None:
            self.node.close()
            self.node = None
        if self._store is not None:
            self._store.close()
            self._store = None
        self._restored = False

    def _write_genesis(self) -> None:
        data = genesis_pb2.GenesisData()
        for made in self.maker.genesis():
            data.batches.add().ParseFromString(made.batch.raw)
        (self.config.data_dir / GENESIS_FILE).write_bytes(data.SerializeToString())

    # The disk

    def _next_fault(self) -> Fault:
        if self.stage.calm:
            return Fault.NONE
        rng = self.rng
        if self._slow_disk_ms:
            self.loop.stand_still(rng.randint(0, self._slow_disk_ms))
        if self.loop.now_ms < self._full_until_ms:
            return Fault.REFUSED
        drawn = rng.random()
        fault = Fault.NONE
        if drawn < self._disk_faults:
            fault = rng.choice([Fault.REFUSED, Fault.NOT_SYNCED])
            if rng.random() < 0.3:
                # It is full for a while.
                self._full_until_ms = self.loop.now_ms + rng.randint(1, 3_000)
        elif drawn > 1 - self._disk_crashes:
            fault = rng.choice([Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
        if fault is not Fault.NONE:
            self.stage.trace(f"the disk: {fault.value}")
        return fault

    def _on_synced(self) -> None:
        blocks = len(self.model.blocks)
        self.model.check(self.disk)
        self.promises.check_verdicts()
        if len(self.model.blocks) > blocks:
            self.stage.trace(f"block {blocks} is on the disk, {len(self.model.batches)} batches so far")

    # Failures

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(work)
        self._tasks.append(task)

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self._fail(error)

        task.add_done_callback(ended)
        return task

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Crashed):
            self._crash()
        else:
            self._fail(error or RuntimeError(context["message"]))

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            self.stage.trace(f"FAILED {type(error).__name__}: {error}")
        if not self._failed.done():
            self._failed.set_result(None)


def _nature(rng: Random, families: list[Any], number: int) -> Nature:
    served = tuple(families) if number == 0 else tuple(rng.sample(families, rng.randint(1, len(families))))
    if rng.random() < 0.5:
        served += (HOT_NEXT,)
    return Nature(
        families=served,
        packed=rng.random() < 0.6,
        raw_header=rng.random() < 0.5,
        occupancy=rng.choice([1, 2, 5, 20, 100]),
        apply_ms=rng.choice([0, 0, 1, 5, 80]),
        life_ms=rng.choice([None, 500, 2_000, 6_000]),
        lie=rng.choice(["", "", "", *LIES]),
    )


def _limits(rng: Random) -> Limits:
    ping_ms = rng.choice([300, 1_000, 10_000])
    return Limits(
        pending_batches_max=rng.choice([8, 40, 1_000]),
        pending_transactions_max=rng.choice([20, 200]),
        block_transactions_max=rng.choice([2, 5, 20, 100]),
        block_execution_ms_max=rng.choice([20, 200, 1_000]),
        dependency_wait_ms=rng.choice([500, 3_000, 10_000]),
        internal_error_back_off_ms=rng.choice([10, 200]),
        internal_error_tries_max=rng.choice([2, 5]),
        processor_lost_back_off_ms_max=rng.choice([100, 5_000]),
        processor_ping_ms=ping_ms,
        processor_silence_ms=3 * ping_ms,
        message_bytes_max=rng.choice([3_000, 32 * 1024 * 1024]),
        packed_bytes_max=rng.choice([1_500, 2 * 1024 * 1024]),
        packed_transactions_max=rng.choice([1, 4, 64]),
        state_list_entries_max=rng.choice([1, 3, 100]),
        status_ids_waited_for_max=rng.choice([10, 1_000]),
        status_unknown_ids_waited_for_max=rng.choice([0, 2, 100]),
        store_map_bytes_initial=1 << 20,
    )
