"""The running processor with validators on real sockets: one for 1.x only, and one for packed execution."""

import logging
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from processor_sdk import Context, Transaction
from processor_sdk.runtime import TransactionProcessor
from processor_sdk.worker import connection, serving
from protos import packed_pb2, processor_pb2, state_context_pb2, validator_pb2
from tests.processor_sdk.router import WAIT_MS, Validator
from tests.processor_sdk.scripts import (
    FAMILY,
    INVALID,
    NAMESPACE,
    OK,
    VERSION,
    ScriptHandler,
    Spec,
    address,
    packed_request,
)
from tests.system.independent.bare_validator import BareValidator, Verdict

A, B = address(1), address(2)
Message = validator_pb2.Message


class GatedHandler(ScriptHandler):
    """Signals the beginning of an apply, and waits until the test lets the apply continue."""

    def __init__(self) -> None:
        self.applied: list[str] = []
        self.begun = threading.Event()
        self.let = threading.Event()

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        self.applied.append(transaction.id)
        self.begun.set()
        assert self.let.wait(WAIT_MS / 1000)
        super().apply(transaction, context)


class SecondHandler(ScriptHandler):
    family_version = "2.0"


@pytest.fixture
def start() -> Iterator[Callable[..., TransactionProcessor]]:
    """Runs processors in threads. They are stopped and joined after the test."""
    running: list[tuple[TransactionProcessor, threading.Thread]] = []

    def begin(
        url: str, *handlers: Any, on_ready: Callable[[], None] | None = None, **options: Any
    ) -> TransactionProcessor:
        processor = TransactionProcessor(url, **options)
        for handler in handlers:
            processor.add(handler)
        thread = threading.Thread(target=lambda: processor.run_in_process(on_ready=on_ready))
        thread.start()
        running.append((processor, thread))
        return processor

    yield begin
    for processor, _ in running:
        processor.stop()
    for _, thread in running:
        thread.join(WAIT_MS / 1000)
        assert not thread.is_alive()


Start = Callable[..., TransactionProcessor]


def test_the_1x_conversation(start: Start) -> None:
    with BareValidator() as bare:
        processor = start(bare.url, ScriptHandler(), max_occupancy=7)
        registered = bare.wait_for_registration(FAMILY, VERSION)
        assert (registered.namespaces, registered.max_occupancy) == ((NAMESPACE,), 7)
        assert (registered.protocol_version, registered.header_style) == (1, 2)
        state = {A: b"old"}
        script = [["get", A], ["set", B, "new"], ["delete", A], ["event", "happened"]]
        for style in ("RAW", "EXPANDED", "BOTH"):
            verdict = process(bare, Spec((A, B), (A, B), script), dict(state), style)
            assert verdict.status == OK, verdict.message
            assert (verdict.sets, verdict.deletes) == ({B: b"new"}, frozenset({A}))
            assert verdict.receipt_data == (b"data old", b"held")
            assert [event.event_type for event in verdict.events] == ["happened"]
            assert [(access.kind, access.granted) for access in verdict.accesses] == [
                ("get", True),
                ("set", True),
                ("delete", True),
            ]
        verdict = process(bare, Spec((), (), [["get", A]]), state)
        assert (verdict.status, verdict.accesses) == (INVALID, ())
        assert process(bare, Spec((), (), [["invalid", "no"]]), state).extended_data == b"extended"
        processor.stop()
        bare.wait_for_unregistration()
        assert not bare.malformed
        assert not bare.unknown


def process(bare: BareValidator, spec: Spec, state: dict[str, bytes], style: Any = None) -> Verdict:
    return bare.process(spec.header_bytes(), spec.payload(), spec.transaction_id(), state, style)


def test_a_ping_is_answered_while_an_apply_runs(start: Start) -> None:
    handler = GatedHandler()
    with BareValidator() as bare:
        start(bare.url, handler)
        registered = bare.wait_for_registration(FAMILY, VERSION)
        spec = Spec((), (), [])
        future = bare.submit(spec.header_bytes(), spec.payload(), spec.transaction_id(), {})
        assert handler.begun.wait(WAIT_MS / 1000)
        assert len(bare.ping(registered.identity).running) == 1
        handler.let.set()
        assert future.result(WAIT_MS / 1000).ok


