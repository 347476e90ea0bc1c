"""The node: owns every part of the validator, and passes messages, ticks and results between the parts.

After each event, block production advances as far as it can, and then waiting clients are answered. Everything runs in
one thread.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import structlog
from google.protobuf.message import DecodeError

from dovetail.ledger.batch import VerifiedBatch, decode_batch_list
from dovetail.ledger.errors import InvalidKey, NotDecodable, RefusedBatch
from dovetail.ledger.secret_files import readable_by_others
from dovetail.ledger.signing import Signer
from dovetail.validator.admission.verifier import VERIFIER_DIED, verify_all
from dovetail.validator.blocks.production import Production
from dovetail.validator.client_api.clients import Clients
from dovetail.validator.config import ValidatorConfig
from dovetail.validator.core.mempool.queue import PendingQueue
from dovetail.validator.crash_points import CrashPoint, reach
from dovetail.validator.metrics import Metrics
from dovetail.validator.processors.own import OwnFamilies
from dovetail.validator.processors.registry import ProcessorAvailable, ProcessorEvent, Processors, ProcessorUnavailable
from dovetail.validator.store import StorageFailed, StorageLost, Store
from dovetail.validator.surroundings import Surroundings, on_machine
from dovetail.validator.transport.access import OPEN, AccessPolicy, CannotOpen, is_local, read_access_policy
from dovetail.validator.transport.gateway import CannotBind
from dovetail.validator.transport.rights import PROCESSOR_MESSAGES, Rights
from protos import genesis_pb2

GENESIS_FILE: Final = "genesis.batch"
STORE_FOLDER: Final = "store"
_TICK_S: Final = 0.5
_PROBE_AGAIN_S: Final = 0.1
"""The pause before a second probe: a closed connection stays in the socket's routes for a moment."""

log = structlog.get_logger("validator")


class CannotStart(Exception):
    """The validator cannot run. The message names the cause and the remedy."""


async def serve(
    config: ValidatorConfig,
    own_families: OwnFamilies,
    *,
    on_ready: Callable[[], None],
    on_waiting: Callable[[str], None],
) -> None:
    """Run a validator until cancelled.

    ``on_ready`` is called once, when the validator has a chain and an open socket; before that, ``on_waiting`` gets the
    reason for each wait. Raises CannotStart.
    """
    signer, access = _read_key(config), _read_access_policy(config)
    if not (config.data_dir / STORE_FOLDER).exists():
        # Refuse a bad genesis file before the store is created: a store's folder would look like an existing ledger.
        _read_genesis(config.data_dir / GENESIS_FILE)
    try:
        store = Store(config.data_dir / STORE_FOLDER, config.limits, config.state_depth_blocks)
    except StorageFailed as failure:
        raise CannotStart(str(failure)) from None
    try:
        node = Node(config, store, signer, on_machine(own_families), access)
        try:
            await _run_until_failure(_run(node, on_ready, on_waiting))
        finally:
            node.close()
    except (CannotBind, StorageFailed) as error:
        raise CannotStart(str(error)) from None
    except StorageLost as loss:
        log.error("storage lost, the validator ends", reason=str(loss))
        raise CannotStart(
            f"{loss}: look after the disk, then start the validator again; all accepted batches are on it"
        ) from None
    finally:
        store.close()


async def _run(node: "Node", on_ready: Callable[[], None], on_waiting: Callable[[str], None]) -> None:
    await node.restore()
    await node.reach_genesis(on_waiting)
    on_ready()
    await asyncio.get_running_loop().create_future()


async def _run_until_failure(running: Coroutine[None, None, None]) -> None:
    """Run until ``running`` ends or a callback of the loop raises: a bug must end the whole process."""
    loop = asyncio.get_running_loop()
    failed: asyncio.Future[None] = loop.create_future()

    def on_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if failed.done():
            # Later failures in the same turn of the loop follow from the first.
            return
        error = context.get("exception")
        if not isinstance(error, StorageLost):
            loop.default_exception_handler(context)
        if error is None or isinstance(error, StopIteration):
            # A future takes no StopIteration.
            error = RuntimeError(f"{context['message']}: {error!r}")
        failed.set_exception(error)

    before = loop.get_exception_handler()
    loop.set_exception_handler(on_exception)
    task = loop.create_task(running)
    try:
        done, _ = await asyncio.wait({task, failed}, return_when=asyncio.FIRST_COMPLETED)
        for ended in done:
            ended.result()
    finally:
        failed.cancel()
        task.cancel()
        try:
            # Callbacks may still fail while the task ends, so the handler stays until then.
            with suppress(asyncio.CancelledError, CannotStart):
                await task
        finally:
            loop.set_exception_handler(before)


