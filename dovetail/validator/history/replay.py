"""Runs verified blocks of the chain again on connected processors, without writing.

Each block runs on the stored state before it, so several run at a time, and a difference in one does not affect the
next. ``dovetail.validator.history.verification.outcomes`` compares the results.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.blocks.driver import Driver
from dovetail.validator.core.execution.model import Withdrawn
from dovetail.validator.core.journal.block_run import BlockRun
from dovetail.validator.core.state.merkle import ReadNode
from dovetail.validator.core.state.view import Stored
from dovetail.validator.history.verification.batches import families_of
from dovetail.validator.history.verification.chain import CheckedBlock
from dovetail.validator.history.verification.findings import Finding
from dovetail.validator.history.verification.outcomes import compare
from dovetail.validator.history.verification.state import GARBLED
from dovetail.validator.processors.own import OwnFamilies
from dovetail.validator.processors.registry import ProcessorEvent, Processors, TaskAnswered, TaskLost
from dovetail.validator.store import StoreReader
from dovetail.validator.transport.access import OPEN, AccessPolicy
from dovetail.validator.transport.gateway import Gateway
from dovetail.validator.transport.rights import PROCESSOR_MESSAGES, Rights

BLOCKS_AT_ONCE_MAX: Final = 32
TRIES_MAX: Final = 5
"""The tries of a block whose processors are lost or fail. After the last one the missing result is a finding."""

_TRANSACTIONS_AT_ONCE_MAX: Final = 10_000
_TICK_S: Final = 0.5
_BLOCKS_A_SNAPSHOT: Final = 256
_PROBE_AGAIN_S: Final = 0.1
"""The pause before a second probe: a closed connection stays in the socket's routes for a moment."""


def families_needed(
    reader: StoreReader, first: int, last: int, on_block: Callable[[], None]
) -> dict[FamilyVersion, int]:
    """The families in blocks ``first`` to ``last``, each with its first block.

    Unreadable blocks are skipped, because verification reports them.
    """
    needed: dict[FamilyVersion, int] = {}
    for num in range(first, last + 1):
        if num % _BLOCKS_A_SNAPSHOT == 0:
            reader.refresh_unless_pruned()
        try:
            info = reader.block(num)
            for number in info.batches if info else ():
                for family in families_of(reader.batch(number).raw):
                    needed.setdefault(family, num)
        except GARBLED:
            pass
        on_block()
    return needed


class ProcessorsMissing(Exception):
    """No processor of ``families`` came within the wait. ``migration``: whether it must migrate."""

    def __init__(self, families: list[FamilyVersion], *, migration: bool = False) -> None:
        super().__init__(", ".join(map(str, families)))
        self.families = families
        self.migration = migration


class _Block:
    """One block that is being run again."""

    def __init__(self, block: CheckedBlock, run: BlockRun) -> None:
        self.block = block
        self.run = run
        self.tries = 0
        self.due_s: float | None = None
        """While the run is paused: the time of the next try or, with ``waits_for``, the end of the wait."""
        self.waits_for: FamilyVersion | None = None
        self.migration = False
        """Whether the awaited processor must migrate."""


