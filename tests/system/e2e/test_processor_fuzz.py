"""Random and mutated frames from a validator to our running processor: it answers each task once, and does not end.

The processor runs at a real socket. ``tests/processor_sdk/apply/test_fuzz.py`` fuzzes the dispatcher alone.
"""

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

from protos import packed_pb2, processor_pb2, state_context_pb2, transaction_pb2, validator_pb2
from tests.processor_sdk.mutations import mutated
from tests.system.e2e.process import DEADLINE_S, Process
from tests.system.e2e.script_family import HANDLER, NAMESPACE, ScriptHandler, address, script

Message = validator_pb2.Message
TASKS = {
    Message.TP_PROCESS_REQUEST: Message.TP_PROCESS_RESPONSE,
    Message.PACKED_PROCESS_REQUEST: Message.PACKED_PROCESS_RESPONSE,
}
STATE_ANSWERS = {
    Message.TP_STATE_GET_REQUEST: state_context_pb2.TpStateGetResponse(status="OK").SerializeToString(),
    Message.TP_STATE_SET_REQUEST: state_context_pb2.TpStateSetResponse(status="OK").SerializeToString(),
    Message.TP_STATE_DELETE_REQUEST: state_context_pb2.TpStateDeleteResponse(status="OK").SerializeToString(),
    Message.TP_RECEIPT_ADD_DATA_REQUEST: state_context_pb2.TpReceiptAddDataResponse(status="OK").SerializeToString(),
    Message.TP_EVENT_ADD_REQUEST: state_context_pb2.TpEventAddResponse(status="OK").SerializeToString(),
}
LEAF = address("fuzz")
LAST = "the last one"