class Node:
    """A running validator. Needs a running event loop."""

    def __init__(
        self,
        config: ValidatorConfig,
        store: Store,
        signer: Signer,
        surroundings: Surroundings,
        access: AccessPolicy = OPEN,
    ) -> None:
        limits = config.limits
        clock_s = surroundings.clock_s

        def clock_ms() -> float:
            return clock_s() * 1000

        self._config = config
        self._metrics = Metrics(limits, clock_s)
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._queue = PendingQueue(limits)
        self._gateway = surroundings.open_gateway(config, access, self._on_sweep, self._on_disconnect)
        self._rights = Rights(access, self._gateway.send)
        self._pool = surroundings.open_verifiers(config, self._advance)
        own_families = surroundings.own_families
        self._processors = Processors(self._gateway.send, clock_ms, limits, own_families)
        for family in own_families.namespaces:
            self._metrics.family_registered(family)
        head = store.head
        self._engine = surroundings.open_engine(head.num + 1 if head else 0, self._on_engine_message)
        self._production = Production(
            store,
            self._queue,
            self._processors,
            self._engine.engine,
            self._engine.send,
            signer,
            limits,
            clock_s,
            surroundings.time_ms,
            self._metrics,
        )
        self._clients = Clients(
            config,
            self._gateway.send,
            store,
            self._queue,
            self._pool,
            self._processors,
            self._metrics,
            self._production.migrating.state_of,
            self._production.work,
            self._production.drop,
            self._production.would_wait,
            self._production.comparisons,
            clock_ms,
        )
        self._restored = False
        self._engine_messages: list[object] = []
        """Messages that arrived before pending batches were restored. They wait, because a block may hold pending
        batches."""
        self._probe_timer: asyncio.TimerHandle | None = None
        self._advance_handle: asyncio.Handle | None = None
        self._own_handle: asyncio.Handle | None = None
        self._probe_again_needed = False
        self._genesis_changed = asyncio.Event()
        self._timer = self._loop.call_later(_TICK_S, self._tick)
        self.endpoint = self._gateway.endpoint

    def close(self) -> None:
        self._timer.cancel()
        if self._probe_timer is not None:
            self._probe_timer.cancel()
        if self._advance_handle is not None:
            self._advance_handle.cancel()
        if self._own_handle is not None:
            self._own_handle.cancel()
        self._clients.statuses.close()
        self._engine.close()
        self._pool.close()
        self._gateway.close()

    async def restore(self) -> None:
        """Queue the batches that were pending at the last stop, then accept new ones. Raises CannotStart."""
        pending = list(self._store.pending())
        # Each batch is verified separately, so that a damaged batch does not cause the refusal of others.
        checks = [verify_all(self._pool, [raw]) for _, raw in pending]
        for (arrival, _), verified in zip(pending, await asyncio.gather(*checks), strict=True):
            if not isinstance(verified, RefusedBatch):
                self._queue.add(arrival, verified[0])
            elif verified.rule == VERIFIER_DIED:
                raise CannotStart(f"pending batches cannot be verified: {verified}")
            else:
                log.error("dropped a damaged pending batch", arrival=arrival, reason=str(verified))
                self._store.reject([], [arrival])
        log.info("pending batches restored", batches=len(self._queue))
        self._clients.submissions.open = self._store.head is not None
        self._restored = True
        for message in self._engine_messages:
            self._production.receive(message)
        self._engine_messages.clear()
        self._on_sweep()

    async def reach_genesis(self, on_waiting: Callable[[str], None]) -> None:
        """Make block 0 of all genesis batches, unless there is a chain; then accept batches of clients.

        Raises CannotStart. Nothing is written then, and the next start tries again.
        """
        if self._store.head is not None:
            return
        path = self._config.data_dir / GENESIS_FILE
        if len(self._queue):
            raise CannotStart(
                f"the store beside {path} holds {len(self._queue)} pending batches and no chain: remove it"
            )
        for number, batch in enumerate(await self._verify_genesis(path)):
            self._queue.add(number, batch)
        self._advance()
        while self._store.head is None:
            if self._production.genesis_refusal is not None:
                raise CannotStart(f"{path} is refused, no block was made: {self._production.genesis_refusal}")
            if lacking := self._production.lacking():
                on_waiting(f"a processor of {', '.join(map(str, lacking))}, to make the genesis block")
            self._genesis_changed.clear()
            await self._genesis_changed.wait()
        self._clients.submissions.open = True

    async def _verify_genesis(self, path: Path) -> list[VerifiedBatch]:
        verified = await verify_all(self._pool, _read_genesis(path))
        if isinstance(verified, RefusedBatch):
            raise CannotStart(f"{path} is refused: {verified}")
        if len({batch.id for batch in verified}) != len(verified):
            raise CannotStart(f"{path} is refused: it holds a batch twice")
        return verified

    # Events

    def _on_sweep(self) -> None:
        if not self._restored:
            # Requests wait in the socket until pending batches are restored, because answers depend on them.
            return
        self._handle_requests()
        self._advance()

    def _handle_requests(self) -> None:
        for request in self._gateway.requests():
            message_type = request.message_type
            self._metrics.message_arrived(message_type)
            if not self._rights.permits(request):
                continue
            self._on_processor_events(self._processors.mark_alive(request.identity))
            if message_type in PROCESSOR_MESSAGES:
                self._on_processor_events(
                    self._processors.handle(request.identity, message_type, request.correlation_id, request.content)
                )
            else:
                self._clients.handle(request)

    def _on_disconnect(self) -> None:
        # Each probe sends to every peer, so there are at most ten a second, however many connections close.
        if self._probe_timer is None:
            self._probe()
            self._probe_timer = self._loop.call_later(_PROBE_AGAIN_S, self._probe_again)
        else:
            self._probe_again_needed = True

    def _probe_again(self) -> None:
        self._probe_timer = None
        self._probe()
        if self._probe_again_needed:
            self._probe_again_needed = False
            self._probe_timer = self._loop.call_later(_PROBE_AGAIN_S, self._probe_again)

    def _probe(self) -> None:
        if self._restored:
            # The last messages of a closed connection come first: a draining processor answers before it closes.
            self._handle_requests()
        self._on_processor_events(self._processors.probe())
        self._clients.probe()
        self._advance()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(_TICK_S, self._tick)
        self._pool.watch()
        self._clients.node_status.tick()
        self._clients.families.tick()
        self._on_processor_events(self._processors.tick())
        self._production.tick()
        self._advance()
        self._clients.conditions.tick()

    def _on_engine_message(self, message: object) -> None:
        if not self._restored:
            self._engine_messages.append(message)
            return
        self._production.receive(message)
        self._advance()

    def _advance(self) -> None:
        if self._advance_handle is not None:
            # A block is sealed. Processors that have answered get their next tasks before the block is written.
            self._advance_handle.cancel()
            self._advance_handle = None
            self._handle_requests()
        submissions = self._clients.submissions
        submissions.accept_checked()
        settled, blocks, more = self._production.advance()
        if settled:
            reach(CrashPoint.SETTLED_BEFORE_REPLY)
            self._clients.statuses.settled(settled)
            reach(CrashPoint.SETTLED_AFTER_REPLY)
        if settled or self._production.genesis_refusal is not None:
            self._genesis_changed.set()
        if more and self._advance_handle is None:
            self._advance_handle = self._loop.call_soon(self._advance)
        if self._processors.own_is_asked and self._own_handle is None:
            self._own_handle = self._loop.call_soon(self._answer_own)
        for block in blocks:
            log.info(
                "block committed", block_num=block.num, batches=block.batch_count, transactions=block.transaction_count
            )

    def _answer_own(self) -> None:
        """Take one answer of the node's own processor. The next one comes in a later turn, after waiting requests."""
        self._own_handle = None
        self._on_processor_events(self._processors.answer_own())
        self._advance()

    def _on_processor_events(self, events: list[ProcessorEvent]) -> None:
        for event in events:
            if isinstance(event, ProcessorAvailable):
                log.info("processor registered", family=str(event.family), build=event.build_id, packed=event.packed)
                self._metrics.family_registered(event.family)
                self._genesis_changed.set()
            elif isinstance(event, ProcessorUnavailable):
                log.info("processor left", families=[*map(str, event.families)], reason=event.why)
                for family in event.families:
                    if not self._processors.has(family):
                        self._metrics.family_left(family)
                self._genesis_changed.set()
            self._production.on_processor_event(event)


