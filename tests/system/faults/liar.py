"""A processor of packed execution that can send any answer. It builds plain messages, without the SDK.

This module has its connection and its answers. Rules for the validator do not belong here.
"""

import secrets
from collections.abc import Mapping
from types import TracebackType

import zmq

from protos import packed_pb2, processor_pb2
from protos.validator_pb2 import Message as Envelope
from tests.system.e2e.process import DEADLINE_S

Result = packed_pb2.PackedProcessResponse.TransactionResult
Answer = packed_pb2.PackedProcessResponse


def ok(changes: Mapping[str, bytes]) -> Result:
    """A transaction that was applied, with these writes."""
    result = Result(status="OK")
    for address, value in changes.items():
        result.state_changes.add(address=address, value=value, type="SET")
    return result


def answer(*units: list[Result]) -> bytes:
    """The answer to a packed message: the results of each unit."""
    made = Answer()
    for results in units:
        made.units.add(results=results)
    return made.SerializeToString()


class Liar:
    """Connected to ``url``, registered for one family and namespace until it closes."""

    def __init__(self, url: str, family: str, namespace: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.SNDHWM, 0)
        self._socket.set(zmq.IDENTITY, secrets.token_hex(8).encode())
        self._socket.connect(url)
        self._family, self._namespace = family, namespace

    def __enter__(self) -> "Liar":
        request = processor_pb2.TpRegisterRequest(
            family=self._family, version="1.0", namespaces=[self._namespace], packed_version=2, max_occupancy=100
        )
        self.send(Envelope.TP_REGISTER_REQUEST, "register", request.SerializeToString())
        registered = self.receive(Envelope.TP_REGISTER_RESPONSE)
        assert processor_pb2.TpRegisterResponse.FromString(registered.content).packed_version == 2
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Without unregistration, the validator would give the processor tasks that then count as lost.
        self.send(Envelope.TP_UNREGISTER_REQUEST, "leave", b"")
        self.receive(Envelope.TP_UNREGISTER_RESPONSE)
        self._socket.close()
        self._context.term()

    def send(self, message_type: int, correlation_id: str, content: bytes) -> None:
        """Send a message of any type."""
        envelope = Envelope(message_type=message_type, correlation_id=correlation_id, content=content)  # type: ignore[arg-type]
        self.send_raw(envelope.SerializeToString())

    def send_raw(self, *frames: bytes) -> None:
        """Send bytes that need not be a message."""
        self._socket.send_multipart(frames)

    def receive(self, message_type: int) -> Envelope:
        """The next message of a type. Pings are answered, other messages are ignored."""
        while self._socket.poll(int(DEADLINE_S * 1000)):
            message = Envelope.FromString(self._socket.recv())
            if message.message_type == Envelope.PING_REQUEST:
                self.send(Envelope.PING_RESPONSE, message.correlation_id, b"")
            if message.message_type == message_type:
                return message
        raise TimeoutError(f"no message of type {message_type} in {DEADLINE_S:g} s")

    def task(self) -> packed_pb2.PackedProcessRequest:
        """The next task."""
        return packed_pb2.PackedProcessRequest.FromString(self.receive(Envelope.PACKED_PROCESS_REQUEST).content)

    def send_answer(self, task: packed_pb2.PackedProcessRequest, content: bytes) -> None:
        """Answer a task with these bytes, also when it was answered before."""
        self.send(Envelope.PACKED_PROCESS_RESPONSE, task.context_id, content)

    def ping(self) -> None:
        """Wait until the validator has handled everything that was sent before."""
        self.send(Envelope.PING_REQUEST, "ping", b"")
        self.receive(Envelope.PING_RESPONSE)
