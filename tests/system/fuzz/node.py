"""Target: the frames that peers send to the validator's socket, handled by a whole node in this process.

The node is the real one, with store, queue, processors and clients. A list of frames replaces the socket, and checks in
this process replace the verifier processes. So an input has the same effect in every run.
"""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import zmq
from structlog.testing import capture_logs

from dovetail.ledger.batch import decode_batch_list, verify_batch
from dovetail.ledger.building import build_batch, encode_batch_list
from dovetail.ledger.errors import RefusedBatch
from dovetail.node.judged_here import judged_here
from dovetail.validator.admission.verifier import Verified
from dovetail.validator.config import ValidatorConfig
from dovetail.validator.node import Node
from dovetail.validator.surroundings import on_machine
from dovetail.validator.transport.sockets import DrainedSocket
from families.intkey.addresses import NAMESPACE, intkey_address
from families.intkey.client import intkey_transaction
from protos import client_batch_submit_pb2, client_state_pb2, node_pb2, packed_pb2, processor_pb2, state_context_pb2
from protos.query_pb2 import ListRequest
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.support import LIMITS, commit, make_batch, make_id, open_store
from tests.system.fuzz.target import Input, Target, chunk, text_of
from tests.system.fuzz.values import SIGNER

TYPES: Final = (
    Envelope.PING_REQUEST,
    Envelope.PING_RESPONSE,
    Envelope.CLIENT_BATCH_SUBMIT_REQUEST,
    Envelope.CLIENT_BATCH_STATUS_REQUEST,
    Envelope.STATUS_WAIT_CANCEL,
    Envelope.NODE_STATUS_REQUEST,
    Envelope.METRICS_REQUEST,
    Envelope.PROCESSORS_REQUEST,
    Envelope.FAMILIES_REQUEST,
    Envelope.CLIENT_BLOCK_GET_BY_ID_REQUEST,
    Envelope.CLIENT_BLOCK_GET_BY_NUM_REQUEST,
    Envelope.CLIENT_BLOCK_GET_BY_BATCH_ID_REQUEST,
    Envelope.CLIENT_BLOCK_GET_BY_TRANSACTION_ID_REQUEST,
    Envelope.CLIENT_BATCH_GET_REQUEST,
    Envelope.CLIENT_TRANSACTION_GET_REQUEST,
    Envelope.CLIENT_RECEIPT_GET_REQUEST,
    Envelope.CLIENT_STATE_GET_REQUEST,
    Envelope.LIST_REQUEST,
    Envelope.TP_REGISTER_REQUEST,
    Envelope.TP_UNREGISTER_REQUEST,
    Envelope.TP_PROCESS_RESPONSE,
    Envelope.PACKED_PROCESS_RESPONSE,
    Envelope.TP_STATE_GET_REQUEST,
    Envelope.TP_STATE_SET_REQUEST,
    Envelope.TP_STATE_DELETE_REQUEST,
    Envelope.TP_RECEIPT_ADD_DATA_REQUEST,
    Envelope.TP_EVENT_ADD_REQUEST,
    Envelope.STATE_LIST_REQUEST,
)
"""Every message type that the validator accepts."""

CLIENT_TYPES: Final = frozenset(TYPES[2:18]) - {Envelope.STATUS_WAIT_CANCEL, Envelope.CLIENT_BATCH_STATUS_REQUEST}
"""The message types that get exactly one answer, at once."""

_WHOLE, _FRAMES, _TICK, _ANSWER, _GONE = range(len(TYPES), len(TYPES) + 5)
"""Other kinds of steps: a whole envelope, any number of frames, a tick, a right answer, a lost connection."""

