"""Starts and crashes the node of a simulated world on its disk, and starts it again.

The node is the real one. Only its surroundings are simulated.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from dovetail.ledger.signing import Signer
from dovetail.validator.config import ValidatorConfig
from dovetail.validator.node import CannotStart, Node
from dovetail.validator.store import StorageFailed, Store
from dovetail.validator.surroundings import Surroundings, open_solo_engine
from tests.system.simulation.disk import Crashed, Disk
from tests.system.simulation.judged import judged_settings
from tests.system.simulation.model import Violated
from tests.system.simulation.promises import Promises
from tests.system.simulation.stage import Stage
from tests.system.simulation.verifiers import SimulatedVerifiers
from tests.system.simulation.wire import SimulatedGateway

_SIGNER: Final = Signer("11" * 32)

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Machine:
    """Starts, crashes and stops the node. ``spawn`` starts a task whose failure ends the simulation."""

    def __init__(self, config: ValidatorConfig, disk: Disk, promises: Promises, stage: Stage, spawn: Spawn) -> None:
        self._config = config
        self._disk = disk
        self._promises = promises
        self._stage = stage
        self._spawn = spawn
        self._store: Store | None = None
        self._starting: asyncio.Task[None] | None = None
        self.node: Node | None = None
        """None while the node is down."""
        self.restored = False
        """Whether the node has restored its pending batches."""
        self.crashes = 0

    def start(self) -> None:
        """Start a node from the disk."""
        stage = self._stage
        stage.trace("the node starts")
        try:
            store = self._disk.open_store(self._config.data_dir / "store", self._config.limits)
        except (StorageFailed, Crashed) as failure:
            stage.trace(f"the node cannot start: {failure}")
            self._disk.crash()
            stage.loop.call_later(0.1, self.start)
            return
        surroundings = Surroundings(
            lambda config, access, on_sweep, on_disconnect: SimulatedGateway(stage.network, on_sweep, on_disconnect),
            lambda config, on_results: SimulatedVerifiers(stage.loop, stage.rng, on_results),
            open_solo_engine,
            stage.loop.time,
            lambda: int(stage.loop.time() * 1000),
            judged_settings(),
        )
        self._store = store
        self.node = node = Node(self._config, store, _SIGNER, surroundings)
        self._promises.holder = node._queue.holder
        self._starting = self._spawn(self._reach_genesis(node))

    def crash(self) -> None:
        """Crash the node and the disk, and start a new node later."""
        if self.node is None:
            return
        self.crashes += 1
        self._stage.trace("the node crashes")
        self.stop()
        self._disk.crash()
        try:
            self._promises.check()
        except Violated as violation:
            self._stage.fail(violation)
        self._stage.loop.call_later(self._stage.rng.choice([1, 50, 1_500]) / 1000, self.start)

    def stop(self) -> None:
        """Stop the node without changing the disk."""
        if self._starting is not None:
            self._starting.cancel()
            self._starting = None
        if self.node is not None:
            self.node.close()
            self.node = None
        if self._store is not None:
            self._store.close()
            self._store = None
        self.restored = False

    async def _reach_genesis(self, node: Node) -> None:
        stage = self._stage
        try:
            await node.restore()
            self.restored = True
            await node.reach_genesis(lambda lacking: stage.trace(f"the node waits for {lacking}"))
            stage.trace("the node is ready")
            stage.ready.set()
        except CannotStart as refusal:
            # A processor lied about the genesis batches, so the node ends. The operator starts the node again.
            if not stage.lied:
                raise
            stage.trace(f"the node cannot start: {refusal}")
            self._starting = None
            self.crash()
        except Crashed:
            self._starting = None
            self.crash()
