"""Simulated clients: they submit batches, ask and wait for statuses, disconnect, and count answers.

``promises`` checks whether answers are true when they leave the node.
"""

import asyncio
from collections import Counter
from itertools import count

from dovetail.ledger.building import SignedBatch, encode_batch_list
from protos.client_batch_submit_pb2 import ClientBatchStatusRequest
from protos.node_pb2 import StatusWaitCancel
from protos.validator_pb2 import Message as Envelope
from tests.system.simulation.clock import pause
from tests.system.simulation.maker import Made, Maker
from tests.system.simulation.model import Violated
from tests.system.simulation.stage import Stage
from tests.system.simulation.wire import Connection

_READINGS = (
    Envelope.FAMILIES_REQUEST,
    Envelope.PROCESSORS_REQUEST,
    Envelope.NODE_STATUS_REQUEST,
    Envelope.METRICS_REQUEST,
    Envelope.CLIENT_BATCH_LIST_REQUEST,
    Envelope.CLIENT_STATE_LIST_REQUEST,
    31_337,
)
_BATCHES_MAX = 90
"""About so many batches are made for one world."""

_CLIENTS = "c"
"""The prefix of clients' names."""


def is_client(identity: bytes) -> bool:
    return identity.startswith(_CLIENTS.encode())


class Client:
    """One client over all its connections. ``acts``: the number of its actions; ``busy_ms``: its longest pause."""

    def __init__(self, number: int, acts: int, busy_ms: int, maker: Maker, stage: Stage) -> None:
        self.name = f"{_CLIENTS}{number}"
        self._acts = acts
        self._busy_ms = busy_ms
        self._maker = maker
        self._stage = stage
        self._connection: Connection | None = None
        self._numbers = count(1)
        self._sent: list[Made] = []
        self._kept: list[Made] = []
        """Batches that are made but not submitted."""
        self._open: Counter[str] = Counter()
        """The number of missing answers, by correlation id."""
        self._cancelled: set[str] = set()
        self._closed = asyncio.Event()

    async def live(self) -> None:
        """Act until the world is calm. Then receive the last answers."""
        stage = self._stage
        if stage.rng.random() < 0.8:
            # The node refuses clients before the genesis block.
            await stage.ready.wait()
        while not stage.calm:
            if self._connection is None and not self._connect():
                await pause(stage.rng.randint(1, 200))
                continue
            if not self._acts:
                await stage.calmed.wait()
                break
            self._acts -= 1
            self._act()
            await pause(stage.rng.randint(1, self._busy_ms))
        if self._connection is not None and not self._connection.reads:
            self._connection.read_again()

    def unanswered(self) -> list[str]:
        """The correlation ids of unanswered requests on the current connection."""
        if self._connection is None or self._connection.missed:
            return []
        return sorted(name for name in self._open if name not in self._cancelled)

    def _connect(self) -> bool:
        self._open.clear()
        self._cancelled.clear()
        self._connection = self._stage.network.connect(self.name, self._take, self._on_close)
        return self._connection is not None

    def _on_close(self) -> None:
        self._connection = None

    def _act(self) -> None:
        rng, connection = self._stage.rng, self._connection
        assert connection is not None, "it is connected"
        drawn = rng.random()
        if drawn < 0.55:
            self._submit(self._batches())
        elif drawn < 0.70:
            self._ask_statuses(wait=False)
        elif drawn < 0.86:
            self._ask_statuses(wait=True)
        elif drawn < 0.89:
            self._cancel()
        elif drawn < 0.94:
            self._send(rng.choice(_READINGS), self._next_id(), b"")
        elif drawn < 0.95:
            connection.send_raw(rng.choice([b"\xff\xff", b"", b"\x08"]))
        elif drawn < 0.97:
            connection.reads = not connection.reads
            if connection.reads:
                connection.read_again()
        else:
            connection.close(flushed=rng.random() < 0.5)
            self._connection = None

    def _batches(self) -> list[SignedBatch]:
        rng = self._stage.rng
        chosen: list[Made] = []
        for _ in range(rng.choice([1, 1, 2, 4, 8, 15])):
            drawn = rng.random()
            if drawn < 0.12 and self._sent:
                chosen.append(rng.choice(self._sent))
            elif drawn < 0.3 and self._kept:
                chosen.append(self._kept.pop(rng.randrange(len(self._kept))))
            elif len(self._maker.made) >= _BATCHES_MAX:
                break
            else:
                chosen.append(self._maker.batch())
        if chosen and rng.random() < 0.1:
            # Dependent batches may be submitted before their dependencies, or without them.
            self._kept += chosen
            chosen = [self._maker.batch()]
        chosen = chosen or [self._maker.batch()]
        self._sent += chosen
        return [made.batch for made in chosen]

    def _submit(self, batches: list[SignedBatch]) -> None:
        content = encode_batch_list(batches)
        if self._stage.rng.random() < 0.03:
            # The list is damaged on its way. It is refused as a whole, or it still holds only valid batches.
            place = self._stage.rng.randrange(len(content))
            content = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        correlation_id = self._next_id()
        self._open[correlation_id] += 1
        self._send(Envelope.CLIENT_BATCH_SUBMIT_REQUEST, correlation_id, content)

    def _ask_statuses(self, *, wait: bool) -> None:
        rng = self._stage.rng
        known: list[str] = [made.batch.id for made in self._sent[-30:]]
        ids = rng.sample(known, min(len(known), rng.randint(1, 6)))
        if rng.random() < 0.1:
            ids.append(rng.choice(["no id", f"{rng.getrandbits(512):0128x}"]))
        if not ids:
            return
        # Sometimes use the correlation id of a running wait. The node then answers the earlier wait first.
        correlation_id = rng.choice(sorted(self._open)) if self._open and rng.random() < 0.05 else self._next_id()
        if correlation_id in self._cancelled:
            return
        self._open[correlation_id] += 1
        request = ClientBatchStatusRequest(batch_ids=ids, wait=wait, timeout=rng.randint(1, 15))
        self._send(Envelope.CLIENT_BATCH_STATUS_REQUEST, correlation_id, request.SerializeToString())

    def _cancel(self) -> None:
        if self._open:
            correlation_id = self._stage.rng.choice(sorted(self._open))
            self._cancelled.add(correlation_id)
            content = StatusWaitCancel(correlation_id=correlation_id).SerializeToString()
            self._send(Envelope.STATUS_WAIT_CANCEL, self._next_id(), content)

    def _send(self, message_type: int, correlation_id: str, content: bytes) -> None:
        assert self._connection is not None, "it is connected"
        self._connection.send(message_type, correlation_id, content)

    def _take(self, envelope: Envelope) -> None:
        if envelope.message_type not in (Envelope.CLIENT_BATCH_SUBMIT_RESPONSE, Envelope.CLIENT_BATCH_STATUS_RESPONSE):
            return
        correlation_id = envelope.correlation_id
        if not self._open[correlation_id]:
            self._stage.fail(Violated(f"{self.name} is answered once more for {correlation_id}"))
        self._open[correlation_id] -= 1
        if not self._open[correlation_id]:
            del self._open[correlation_id]
            self._cancelled.discard(correlation_id)

    def _next_id(self) -> str:
        return f"{self.name}:{next(self._numbers)}"