class Fuzzer:
    """A ROUTER that accepts one packed registration, and then sends given frames."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.LINGER, 0)
        self._router.setsockopt(zmq.RCVTIMEO, int(DEADLINE_S * 1000))
        self._router.bind("tcp://127.0.0.1:*")
        url = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DOVETAIL_")}
        words = ("processor", HANDLER, "--connect", url, "--log-format", "json")
        self.process = Process("our processor", [sys.executable, "-m", "dovetail", *words], kept)
        self.registrations = 0
        self._accept(*self._receive())

    def close(self) -> None:
        # The fuzzer does not answer the unregistration.
        workers = self.process.descendants()
        self.process.signal(signal.SIGKILL)
        for worker in workers:
            worker.kill()
        self.process.close()
        self._router.close()
        self._context.term()

    def run(self, frames: list[list[bytes]], state_answer: bytes | None) -> Counter[tuple[int, str]]:
        """Send the frames, a valid task and a ping. Returns the answers to tasks until these two are answered.

        ``state_answer``: the answer to state calls. If it is None, the answer is that of a validator without data.
        """
        last = Message(message_type=Message.PACKED_PROCESS_REQUEST, correlation_id=LAST, content=packed("last"))
        ping = Message(message_type=Message.PING_REQUEST, correlation_id=LAST)
        for parts in (*frames, [last.SerializeToString()], [ping.SerializeToString()]):
            self._router.send_multipart([self._peer, *parts])
        answered: Counter[tuple[int, str]] = Counter()
        awaited = {(int(TASKS[last.message_type]), LAST), (int(Message.PING_RESPONSE), LAST)}
        while awaited:
            peer, message = self._receive()
            kind = message.message_type
            if kind == Message.TP_REGISTER_REQUEST:
                self._accept(peer, message)
            elif kind in STATE_ANSWERS:
                content = STATE_ANSWERS[kind] if state_answer is None else state_answer
                reply = Message(message_type=kind + 1, correlation_id=message.correlation_id, content=content)  # type: ignore[arg-type]
                self._router.send_multipart([peer, reply.SerializeToString()])
            else:
                if kind in TASKS.values():
                    check(kind, message.content)
                answered[kind, message.correlation_id] += 1
                awaited.discard((kind, message.correlation_id))
        return answered

    def _receive(self) -> tuple[bytes, validator_pb2.Message]:
        peer, raw = self._router.recv_multipart()
        return peer, Message.FromString(raw)

    def _accept(self, peer: bytes, message: validator_pb2.Message) -> None:
        assert message.message_type == Message.TP_REGISTER_REQUEST
        self._peer = peer
        self.registrations += 1
        response = processor_pb2.TpRegisterResponse(status="OK", protocol_version=1, packed_version=1)
        reply = Message(
            message_type=Message.TP_REGISTER_RESPONSE,
            correlation_id=message.correlation_id,
            content=response.SerializeToString(),
        )
        self._router.send_multipart([peer, reply.SerializeToString()])


def check(kind: int, content: bytes) -> None:
    """Check that an answer has its type."""
    if kind == Message.TP_PROCESS_RESPONSE:
        assert processor_pb2.TpProcessResponse.FromString(content).status in (1, 2, 3)
    else:
        units = packed_pb2.PackedProcessResponse.FromString(content).units
        assert all(result.status in (1, 2, 3) for unit in units for result in unit.results)


HEADER = transaction_pb2.TransactionHeader(
    family_name=ScriptHandler.family_name, family_version="1.0", inputs=[NAMESPACE], outputs=[LEAF]
).SerializeToString()
SCRIPTS = (
    script(("write", LEAF, "01")),
    script(("expect", LEAF, None), ("receipt", "01"), ("event", "e", [["k", "v"]], "02")),
    script(("remove", LEAF, False)),
    script(("invalid", "no")),
    script(("unknown",)),
    b"\xff",
)


def packed(context_id: str, payload: bytes = SCRIPTS[0]) -> bytes:
    """A packed request of two units."""
    request = packed_pb2.PackedProcessRequest(context_id=context_id)
    raw = transaction_pb2.Transaction(header=HEADER, header_signature="ab" * 64, payload=payload).SerializeToString()
    request.units.add(transactions=[raw, raw], batch_id="cd" * 64)
    request.units.add(transactions=[raw])
    return request.SerializeToString()


def single(payload: bytes) -> bytes:
    return processor_pb2.TpProcessRequest(
        header_bytes=HEADER, payload=payload, signature="ab" * 64, context_id="one"
    ).SerializeToString()


task_contents = st.sampled_from(SCRIPTS).flatmap(
    lambda payload: st.sampled_from([packed("many", payload), single(payload)])
)
messages = st.builds(
    lambda kind, correlation_id, content: Message(
        message_type=kind, correlation_id=correlation_id, content=content
    ).SerializeToString(),
    st.sampled_from([*TASKS, *TASKS, *TASKS, *TASKS.values(), *STATE_ANSWERS]) | st.integers(0, 2**31 - 1),
    st.text(max_size=12),
    mutated(task_contents) | st.binary(max_size=60),
)
parts = st.one_of(messages, messages, mutated(messages), st.binary(max_size=60))
frames = st.lists(st.lists(parts, min_size=1, max_size=2), min_size=2, max_size=16)


@pytest.fixture(scope="module")
def fuzzer() -> Iterator[Fuzzer]:
    made = Fuzzer()
    try:
        yield made
    finally:
        made.close()


@settings(max_examples=300)
@given(frames=frames, state_answer=st.none() | st.binary(max_size=20))
def test_each_task_is_answered_once_whatever_stands_around_it(
    fuzzer: Fuzzer, frames: list[list[bytes]], state_answer: bytes | None
) -> None:
    asked: Counter[tuple[int, str]] = Counter(
        [(int(Message.PACKED_PROCESS_RESPONSE), LAST), (int(Message.PING_RESPONSE), LAST)]
    )
    for parts in frames:
        try:
            message = Message.FromString(parts[-1])
        except Exception:  # The frame is not a message, so no answer is due.
            continue
        if message.message_type in TASKS:
            asked[int(TASKS[message.message_type]), message.correlation_id] += 1
        elif message.message_type == Message.PING_REQUEST:
            asked[int(Message.PING_RESPONSE), message.correlation_id] += 1
    # The processor answers the valid task after all others, so no answer can come later.
    assert fuzzer.run(frames, state_answer) == asked
    assert fuzzer.registrations == 1, "its connection did not stand"