_PEERS: Final = (b"first", b"second", b"third")
_TASKS: Final = (Envelope.TP_PROCESS_REQUEST, Envelope.PACKED_PROCESS_REQUEST)
_STATE_TYPES: Final[dict[int, Any]] = {
    Envelope.TP_STATE_GET_REQUEST: state_context_pb2.TpStateGetRequest,
    Envelope.TP_STATE_SET_REQUEST: state_context_pb2.TpStateSetRequest,
    Envelope.TP_STATE_DELETE_REQUEST: state_context_pb2.TpStateDeleteRequest,
    Envelope.TP_RECEIPT_ADD_DATA_REQUEST: state_context_pb2.TpReceiptAddDataRequest,
    Envelope.TP_EVENT_ADD_REQUEST: state_context_pb2.TpEventAddRequest,
    Envelope.STATE_LIST_REQUEST: packed_pb2.StateListRequest,
}
_STEPS_MAX: Final = 40


class _FrameList:
    """Replaces a DrainedSocket: received and sent frames. ``gone``: identities that are not connected any more."""

    def __init__(self, below: DrainedSocket) -> None:
        self._below = below
        self.incoming: list[list[bytes]] = []
        self.sent: list[tuple[bytes, Any]] = []
        self.tasks: defaultdict[bytes, list[Any]] = defaultdict(list)
        """The unanswered tasks of each peer, the oldest first."""
        self.gone: set[bytes] = set()
        self.user = ""

    def received(self) -> Iterator[list[bytes]]:
        while self.incoming:
            yield self.incoming.pop(0)

    def send(self, frames: list[bytes]) -> None:
        identity, content = frames
        if identity in self.gone:
            raise zmq.ZMQError(zmq.EHOSTUNREACH)
        envelope = Envelope.FromString(content)
        self.sent.append((identity, envelope))
        if envelope.message_type in _TASKS:
            self.tasks[identity].append(envelope)

    def close(self) -> None:
        self._below.close()