def test_tasks_that_come_during_a_state_call_wait_their_turn(start: Start, validator: Validator) -> None:
    start(validator.url, ScriptHandler())
    validator.accept()
    validator.single("first", Spec((A,), (), [["get", A]]))
    get = validator.receive(Message.TP_STATE_GET_REQUEST)
    validator.single("second", Spec((), (), []))
    validator.send(Message.TP_STATE_GET_RESPONSE, "nobody's", b"rubbish")
    validator.reply(
        get, state_context_pb2.TpStateGetResponse(status=state_context_pb2.TpStateGetResponse.OK).SerializeToString()
    )
    add = validator.receive(Message.TP_RECEIPT_ADD_DATA_REQUEST)
    assert state_context_pb2.TpReceiptAddDataRequest.FromString(add.content).data == b"none"
    validator.reply(
        add,
        state_context_pb2.TpReceiptAddDataResponse(
            status=state_context_pb2.TpReceiptAddDataResponse.OK
        ).SerializeToString(),
    )
    assert validator.verdict("first") == OK
    assert validator.verdict("second") == OK


def test_packed_execution_with_a_fetch(start: Start, validator: Validator) -> None:
    start(validator.url, ScriptHandler())
    request = validator.accept()
    assert (request.packed_version, request.request_header_style) == (2, processor_pb2.TpRegisterRequest.RAW)
    units = [[Spec((A,), (A,), [["set", A, "new"]])], [Spec(("aaaaaa",), (), [["get", A], ["get", B]])]]
    validator.send(Message.PACKED_PROCESS_REQUEST, "task", packed_request(units, {A: b"old"}))
    get = validator.receive(Message.TP_STATE_GET_REQUEST)
    asked = state_context_pb2.TpStateGetRequest.FromString(get.content)
    assert (asked.context_id, list(asked.addresses)) == ("ctx:1", [B])
    reply = state_context_pb2.TpStateGetResponse(status=state_context_pb2.TpStateGetResponse.OK)
    reply.entries.add(address=B, data=b"b")
    validator.reply(get, reply.SerializeToString())
    answer = validator.receive(Message.PACKED_PROCESS_RESPONSE)
    response = packed_pb2.PackedProcessResponse.FromString(answer.content)
    assert answer.correlation_id == "task"
    assert list(response.units[1].results[0].data) == [b"data new", b"data b"]


def test_a_refused_registration_says_why_and_is_tried_again(
    start: Start, validator: Validator, caplog: pytest.LogCaptureFixture
) -> None:
    ready = threading.Event()
    caplog.set_level(logging.ERROR, "processor_sdk.worker.connection")
    start(validator.url, ScriptHandler(), SecondHandler(), on_ready=ready.set)
    refusal = processor_pb2.TpRegisterResponse(status=processor_pb2.TpRegisterResponse.ERROR, message="not permitted")
    validator.reply(validator.receive(Message.TP_REGISTER_REQUEST), refusal.SerializeToString())
    assert validator.accept().version == "2.0"
    other_protocol = processor_pb2.TpRegisterResponse(status=processor_pb2.TpRegisterResponse.OK, protocol_version=2)
    validator.reply(validator.receive(Message.TP_REGISTER_REQUEST), other_protocol.SerializeToString())
    validator.reply(validator.receive(Message.TP_REGISTER_REQUEST), b"\xff")
    assert not ready.is_set()
    assert validator.accept().version == "1.0"
    assert ready.wait(WAIT_MS / 1000)
    messages = [record.getMessage() for record in caplog.records]
    assert "registration of script 1.0 refused: not permitted" in messages[0]
    assert "protocol version 2" in messages[1]
    assert "no TpRegisterResponse" in messages[2]