def _read_key(config: ValidatorConfig) -> Signer:
    try:
        found = config.key_file.stat()
        if fault := readable_by_others(found.st_mode, found.st_uid, os.geteuid()):
            raise CannotStart(f"the node's key {config.key_file} stays unused: {fault}")
        return Signer(config.key_file.read_text().strip())
    except OSError as error:
        raise CannotStart(f"cannot read the node's key {config.key_file}: {error.strerror}") from None
    except InvalidKey as error:
        raise CannotStart(f"{config.key_file}: {error}") from None


def _read_access_policy(config: ValidatorConfig) -> AccessPolicy:
    try:
        access = read_access_policy(config)
    except CannotOpen as error:
        raise CannotStart(str(error)) from None
    if access.key is not None:
        log.info("the port is restricted", public_key=access.key.public, allowed_keys=len(access.callers))
    elif not is_local(config.bind):
        log.warning("the port is open to the network: whoever reaches it can judge transactions", bind=config.bind)
    return access


def _read_genesis(path: Path) -> list[bytes]:
    """The serialized batches of a GenesisData file. Raises CannotStart."""
    try:
        content = path.read_bytes()
        genesis_pb2.GenesisData.FromString(content)
        raw_batches = decode_batch_list(content)
    except FileNotFoundError:
        raise CannotStart(
            f"there is no chain and no {path}; make one with `dovetail genesis --data-dir {path.parent}`"
        ) from None
    except OSError as error:
        raise CannotStart(f"cannot read {path}: {error.strerror}") from None
    except (NotDecodable, DecodeError):
        raise CannotStart(f"{path} is no GenesisData") from None
    if not raw_batches:
        raise CannotStart(f"{path} holds no batch")
    return raw_batches