class _InlineVerifiers:
    """Replaces the verifier processes by checks in this process."""

    def verify(self, raw_batches: list[bytes], on_verified: Callable[[Verified], None]) -> None:
        try:
            on_verified([verify_batch(raw) for raw in raw_batches])
        except RefusedBatch as refusal:
            on_verified(refusal)

    def watch(self) -> None:
        """Do nothing: there is no process that could die."""

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class Messages(Target):
    """Input: steps of kind, peer and content. An answer of any content gets the correlation id of the oldest task."""

    name = "messages"

    def __init__(self, folder: Path) -> None:
        self._runner = asyncio.Runner()
        self._correlations = itertools.count()
        self._store = open_store(folder)
        if self._store.head is None:
            commit(self._store, [make_batch("genesis")], {intkey_address("old"): b"\xa1cold\x05"})
        with capture_logs():
            self._runner.run(self._open(folder))

    async def _open(self, folder: Path) -> None:
        config = ValidatorConfig(folder, folder / "key", "tcp://127.0.0.1:*", 1, LIMITS)
        self._node = node = Node(config, self._store, SIGNER, on_machine(judged_here()))
        self._frames = _FrameList(node._gateway._socket)
        node._gateway._socket = self._frames  # type: ignore[assignment]
        node._gateway._received = self._frames.received
        node._pool.close()
        node._pool = node._clients.submissions._pool = _InlineVerifiers()  # type: ignore[assignment]
        # Stop the node's own timer, because its ticks would come between the steps.
        node._timer.cancel()
        await node.restore()

    def close(self) -> None:
        self._node.close()
        self._runner.close()
        self._store.close()

    def seeds(self) -> Iterator[bytes]:
        status = client_batch_submit_pb2.ClientBatchStatusRequest
        genesis = make_batch("genesis")
        contents: dict[int, list[Any]] = {
            Envelope.CLIENT_BATCH_SUBMIT_REQUEST: [_batches("set", "a"), _batches("inc", "old"), b"\x0a\x00"],
            Envelope.CLIENT_BATCH_STATUS_REQUEST: [
                status(batch_ids=[genesis.id, make_id("x"), "no id"]),
                status(batch_ids=[make_id("y")], wait=True, timeout=9),
            ],
            Envelope.STATUS_WAIT_CANCEL: [node_pb2.StatusWaitCancel(correlation_id="1")],
            Envelope.CLIENT_BATCH_GET_REQUEST: [status(batch_ids=[genesis.id])],
            Envelope.CLIENT_STATE_GET_REQUEST: [client_state_pb2.ClientStateGetRequest(address=intkey_address("old"))],
            Envelope.LIST_REQUEST: [
                ListRequest(resource=resource, count=3, head="0", min="0", max="5", address="1cf126")
                for resource in ListRequest.Resource.keys()  # noqa: SIM118 (an enum of protobuf is no dictionary)
            ],
            Envelope.TP_REGISTER_REQUEST: [_registration(0), _registration(1)],
        }
        for index, message_type in enumerate(TYPES):
            for content in contents.get(message_type, [b""]):
                yield _step(index, content)
        yield _step(_WHOLE, Envelope(message_type=Envelope.LIST_REQUEST, correlation_id="c", content=b"\x08\x01"))
        yield _step(_FRAMES, chunk(b"a") + chunk(b"b"))
        register = TYPES.index(Envelope.TP_REGISTER_REQUEST)
        submit = _step(TYPES.index(Envelope.CLIENT_BATCH_SUBMIT_REQUEST), _batches("set", "b", "c"), peer=1)
        for packed, answer in ((0, self._single_answer()), (2, self._packed_answer())):
            taken = _step(register, _registration(packed)) + submit
            state = _step(
                TYPES.index(Envelope.TP_STATE_GET_REQUEST),
                state_context_pb2.TpStateGetRequest(addresses=[intkey_address("b"), NAMESPACE]),
            )
            state += _step(
                TYPES.index(Envelope.TP_STATE_SET_REQUEST),
                state_context_pb2.TpStateSetRequest(entries=[{"address": intkey_address("b"), "data": b"x"}]),
            )
            state += _step(TYPES.index(Envelope.STATE_LIST_REQUEST), packed_pb2.StateListRequest(prefix=NAMESPACE))
            yield taken + state + answer + _step(_TICK) + answer
            for verdict in (b"\1", b"\1x", b"\2no", b"\3"):
                yield taken + state + _step(_ANSWER, verdict) * 4
            yield taken + _step(_GONE) + _step(register, _registration(packed)) + answer + _step(_TICK)
            yield taken + _step(TYPES.index(Envelope.TP_UNREGISTER_REQUEST)) + answer

    @staticmethod
    def _single_answer() -> bytes:
        response = processor_pb2.TpProcessResponse(status="INVALID_TRANSACTION", message="no", extended_data=b"x")
        return _step(TYPES.index(Envelope.TP_PROCESS_RESPONSE), response)

    @staticmethod
    def _packed_answer() -> bytes:
        response = packed_pb2.PackedProcessResponse()
        result = response.units.add().results.add(status="OK")
        result.state_changes.add(address=intkey_address("b"), value=b"\xa1ab\x01", type="SET")
        return _step(TYPES.index(Envelope.PACKED_PROCESS_RESPONSE), response)

    def run(self, data: bytes) -> None:
        with capture_logs() as lines:
            self._runner.run(self._take(Input(data)))
        assert not [line for line in lines if line["log_level"] in ("error", "critical")], lines

    async def _take(self, source: Input) -> None:
        node, frames = self._node, self._frames
        frames.gone.clear()
        frames.tasks.clear()
        for _ in range(_STEPS_MAX):
            if source.is_over:
                break
            kind, peer = source.byte() % (_GONE + 1), _PEERS[source.byte() % len(_PEERS)]
            content = source.chunk()
            frames.gone.discard(peer)
            if kind == _TICK:
                node._tick()
                node._timer.cancel()
            elif kind == _GONE:
                frames.gone.add(peer)
                node._probe()
            elif kind == _ANSWER:
                if frames.tasks[peer]:
                    self._message(peer, *_right_answer(frames.tasks[peer][0], content))
            elif kind == _FRAMES:
                inner = Input(content)
                frames.incoming.append([peer, *(inner.chunk() for _ in range(content[0] % 4))] if content else [peer])
                node._on_sweep()
            elif kind == _WHOLE:
                frames.incoming.append([peer, content])
                node._on_sweep()
            else:
                self._message(peer, TYPES[kind], content)
        self._end()

    def _message(self, peer: bytes, message_type: int, content: bytes) -> None:
        frames = self._frames
        correlation_id = f"fuzz-{next(self._correlations)}"
        tasks = frames.tasks[peer]
        if tasks and message_type in (Envelope.TP_PROCESS_RESPONSE, Envelope.PACKED_PROCESS_RESPONSE):
            correlation_id = tasks.pop(0).correlation_id
        elif tasks and message_type in _STATE_TYPES:
            content = _in_context(message_type, content, tasks[0])
        named: Any = message_type
        envelope = Envelope(message_type=named, correlation_id=correlation_id, content=content)
        frames.sent.clear()
        frames.incoming.append([peer, envelope.SerializeToString()])
        self._node._on_sweep()
        answers = [sent for identity, sent in frames.sent if (identity, sent.correlation_id) == (peer, correlation_id)]
        if message_type in CLIENT_TYPES:
            assert len(answers) == 1, (Envelope.MessageType.Name(named), answers)
        elif message_type == Envelope.PING_REQUEST:
            assert [sent.message_type for sent in answers] == [Envelope.PING_RESPONSE]

    def _end(self) -> None:
        """Disconnect all peers. Only accepted batches may remain in the node."""
        node, frames = self._node, self._frames
        frames.gone.update(_PEERS)
        node._probe()
        if node._probe_timer is not None:
            node._probe_timer.cancel()
            node._probe_timer = None
        assert node._clients.statuses.waiters == 0
        assert all(status.in_process for status in node._processors.statuses())
        assert node._clients.submissions._checking_bytes == 0
        frames.sent.clear()