def test_waiting_for_a_missing_validator_is_logged_once(
    start: Start, validator: Validator, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: queue.Queue[str] = queue.Queue()

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno == logging.WARNING and record.getMessage().startswith("waiting"):
                told.put(record.getMessage())

    ear = Ear()
    monkeypatch.setattr(connection, "OVERDUE_S", 0.05)
    logging.getLogger("processor_sdk.worker.connection").addHandler(ear)
    waiting = f"waiting for the validator at {validator.url}"
    try:
        validator.close()
        processor = start(validator.url, ScriptHandler())
        assert told.get(timeout=WAIT_MS / 1000) == waiting
        there = Validator(validator.url)
        try:
            there.accept()
        finally:
            there.close()
        assert told.get(timeout=WAIT_MS / 1000) == waiting
        processor.stop()
        assert told.empty()
    finally:
        logging.getLogger("processor_sdk.worker.connection").removeHandler(ear)


def test_after_a_lost_connection_nothing_of_the_old_one_is_answered(start: Start, validator: Validator) -> None:
    ready: list[str] = []
    handler = GatedHandler()
    handler.let.set()
    start(validator.url, handler, on_ready=lambda: ready.append("ready"))
    validator.accept()
    validator.single("awaits state", Spec((A,), (), [["get", A]]))
    validator.single("waits", Spec((), (), []))
    validator.receive(Message.TP_STATE_GET_REQUEST)
    old_peer = validator.peer
    validator.close()
    again = Validator(validator.url)
    try:
        again.accept()
        assert again.peer != old_peer
        again.single("new", Spec((), (), []))
        assert again.verdict("new") == OK
        assert ready == ["ready"]
        assert handler.applied == ["awaits state", "new"]
    finally:
        again.close()


def test_the_verdict_of_an_apply_that_outlived_its_connection_is_dropped(start: Start, validator: Validator) -> None:
    handler = GatedHandler()
    start(validator.url, handler)
    validator.accept()
    validator.single("old", Spec((), (), []))
    validator.single("waits", Spec((), (), []))
    validator.send(Message.PING_REQUEST, "ping")
    validator.receive(Message.PING_RESPONSE)
    assert handler.begun.wait(WAIT_MS / 1000)
    validator.close()
    again = Validator(validator.url)
    try:
        again.accept()
        handler.let.set()
        again.single("new", Spec((), (), []))
        assert again.verdict("new") == OK
        assert handler.applied == ["old", "new"]
    finally:
        again.close()


def test_stop_unregisters_first_and_finishes_what_is_in_flight(start: Start, validator: Validator) -> None:
    handler = GatedHandler()
    processor = start(validator.url, handler)
    validator.accept()
    validator.single("running", Spec((), (), []))
    validator.single("waiting", Spec((), (), []))
    assert handler.begun.wait(WAIT_MS / 1000)
    processor.stop()
    processor.stop()
    validator.release()
    handler.let.set()
    assert validator.verdict("running") == OK
    assert validator.verdict("waiting") == OK
    validator.part()


def test_a_batch_in_progress_is_finished_after_stop(start: Start, validator: Validator) -> None:
    """In the 1.x conversation, a batch's next transaction is sent only after the answer to the one before."""
    handler = GatedHandler()
    processor = start(validator.url, handler)
    validator.accept()
    validator.single("first of three", Spec((), (), []))
    assert handler.begun.wait(WAIT_MS / 1000)
    processor.stop()
    validator.release()
    handler.let.set()
    for before, following in (("first of three", "second"), ("second", "third")):
        assert validator.verdict(before) == OK
        ping = validator.receive(Message.PING_REQUEST)
        validator.single(following, Spec((), (), []))
        validator.reply(ping)
    assert validator.verdict("third") == OK
    validator.part()


def test_rubbish_from_the_validator_is_dropped(start: Start, validator: Validator) -> None:
    start(validator.url, ScriptHandler())
    validator.accept()
    validator._router.send_multipart([validator.peer, b"\xff\xff"])
    validator._router.send_multipart([validator.peer, b""])
    validator.send(Message.CLIENT_STATUS_GET_RESPONSE, "?", b"x")
    validator.send(Message.TP_REGISTER_RESPONSE, "?", b"x")
    validator.send(Message.TP_UNREGISTER_RESPONSE, "?", b"x")
    validator.send(Message.PING_REQUEST, "ping")
    assert validator.receive(Message.PING_RESPONSE).correlation_id == "ping"
    validator.single("task", Spec((), (), []))
    assert validator.verdict("task") == OK


def test_sigterm_drains_and_returns(validator: Validator) -> None:
    handler = GatedHandler()
    verdicts: list[int] = []

    def play() -> None:
        validator.accept()
        validator.single("task", Spec((), (), []))
        assert handler.begun.wait(WAIT_MS / 1000)
        os.kill(os.getpid(), signal.SIGTERM)
        validator.release()
        handler.let.set()
        verdicts.append(validator.verdict("task"))
        validator.part()

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=play)
    thread.start()
    TransactionProcessor(validator.url).add(handler).run_in_process()
    thread.join()
    assert verdicts == [OK]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_signal_ends_an_apply_at_once(validator: Validator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "ONE_SIGNAL_S", 0.0)
    handler = GatedHandler()
    main = threading.get_ident()

    def play() -> None:
        validator.accept()
        validator.single("task", Spec((), (), []))
        assert handler.begun.wait(WAIT_MS / 1000)
        signal.pthread_kill(main, signal.SIGINT)
        validator.release()
        signal.pthread_kill(main, signal.SIGTERM)

    thread = threading.Thread(target=play)
    thread.start()
    TransactionProcessor(validator.url).add(handler).run_in_process()
    thread.join()
    assert not handler.let.is_set()


def test_stop_before_run_and_without_a_validator() -> None:
    processor = TransactionProcessor("tcp://127.0.0.1:9").add(ScriptHandler())
    processor.stop()
    processor.run_in_process()
    processor.stop()


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match="no handler"):
        TransactionProcessor("tcp://127.0.0.1:9").run_in_process()
    with pytest.raises(ValueError, match="max_occupancy is 0"):
        TransactionProcessor("tcp://127.0.0.1:9", max_occupancy=0)
    with pytest.raises(ValueError, match="url is 'nonsense'; it must be tcp://HOST:PORT"):
        TransactionProcessor("nonsense")
