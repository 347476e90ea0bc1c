"""Two real nodes, each driven over a socket by a BFT engine: they take orders, report, and make the same block."""

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import zmq

from dovetail.ledger.signing import Signer
from dovetail.validator.config import ValidatorConfig
from dovetail.validator.core.consensus.engine import (
    Commit,
    Committed,
    Finalize,
    Finalized,
    NothingProposed,
    Process,
    Processed,
    Propose,
    Proposed,
)
from dovetail.validator.node import Node
from dovetail.validator.surroundings import EngineConnection
from dovetail.validator.transport.sockets import DrainedSocket
from protos.client_batch_submit_pb2 import ClientBatchStatus
from protos.processor_pb2 import TpProcessResponse
from tests.contracts.engines import Order, ScriptedEngine
from tests.dovetail.validator.activations import status_of
from tests.dovetail.validator.nodes import MACHINE, open_peers, process, register, signed_batch
from tests.dovetail.validator.peers import run
from tests.dovetail.validator.support import LIMITS, commit, make_batch, open_store

OK = TpProcessResponse.OK
CONNECT_MS_MAX = 10_000


class Conductor:
    """The network's side of the connection to one engine: sends orders, receives reports."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        pair = self._context.socket(zmq.PAIR)
        pair.set(zmq.LINGER, 0)
        self.endpoint = f"tcp://127.0.0.1:{pair.bind_to_random_port('tcp://127.0.0.1')}"
        self._pair = pair
        self.arrived = asyncio.Event()
        """Set when the engine has received the last order."""
        self._reports: asyncio.Queue[Any] = asyncio.Queue()
        self._socket = DrainedSocket(pair, self._readable)

    def _readable(self) -> None:
        for (content,) in self._socket.received():
            self._reports.put_nowait(pickle.loads(content))

    def order(self, order: Order) -> None:
        assert self._pair.poll(CONNECT_MS_MAX, zmq.POLLOUT), "the engine connects"
        self.arrived.clear()
        self._socket.send([pickle.dumps(order)])

    async def report(self) -> Any:
        return await self._reports.get()

    def close(self) -> None:
        self._socket.close()
        self._context.term()


def engine_at(conductor: Conductor) -> Callable[[int, Callable[[object], None]], EngineConnection]:
    """A function that opens a scripted engine whose network is ``conductor``."""

    def open_engine(height: int, on_message: Callable[[object], None]) -> EngineConnection:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        pair = context.socket(zmq.PAIR)
        pair.set(zmq.LINGER, 0)
        pair.connect(conductor.endpoint)

        def readable() -> None:
            for (content,) in socket.received():
                on_message(pickle.loads(content))
                conductor.arrived.set()

        def close() -> None:
            socket.close()
            context.term()

        socket = DrainedSocket(pair, readable)
        return EngineConnection(ScriptedEngine(), lambda message: socket.send([pickle.dumps(message)]), close)

    return open_engine


@asynccontextmanager
async def open_network_node(
    folder: Path, number: int, pending: bool, *orders: Order
) -> AsyncIterator[tuple[Node, Conductor]]:
    """A node of a network, with one pending batch or none.

    The engine gets ``orders`` before pending batches are restored.
    """
    conductor = Conductor()
    store = open_store(folder, LIMITS)
    try:
        commit(store, [make_batch("genesis")])
        if pending:
            store.add_pending([signed_batch().raw])
        config = ValidatorConfig(folder, folder / "key", "tcp://127.0.0.1:*", 1, LIMITS)
        surroundings = MACHINE._replace(open_engine=engine_at(conductor))
        node = Node(config, store, Signer(f"{number:02x}" * 32), surroundings=surroundings)
        try:
            for order in orders:
                conductor.order(order)
                await conductor.arrived.wait()
            await node.restore()
            yield node, conductor
        finally:
            node.close()
    finally:
        store.close()
        conductor.close()


def test_two_nodes_commit_a_block_that_one_of_them_proposed(tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            first, second = [
                await stack.enter_async_context(open_network_node(tmp_path / str(number), number, pending=number == 1))
                for number in (1, 2)
            ]
            (node, conductor), (other, other_conductor) = first, second
            (processor, client) = await stack.enter_async_context(open_peers(node, 2))
            (other_processor, other_client) = await stack.enter_async_context(open_peers(other, 2))
            await register(processor)
            conductor.order(Propose(1))
            await process(processor, [OK])
            proposed = await conductor.report()
            assert isinstance(proposed, Proposed)
            # Nothing is committed before the network decides.
            assert (await status_of(client, signed_batch())).status == ClientBatchStatus.PENDING
            other_conductor.order(Process(proposed.proposal))
            # The processor of the other node connects late. Until then, that node does not agree to the proposal.
            refused = await other_conductor.report()
            assert isinstance(refused, Processed)
            assert "waiting_for_processor" in (refused.refusal or "")
            other_conductor.order(Finalize(proposed.proposal))
            await register(other_processor)
            await process(other_processor, [OK])
            conductor.order(Finalize(proposed.proposal))
            reports = [await conductor.report(), await other_conductor.report()]
            assert isinstance(reports[0], Finalized)
            assert reports[0] == reports[1]
            for each in (conductor, other_conductor):
                each.order(Commit(1))
                assert await each.report() == Committed(1, reports[0].block_id)
            assert (await status_of(client, signed_batch(), wait=True)).status == ClientBatchStatus.COMMITTED
            assert (await status_of(other_client, signed_batch())).status == ClientBatchStatus.COMMITTED

    run(test)


def test_orders_wait_until_pending_batches_are_restored(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_network_node(tmp_path, 1, True, Propose(1)) as (node, conductor), open_peers(node, 1) as peers:
            assert await asyncio.wait_for(conductor.report(), 10) == NothingProposed(1)
            # The order was carried out after the batch was restored. The batch has no processor.
            assert (await status_of(peers[0], signed_batch())).reason == "waiting_for_processor"

    run(test)
