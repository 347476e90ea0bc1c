"""An address that is not set is answered and read as in Sawtooth 1.x; so is an entry without bytes.

Commands, HTTP and ZeroMQ frames only. The 1.x peers are written out here, with what release 1.0.5 sends.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from tests.system.e2e.clients import Api, Author
from tests.system.e2e.network import INTKEY, Network
from tests.system.e2e.process import DEADLINE_S, Process
from tests.system.e2e.script_family import HANDLER, NAMESPACE, ScriptHandler, address, script
from tests.system.independent import protobuf_wire as wire
from tests.system.independent.bare_processor import BareProcessor, ProcessRequest, StateAccess
from tests.system.independent.client import Transaction, intkey_address
from tests.system.independent.messages import (
    Message,
    MessageType,
    ProcessStatus,
    Status,
    decode_entries,
    encode_entries,
)

AUTHOR = Author("unset address")
ONE, TWO = address("unset one"), address("unset two")
BOTH = {"inputs": [ONE, TWO], "outputs": [ONE, TWO]}


class OldValidator:
    """Release 1.0.5 as a processor sees it: no protocol_version, and an entry without data for what is not set.

    ``statuses``: whether an answer to a state request has its status. No 1.x SDK misses an absent one.
    """

    def __init__(self, *, statuses: bool) -> None:
        self._status = [(2, int(Status.OK))] if statuses else []
        self._router: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
        self.url = f"tcp://127.0.0.1:{self._router.bind_to_random_port('tcp://127.0.0.1')}"
        self._processor = b""
        self.registrations = 0
        self.state: dict[str, bytes] = {}

    def close(self) -> None:
        self._router.close(0)

    def await_registration(self) -> None:
        self._serve(MessageType.TP_REGISTER_REQUEST)

    def process(self, transaction: Transaction) -> tuple[int, str]:
        """Have a transaction applied. Returns status and message."""
        fields = [(1, transaction.header_bytes), (2, transaction.payload), (3, transaction.id), (4, "context")]
        self._send(Message(MessageType.TP_PROCESS_REQUEST, "apply", wire.encode(fields)))  # type: ignore[arg-type]
        answer = wire.decode(self._serve(MessageType.TP_PROCESS_RESPONSE).content)
        return wire.get_int(answer, 1), wire.get_text(answer, 2)

    def _serve(self, until: MessageType) -> Message:
        """Answer messages until one of type ``until`` has come."""
        ends = time.monotonic() + DEADLINE_S
        while self._router.poll(max(0, int((ends - time.monotonic()) * 1000))):
            self._processor, raw = self._router.recv_multipart()
            message = Message.decode(raw)
            content = self._answer(message.message_type, wire.decode(message.content))
            if content is not None:
                self._send(Message(message.message_type + 1, message.correlation_id, content))
            if message.message_type == until:
                return message
        raise TimeoutError(f"no {until.name} in {DEADLINE_S} s")

    def _answer(self, kind: int, fields: wire.Fields) -> bytes | None:
        if kind == MessageType.TP_REGISTER_REQUEST:
            self.registrations += 1
            return wire.encode([(1, int(Status.OK))])
        if kind == MessageType.TP_STATE_GET_REQUEST:
            entries = [(leaf, self.state.get(leaf, b"")) for leaf in wire.get_all_text(fields, 2)]
            return wire.encode([*wire.repeated(1, encode_entries(entries)), *self._status])
        if kind == MessageType.TP_STATE_SET_REQUEST:
            self.state.update(written := dict(decode_entries(wire.get_all_bytes(fields, 2))))
            return wire.encode([*wire.repeated(1, written), *self._status])
        return b"" if kind == MessageType.PING_REQUEST else None

    def _send(self, message: Message) -> None:
        self._router.send_multipart([self._processor, message.encode()])


@pytest.mark.parametrize("statuses", [True, False])
def test_our_intkey_judges_at_a_validator_of_release_1_0_as_here(statuses: bool) -> None:
    validator = OldValidator(statuses=statuses)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DOVETAIL_")}
    words = [sys.executable, "-m", "dovetail", "processor", INTKEY, "--connect", validator.url]
    process = Process("intkey", words, kept)
    try:
        validator.await_registration()
        verdicts = [validator.process(AUTHOR.intkey(verb, "n", 1)) for verb in ("inc", "set", "set", "inc")]
        invalid = ProcessStatus.INVALID_TRANSACTION
        assert [status for status, _ in verdicts] == [invalid, ProcessStatus.OK, invalid, ProcessStatus.OK], verdicts
        assert validator.state == {intkey_address("n"): b"\xa1\x61n\x02"}
        assert validator.registrations == 1, process.text
    finally:
        # A processor whose connection is closed waits for no answer to its unregistration.
        validator.close()
        process.close()


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    made = Network(tmp_path)
    try:
        made.parts()
        yield made
    finally:
        made.close()


@pytest.fixture
def api(network: Network) -> Iterator[Api]:
    made = Api(network.rest_url)
    try:
        yield made
    finally:
        made.close()


def test_a_1x_processor_is_answered_as_by_1x_and_our_own_reads_the_same(network: Network, api: Api) -> None:
    answers: list[object] = []

    def ask(kind: MessageType, *fields: tuple[int, wire.Value]) -> wire.Fields:
        return wire.decode(processor.request(kind, wire.encode(fields)).content)

    def apply(request: ProcessRequest, _state: StateAccess) -> None:
        context, both = (1, request.context_id), wire.repeated(2, [ONE, TWO])
        (entry,) = encode_entries([(TWO, b"")])
        for kind, fields in (
            (MessageType.TP_STATE_GET_REQUEST, both),
            (MessageType.TP_STATE_SET_REQUEST, [(2, entry)]),
            (MessageType.TP_STATE_GET_REQUEST, both),
            (MessageType.TP_STATE_DELETE_REQUEST, [(2, ONE)]),
        ):
            answer = ask(kind, context, *fields)
            assert wire.get_int(answer, 2) == Status.OK
            got = kind == MessageType.TP_STATE_GET_REQUEST
            answers.append(decode_entries(wire.get_all_bytes(answer, 1)) if got else wire.get_all_text(answer, 1))

    same = script(("expect", TWO, None), ("write", TWO, ""), ("expect", TWO, None), ("remove", ONE, False))
    family = ScriptHandler.family_name
    with BareProcessor(network.validator_url, family, "1.0", [NAMESPACE], apply, timeout=DEADLINE_S) as processor:
        api.commit(AUTHOR.batch(AUTHOR.transaction(family, same, **BOTH)))
        assert processor.failures == []
    nothing = [(ONE, b""), (TWO, b"")]
    assert answers == [nothing, [TWO], nothing, [ONE]]

    network.processor(HANDLER).wait_logged("ready")
    # Clients see the entry without bytes; no transaction does, and it can be removed.
    assert [entry["address"] for entry in api.get("/state", address=NAMESPACE)["data"]] == [TWO]
    assert api.leaf(TWO) == b""
    api.commit(AUTHOR.batch(AUTHOR.transaction(family, script(("expect", TWO, None)), **BOTH)))
    api.commit(AUTHOR.batch(AUTHOR.transaction(family, script(("remove", TWO, False)), **BOTH)))
    assert api.leaf(TWO) is None
    # The conversation and packed execution have the same receipts and roots.
    verified = network.run("chain", "verify", "--data-dir", str(network.data), "--reexecute", "--family", HANDLER)
    assert verified.code == 0, verified
