"""Simulated processors: they connect, register, serve, fall silent, drain, die with tasks, and connect again.

``applying`` holds what they do with tasks.
"""

import asyncio
from collections.abc import Coroutine
from itertools import chain, count
from typing import Any

from google.protobuf.message import Message

from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.node import Node
from protos import processor_pb2
from protos.node_pb2 import ProcessorStatus
from protos.validator_pb2 import Message as Envelope
from tests.system.simulation.applying import Applying, Behaviour
from tests.system.simulation.clock import pause
from tests.system.simulation.model import Violated
from tests.system.simulation.programs import NAMESPACES
from tests.system.simulation.stage import Stage
from tests.system.simulation.wire import Connection

_RESPONSES = frozenset(
    {
        Envelope.TP_REGISTER_RESPONSE,
        Envelope.TP_UNREGISTER_RESPONSE,
        Envelope.TP_STATE_GET_RESPONSE,
        Envelope.TP_STATE_SET_RESPONSE,
        Envelope.TP_STATE_DELETE_RESPONSE,
        Envelope.TP_RECEIPT_ADD_DATA_RESPONSE,
        Envelope.STATE_LIST_RESPONSE,
    }
)


_COMES_MS_MAX = 1_000
"""The longest time that a registration may take to arrive."""


class Processor(Applying):
    """One processor, through all of its connections."""

    def __init__(self, name: str, behaviour: Behaviour, stage: Stage) -> None:
        super().__init__(name, behaviour, stage)
        self._connection: Connection | None = None
        self._asked: dict[str, asyncio.Future[bytes]] = {}
        self._numbers = count(1)
        self._jobs: set[asyncio.Task[None]] = set()
        self._closed = asyncio.Event()
        self._left = False
        self._goes = False
        self._came_ms = 0

    async def live(self) -> None:
        """Serve until the processor leaves for good."""
        rng = self._stage.rng
        while not self._left:
            self._closed.clear()
            self._goes = False
            self._came_ms = self._stage.loop.now_ms
            self._connection = self._stage.network.connect(self.name, self._take, self._on_close)
            if self._connection is None:
                await pause(rng.randint(1, 300))
                continue
            for family in self.behaviour.families:
                self._register(family)
            if self.behaviour.life_ms is None or self._stage.calm:
                await self._closed.wait()
            else:
                # Serve until the life of the processor or its connection ends.
                alarm = self._stage.loop.call_later(self.behaviour.life_ms / 1000, self._closed.set)
                await self._closed.wait()
                alarm.cancel()
                if self._stage.calm and self._connection is not None and not self._left:
                    self._closed.clear()
                    await self._closed.wait()
                elif self._connection is not None and not self._left:
                    await self._go()
            self.drop(flushed=False)
            await pause(rng.randint(1, 2_000))

    def leave(self) -> None:
        """Disconnect with all tasks, and do not come back."""
        self._left = True
        self.drop(flushed=False)
        self._closed.set()

    def check_served(self, node: Node) -> None:
        """Check that the node gives the processor work, unless it has left, is leaving or has just connected.

        Raises Violated.
        """
        came_now = self._stage.loop.now_ms - self._came_ms < _COMES_MS_MAX
        if self._connection is None or self._goes or came_now:
            return
        name = self._connection.identity.hex()
        known = [status for status in node._processors.statuses() if status.connection_id == name]
        working = [status.families for status in known if status.state == ProcessorStatus.TAKES_WORK]
        served = {FamilyVersion(entry.family_name, entry.family_version) for entry in chain(*working)}
        if not served.issuperset(self.behaviour.families):
            raise Violated(f"{self.name} is connected, but the node gives it no work: {known}")

    def drop(self, *, flushed: bool) -> None:
        """Close the connection. Tasks in progress are lost."""
        if self._connection is not None:
            self._connection.close(flushed=flushed)
        self._on_close()

    async def _go(self) -> None:
        """End a life of the processor in one of several ways."""
        connection, rng = self._connection, self._stage.rng
        assert connection is not None, "it is connected"
        way = rng.choice(["die", "close", "drain", "silent", "unregister"])
        self._stage.trace(f"{self.name} goes: {way}")
        self._goes = True
        if way in ("drain", "unregister"):
            connection.send(Envelope.TP_UNREGISTER_REQUEST, self._next_id(), b"")
            if way == "drain":
                # Before it ends, the processor finishes its tasks.
                while self._jobs and connection.is_open:
                    await pause(5)
            else:
                await pause(rng.randint(0, 500))
        elif way == "silent":
            connection.reads = False
            await pause(rng.randint(100, 4_000))
            if rng.random() < 0.5:
                connection.read_again()
                await pause(rng.randint(0, 1_000))
        connection.close(flushed=way in ("close", "drain"))

    def _on_close(self) -> None:
        self._connection = None
        self._packed.clear()
        for job in self._jobs:
            job.cancel()
        self._jobs.clear()
        self._asked.clear()
        self._closed.set()

    def _register(self, family: FamilyVersion) -> None:
        behaviour = self.behaviour
        request = processor_pb2.TpRegisterRequest(
            family=family.name,
            version=family.version,
            namespaces=NAMESPACES[family],
            max_occupancy=behaviour.occupancy,
            packed_version=behaviour.packed,
            request_header_style="RAW" if behaviour.raw_header else "EXPANDED",
            migrates=True,
        )
        self._send(Envelope.TP_REGISTER_REQUEST, self._next_id(), request.SerializeToString())

    # Frames

    def _take(self, envelope: Envelope) -> None:
        message_type = envelope.message_type
        if message_type == Envelope.PING_REQUEST:
            self._send(Envelope.PING_RESPONSE, envelope.correlation_id, b"")
        elif message_type == Envelope.TP_PROCESS_REQUEST:
            self._start(self._single(envelope))
        elif message_type == Envelope.PACKED_PROCESS_REQUEST:
            self._packed.append(envelope)
            if len(self._packed) == 1:
                self._start(self._work_off())
        elif message_type in _RESPONSES:
            asked = self._asked.pop(envelope.correlation_id, None)
            if asked is not None and not asked.done():
                asked.set_result(envelope.content)

    def _start(self, job: Coroutine[Any, Any, None]) -> None:
        task = self._stage.loop.create_task(job)
        self._jobs.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._jobs.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._stage.fail(error)

        task.add_done_callback(ended)

    def _send(self, message_type: int, correlation_id: str, content: bytes) -> None:
        if self._connection is not None:
            self._connection.send(message_type, correlation_id, content)

    async def _ask(self, message_type: int, request: Message) -> bytes:
        correlation_id = self._next_id()
        asked = self._asked[correlation_id] = self._stage.loop.create_future()
        self._send(message_type, correlation_id, request.SerializeToString())
        content: bytes = await asked
        return content

    def _next_id(self) -> str:
        return f"{self.name}:{next(self._numbers)}"
