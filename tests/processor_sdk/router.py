"""A validator's ROUTER socket in the test's own thread: the test receives and answers each message itself."""

from typing import Any

import zmq

from dovetail.common.keys import KeyFiles
from protos import processor_pb2, validator_pb2
from tests.keys import use_server_key
from tests.processor_sdk.scripts import Spec

Message = validator_pb2.Message
WAIT_MS = 10_000


class Validator:
    """A ROUTER socket whose messages the test receives and answers."""

    def __init__(
        self,
        url: str = "tcp://127.0.0.1:*",
        context: "zmq.Context[zmq.Socket[bytes]] | None" = None,
        keys: KeyFiles | None = None,
    ) -> None:
        """``keys``: the validator's own keys, if it asks processors for keys."""
        self._context = context or zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.LINGER, 0)
        self._router.setsockopt(zmq.RCVTIMEO, WAIT_MS)
        if keys is not None:
            use_server_key(self._router, keys)
        self._router.bind(url)
        self.url: str = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        self.peer = b""

    def close(self) -> None:
        self._router.close()
        self._context.term()

    def receive(self, expected: int) -> Any:
        self.peer, raw = self._router.recv_multipart()
        message = Message.FromString(raw)
        assert message.message_type == expected
        return message

    def send(self, message_type: Any, correlation_id: str, content: bytes = b"") -> None:
        message = Message(message_type=message_type, correlation_id=correlation_id, content=content)
        self._router.send_multipart([self.peer, message.SerializeToString()])

    def reply(self, request: Any, content: bytes = b"") -> None:
        self.send(request.message_type + 1, request.correlation_id, content)

    def accept(self) -> processor_pb2.TpRegisterRequest:
        request = self.receive(Message.TP_REGISTER_REQUEST)
        response = processor_pb2.TpRegisterResponse(
            status=processor_pb2.TpRegisterResponse.OK, protocol_version=1, packed_version=1
        )
        self.reply(request, response.SerializeToString())
        return processor_pb2.TpRegisterRequest.FromString(request.content)

    def single(self, correlation_id: str, spec: Spec) -> None:
        request = processor_pb2.TpProcessRequest(
            header_bytes=spec.header_bytes(),
            payload=spec.payload(),
            signature=correlation_id,
            context_id=correlation_id,
        )
        self.send(Message.TP_PROCESS_REQUEST, correlation_id, request.SerializeToString())

    def release(self) -> None:
        request = self.receive(Message.TP_UNREGISTER_REQUEST)
        response = processor_pb2.TpUnregisterResponse(status=processor_pb2.TpUnregisterResponse.OK)
        self.reply(request, response.SerializeToString())

    def part(self) -> None:
        """Answer the ping that a stopping processor sends after its last answer."""
        self.reply(self.receive(Message.PING_REQUEST))

    def verdict(self, correlation_id: str) -> int:
        message = self.receive(Message.TP_PROCESS_RESPONSE)
        assert message.correlation_id == correlation_id
        return processor_pb2.TpProcessResponse.FromString(message.content).status
