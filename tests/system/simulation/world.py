"""One simulated world: a node, its processors and its clients, drawn from a seed and run until everything is settled.

This module decides when actors start, stop and crash, and when checks run. The invariants are in ``model``,
``promises`` and ``invariants``.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from dovetail.ledger.signing import Signer
from dovetail.validator.config import ValidatorConfig
from dovetail.validator.node import GENESIS_FILE
from protos import genesis_pb2
from tests.system.simulation.applying import Behaviour
from tests.system.simulation.clients import Client
from tests.system.simulation.clock import SimulatedLoop, pause
from tests.system.simulation.disk import Crashed, Disk
from tests.system.simulation.drawn import DiskFaults, draw_behaviour, draw_limits
from tests.system.simulation.invariants import check_node, check_quiet, may_wait
from tests.system.simulation.machine import Machine
from tests.system.simulation.maker import Maker
from tests.system.simulation.model import Model, Violated
from tests.system.simulation.processors import Processor
from tests.system.simulation.programs import FLAKY, HOT, HOT_NEXT, LIST
from tests.system.simulation.promises import Promises
from tests.system.simulation.stage import Stage
from tests.system.simulation.wire import Network

_SIGNER: Final = Signer("11" * 32)
_ROUNDS_MAX: Final = 300_000
_CHECK_MS: Final = 330
_SETTLE_MS_MAX: Final = 240_000
"""The simulated time in which accepted batches must end once the world is calm."""

_WAIT_MS_MAX: Final = 20_000


class Outcome(NamedTuple):
    """The end of a world. ``digest``: the checksum of its transcript. ``failure``: the invariant that failed."""

    seed: int
    failure: BaseException | None
    digest: int
    blocks: int
    batches: int
    accepted: int
    crashes: int
    rounds: int


def run_world(seed: int, folder: Path, show: Callable[[str], None] | None = None) -> Outcome:
    """Run the world of a seed. ``folder``: for files that the node reads, the same for all worlds."""
    world = World(seed, folder, show)
    try:
        return world.run()
    finally:
        world.loop.close()


class World:
    """The node, processors and clients of one seed."""

    def __init__(self, seed: int, folder: Path, show: Callable[[str], None] | None) -> None:
        self.seed = seed
        self.rng = rng = Random(seed)
        self.loop = SimulatedLoop(_ROUNDS_MAX)
        self.loop.set_exception_handler(self._on_exception)
        self.stage = Stage(self.loop, rng, self._fail, show)
        self.model = Model()
        self.disk = Disk(DiskFaults(self.stage).next, self._on_synced)
        self.limits = draw_limits(rng)
        self._active_ms = rng.randint(1_000, 8_000)
        self._crash_times = sorted(rng.randint(0, self._active_ms) for _ in range(rng.choice([0, 0, 1, 2, 3])))
        upgrade_at = rng.choice([None, None, rng.randint(1, 12)])
        self._families = [HOT, *rng.sample([LIST, FLAKY], rng.choice([0, 0, 1, 2]))]
        self.maker = Maker(
            rng, self._families + [HOT_NEXT] * (upgrade_at is not None), upgrade_at, rng.choice([0, 0, 4, 12])
        )
        self.promises = Promises(self.disk, self.model, self.maker, self.stage)
        self.network = self.stage.network = Network(self.loop, rng, rng.choice([30, 1_000]), self.promises.watch)
        self.config = ValidatorConfig(folder, folder / "key", "simulated", 1, self.limits)
        self.machine = Machine(self.config, self.disk, self.promises, self.stage, self._spawn)
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None
        self._failed: asyncio.Future[None]
        self._processors: list[Processor] = []
        self._clients: list[Client] = []

    def run(self) -> Outcome:
        self._write_genesis()
        try:
            self.loop.run_until_complete(self._main())
        except Exception as error:
            self._fail(error)
        with suppress(Exception):
            self.loop.run_until_complete(self._end())
        return Outcome(
            self.seed, self._failure, self.stage.digest, len(self.model.blocks), len(self.model.batches),
            len(self.promises.accepted), self.machine.crashes, self.loop.rounds,
        )  # fmt: skip

    # The course of events

    async def _main(self) -> None:
        self._failed = self.loop.create_future()
        course = self._spawn(self._course())
        await asyncio.wait({course, self._failed}, return_when=asyncio.FIRST_COMPLETED)

    async def _course(self) -> None:
        rng = self.rng
        self.machine.start()
        packed = rng.choice([0.0, 0.5, 1.0, 1.0])
        for number in range(rng.randint(1, 5)):
            behaviour = draw_behaviour(rng, self._families, packed, number)
            self._processors.append(Processor(f"p{number}", behaviour, self.stage))
        busy_ms = rng.choice([2, 20, 100, 300])
        self._clients = [
            Client(number, rng.randint(6, 35), busy_ms, self.maker, self.stage) for number in range(rng.randint(1, 5))
        ]
        for life in [actor.live() for actor in self._processors] + [actor.live() for actor in self._clients]:
            self._spawn(life)
        self._spawn(self._check_often())
        for when_ms in self._crash_times:
            self.loop.call_at(when_ms / 1000, self._crash_unless_calm)
        await pause(self._active_ms)
        await self._calm_down()
        await self._settle()
        self._check_end()

    async def _calm_down(self) -> None:
        """End all faults, connect honest processors of all families, and let clients submit no more."""
        self.stage.trace("calm")
        self.stage.calmed.set()
        for processor in self._processors:
            # An honest processor may stay. The node must not forget it.
            if processor.behaviour.lie or self.rng.random() < 0.5:
                processor.leave()
        # These processors arrive last, so that batches that other processors refused are tried again.
        await pause(3_000)
        for number, families in enumerate([(HOT, LIST, HOT_NEXT), (FLAKY,), (HOT, HOT_NEXT, FLAKY)]):
            honest = Processor(f"h{number}", Behaviour(families, packed=2 if number != 1 else 0), self.stage)
            self._processors.append(honest)
            self._spawn(honest.live())

    async def _settle(self) -> None:
        """Wait until every accepted batch has ended or may stay pending. Raises Violated."""
        end_ms = self.loop.now_ms + _SETTLE_MS_MAX
        while left := self._unsettled():
            if self.loop.now_ms > end_ms:
                raise Violated(f"accepted, but not settled: {'; '.join(left[:3])}")
            await pause(500)
        # The longest wait of a client is 15 s.
        end_ms = self.loop.now_ms + _WAIT_MS_MAX
        while self._waited_for() and self.loop.now_ms < end_ms:
            await pause(500)
        # Wait for frames on their way, and for connections that are closing.
        await pause(1_500)

    def _waited_for(self) -> bool:
        """Whether a client still waits for an answer."""
        assert self.machine.node is not None, "it is calm"
        return bool(self.machine.node._clients.statuses.waiters) or any(client.unanswered() for client in self._clients)

    def _unsettled(self) -> list[str]:
        """Describe the accepted batches that are not settled and must not stay pending."""
        node = self.machine.node
        if node is None or not self.machine.restored or node._store.head is None:
            return ["the node starts"]
        left = [
            f"batch {entry.batch.id[:8]} {entry.reason} {entry.family} {entry.dependency} {entry.failure}"
            for entry in node._queue
            if not may_wait(node, self.model, entry)
        ]
        if node._production.work().executes or node._production._built:
            left.append("a block is being built")
        return left

    def _check_end(self) -> None:
        node = self.machine.node
        assert node is not None, "it is calm"
        check_node(node, self.disk)
        check_quiet(node)
        for processor in self._processors:
            processor.check_served(node)
        self.promises.check()
        for client in self._clients:
            if unanswered := client.unanswered():
                raise Violated(f"{client.name} waits for answers: {unanswered}")

    def _crash_unless_calm(self) -> None:
        if not self.stage.calm:
            self.machine.crash()

    def _write_genesis(self) -> None:
        data = genesis_pb2.GenesisData()
        for made in self.maker.genesis():
            data.batches.add().ParseFromString(made.batch.raw)
        (self.config.data_dir / GENESIS_FILE).write_bytes(data.SerializeToString())

    async def _check_often(self) -> None:
        gone: set[bytes] = set()
        while True:
            await pause(_CHECK_MS)
            if self.machine.node is None or not self.machine.restored:
                gone.clear()
                continue
            check_node(self.machine.node, self.disk)
            # If a connection was gone at the last check, its waits must be gone now.
            waiting = set(self.machine.node._clients.statuses.peers)
            if left := gone & waiting:
                raise Violated(f"waits of connections that are gone: {sorted(left)}")
            gone = {identity for identity in waiting if not self.network.has(identity)}

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        for processor in self._processors:
            processor.leave()
        self.machine.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # The disk

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
            self.machine.crash()
        else:
            self._fail(error or RuntimeError(context["message"]))

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            self.stage.trace(f"FAILED {type(error).__name__}: {error}")
        if not self._failed.done():
            self._failed.set_result(None)