def _right_answer(task: Any, content: bytes) -> tuple[int, bytes]:
    """Type and content of an answer in the task's protocol, whose verdict and writes are taken from ``content``."""
    statuses = processor_pb2.TpProcessResponse.Status.values()
    status: Any = statuses[content[0] % len(statuses)] if content else processor_pb2.TpProcessResponse.OK
    if task.message_type == Envelope.TP_PROCESS_REQUEST:
        response = processor_pb2.TpProcessResponse(status=status, message=text_of(content[1:]))
        return Envelope.TP_PROCESS_RESPONSE, response.SerializeToString()
    packed = packed_pb2.PackedProcessResponse()
    for unit in packed_pb2.PackedProcessRequest.FromString(task.content).units:
        results = packed.units.add().results
        for _ in unit.transactions:
            result = results.add(status=status, message=text_of(content[1:]))
            if content[1:] and status == processor_pb2.TpProcessResponse.OK:
                result.state_changes.add(address=intkey_address("b"), value=content[1:], type="SET")
            if status != processor_pb2.TpProcessResponse.OK:
                break
    return Envelope.PACKED_PROCESS_RESPONSE, packed.SerializeToString()


def _in_context(message_type: int, content: bytes, task: Any) -> bytes:
    """A state request with the context id of a task; other content is unchanged."""
    try:
        request = _STATE_TYPES[message_type].FromString(content)
        if task.message_type == Envelope.TP_PROCESS_REQUEST:
            request.context_id = processor_pb2.TpProcessRequest.FromString(task.content).context_id
        else:
            request.context_id = packed_pb2.PackedProcessRequest.FromString(task.content).context_id + ":0"
    except Exception:
        return content
    return bytes(request.SerializeToString())


def _step(kind: int, content: Any = b"", peer: int = 0) -> bytes:
    encoded = content if isinstance(content, bytes) else content.SerializeToString()
    return bytes((kind, peer)) + chunk(encoded)


def _registration(packed: int) -> processor_pb2.TpRegisterRequest:
    return processor_pb2.TpRegisterRequest(
        family="intkey", version="1.0", namespaces=[NAMESPACE], packed_version=packed, max_occupancy=9
    )


def _batches(verb: Any, *names: str) -> bytes:
    batches = [
        build_batch(SIGNER, [intkey_transaction(SIGNER, SIGNER.public_key, verb, name, 1, f"fuzz {name}")])
        for name in names
    ]
    content = encode_batch_list(batches)
    assert len(decode_batch_list(content)) == len(names)
    return content