class Replay:
    """Listens on ``bind`` for processors. Needs a running event loop; one coroutine at a time may use it.

    ``on_done`` gets each block after its run. ``wait_s``: how long to wait for a lost processor. ``reader``: the reader
    behind ``read_node``; its snapshot is refreshed during waits.
    """

    def __init__(
        self,
        bind: str,
        limits: Limits,
        wait_s: float,
        reader: StoreReader,
        read_node: ReadNode,
        add: Callable[[Finding], None],
        on_done: Callable[[CheckedBlock], None],
        own_families: OwnFamilies,
        access: AccessPolicy = OPEN,
    ) -> None:
        self._limits = limits
        self._wait_s = wait_s
        self._reader = reader
        self._read_node = read_node
        self._add = add
        self._on_done = on_done
        self._loop = asyncio.get_running_loop()
        # Callbacks only set flags. The waiting coroutine does the work, so that errors are raised there.
        self._woken = asyncio.Event()
        self._gateway = Gateway(bind, limits, self._woken.set, self._on_disconnect, access)
        self._rights = Rights(access, self._gateway.send)
        self._processors = Processors(self._gateway.send, lambda: time.monotonic_ns() / 1_000_000, limits, own_families)
        self._closed_connections = False
        self._ticked = False
        self._timer = self._loop.call_later(_TICK_S, self._on_tick)
        self._probe_timer: asyncio.TimerHandle | None = None
        self._driver = Driver(self._processors, limits.packed_transactions_max)
        self._runs: list[_Block] = []
        self.endpoint = self._gateway.endpoint
        """Where processors connect."""

    def close(self) -> None:
        self._timer.cancel()
        if self._probe_timer is not None:
            self._probe_timer.cancel()
        self._gateway.close()

    async def wait_for(self, families: Iterable[FamilyVersion], wait_s: float) -> None:
        """Wait up to ``wait_s`` until each family has a processor. Raises ProcessorsMissing."""
        wanted = sorted(families)
        due_s = self._loop.time() + wait_s
        while missing := [family for family in wanted if not self._processors.has(family)]:
            if self._loop.time() >= due_s:
                raise ProcessorsMissing(missing)
            await self._wake()

    async def run(self, block: CheckedBlock) -> None:
        """Start a verified block when enough of the running blocks have ended. Raises ProcessorsMissing."""
        while self._runs and self._is_full(block):
            await self._wake()
        base = Stored(self._read_node, block.base)
        started = _Block(block, BlockRun(base, block.batches, self._limits, migrations=block.migrations))
        self._runs.append(started)
        self._dispatch(started)
        self._conclude()

    async def finish(self) -> None:
        """Wait until all blocks have run. Raises ProcessorsMissing."""
        while self._runs:
            await self._wake()

    async def attend(self) -> None:
        """Drop all runs, and answer processors that unregister, until cancelled."""
        self._runs.clear()
        while True:
            await self._wake()

    def _is_full(self, block: CheckedBlock) -> bool:
        transactions = sum(run.block.transactions for run in self._runs)
        return (
            len(self._runs) >= BLOCKS_AT_ONCE_MAX
            or transactions + block.transactions > _TRANSACTIONS_AT_ONCE_MAX
            or any(run.due_s is not None for run in self._runs)
        )

    # Events

    def _on_disconnect(self) -> None:
        self._closed_connections = True
        if self._probe_timer is None:
            self._probe_timer = self._loop.call_later(_PROBE_AGAIN_S, self._probe_again)
        self._woken.set()

    def _probe_again(self) -> None:
        self._probe_timer = None
        self._closed_connections = True
        self._woken.set()

    def _on_tick(self) -> None:
        self._timer = self._loop.call_later(_TICK_S, self._on_tick)
        self._ticked = True
        self._woken.set()

    async def _wake(self) -> None:
        """Wait for events, handle all of them, and let the runs continue."""
        await self._woken.wait()
        self._woken.clear()
        for request in self._gateway.requests():
            if not self._rights.permits(request):
                continue
            self._on_processor_events(self._processors.mark_alive(request.identity))
            if request.message_type in PROCESSOR_MESSAGES:
                self._on_processor_events(
                    self._processors.handle(
                        request.identity, request.message_type, request.correlation_id, request.content
                    )
                )
        if self._closed_connections:
            self._closed_connections = False
            self._on_processor_events(self._processors.probe())
        if self._ticked:
            self._ticked = False
            self._reader.refresh_unless_pruned()
            self._on_processor_events(self._processors.tick())
        self._on_processor_events(self._processors.answer_own())
        for run in [run for run in self._runs if run.due_s is not None]:
            self._check_pause(run)
        for run in self._runs:
            self._dispatch(run)
        self._conclude()

    def _on_processor_events(self, events: list[ProcessorEvent]) -> None:
        for event in events:
            if isinstance(event, TaskAnswered):
                self._driver.complete(event)
            elif isinstance(event, TaskLost):
                self._driver.abandon(event)

    def _check_pause(self, run: _Block) -> None:
        assert run.due_s is not None, "the run is paused"
        family = run.waits_for
        if family is not None and not self._processors.has(family, migration=run.migration):
            if self._loop.time() >= run.due_s:
                raise ProcessorsMissing([family], migration=run.migration)
        elif family is not None or self._loop.time() >= run.due_s:
            run.due_s = run.waits_for = None
            run.run.restart()
            self._dispatch(run)

    # Runs

    def _dispatch(self, run: _Block) -> None:
        if run.due_s is None:
            self._driver.dispatch(run.run)
        if self._processors.own_is_asked:
            # In a later turn, so that timers and signals have theirs.
            self._loop.call_soon(self._woken.set)

    def _conclude(self) -> None:
        for run in [run for run in self._runs if run.due_s is None and run.run.finished]:
            withdrawn = run.run.withdrawn()
            if withdrawn and self._pause(run, withdrawn):
                continue
            compare(run.block, run.run, self._read_node, self._add)
            self._runs.remove(run)
            self._on_done(run.block)

    def _pause(self, run: _Block, withdrawn: dict[int, Withdrawn]) -> bool:
        """Plan another try of a block, some of whose batches were withdrawn; False after the last try."""
        waiting = [index for index, result in withdrawn.items() if result.reason == "waiting_for_processor"]
        # If a batch kills its processor, other batches wait for a processor. Such a run counts as a try.
        run.tries += len(waiting) < len(withdrawn)
        if run.tries >= TRIES_MAX:
            return False
        if waiting:
            run.waits_for = withdrawn[waiting[0]].family
            run.migration = waiting[0] in run.block.migrations
            run.due_s = self._loop.time() + self._wait_s
            return True
        run.due_s = self._loop.time() + self._limits.internal_error_back_off_ms / 1000
        self._loop.call_at(run.due_s, self._woken.set)
        return True
