"""A processor with worker processes and a validator on a real socket: real processes, real signals."""

import functools
import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from processor_sdk.runtime import CannotStart, TransactionProcessor
from processor_sdk.sawtooth import adapted
from processor_sdk.worker import supervisor
from processor_sdk.worker.serving import ONE_SIGNAL_S
from protos import packed_pb2, processor_pb2
from tests.processor_sdk.router import WAIT_MS, Message, Validator
from tests.processor_sdk.running import Start, started_script
from tests.processor_sdk.scripts import FAMILY, INTERNAL, OK, VERSION, Spec, packed_request
from tests.processor_sdk.worker import worker_family
from tests.processor_sdk.worker.worker_family import WorkerHandler
from tests.system.independent.bare_validator import BareValidator

pytestmark = pytest.mark.timeout(60)
SLEEP, GIL = (Spec((), (), [word]) for word in ("sleep", "gil"))


def test_each_worker_registers_over_a_connection_of_its_own_and_unregisters(start: Start, validator: Validator) -> None:
    running = start(workers=2, max_occupancy=7, stop_s_max=10)
    peers = set()
    for _ in range(2):
        assert validator.accept().max_occupancy == 7
        peers.add(validator.peer)
    assert len(peers) == 2
    report = running.wait(lambda report: report.registered == 2)
    assert len({entry.pid for entry in report.workers} | {os.getpid()}) == 3
    running.stop()
    for _ in range(2):
        validator.release()
    running.join()


def test_a_worker_that_is_killed_is_replaced_and_keeps_its_counts(start: Start, validator: Validator) -> None:
    running = start()
    validator.accept()
    first = validator.peer
    validator.single("done", Spec((), (), []))
    assert validator.verdict("done") == OK
    report = running.wait(
        lambda report: bool(report.workers[0].counts) and report.workers[0].counts[FAMILY, VERSION].ok == 1
    )
    pid = report.workers[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    validator.accept()
    assert validator.peer != first
    (worker,) = running.wait(lambda report: report.registered == 1 and report.workers[0].pid != pid).workers
    assert (worker.restarts, worker.counts[FAMILY, VERSION].ok) == (1, 1)


def test_an_apply_over_its_limit_is_refused_and_its_worker_replaced(start: Start, validator: Validator) -> None:
    running = start(apply_timeout_ms=100)
    validator.accept()
    validator.single("slow", SLEEP)
    answer = validator.receive(Message.TP_PROCESS_RESPONSE)
    response = processor_pb2.TpProcessResponse.FromString(answer.content)
    assert (answer.correlation_id, response.status) == ("slow", INTERNAL)
    assert response.message == "apply of script 1.0 took longer than 100 ms"
    validator.accept()
    validator.send(Message.PACKED_PROCESS_REQUEST, "packed", packed_request([[SLEEP]], {}))
    answer = validator.receive(Message.PACKED_PROCESS_RESPONSE)
    (result,) = packed_pb2.PackedProcessResponse.FromString(answer.content).units[0].results
    assert (result.status, result.message) == (INTERNAL, "apply of script 1.0 took longer than 100 ms")
    validator.accept()
    (worker,) = running.wait(lambda report: report.workers[0].restarts == 2).workers
    assert worker.counts[FAMILY, VERSION].error == 2


def test_workers_serve_a_validator_that_knows_1x_only(start: Start) -> None:
    with BareValidator() as bare:
        running = start(url=bare.url, workers=2, max_occupancy=3, apply_timeout_ms=200, stop_s_max=10)
        running.wait(lambda report: report.registered == 2)
        registered = bare.wait_for_registration(FAMILY, VERSION)
        assert registered.max_occupancy == 3
        for spec, status, message in ((Spec((), (), []), OK, ""), (SLEEP, INTERNAL, "took longer than 200 ms")):
            verdict = bare.process(spec.header_bytes(), spec.payload(), spec.transaction_id(), {})
            assert verdict.status == status
            assert message in verdict.message
        running.wait(lambda report: report.registered == 2 and any(entry.restarts for entry in report.workers))
        running.stop()
        bare.wait_for_unregistration()
        running.join()
        assert not bare.malformed
        assert not bare.unknown


def test_a_late_message_of_several_transactions_is_not_answered(start: Start, validator: Validator) -> None:
    start(apply_timeout_ms=100)
    validator.accept()
    fine = Spec((), (), [])
    validator.send(Message.PACKED_PROCESS_REQUEST, "packed", packed_request([[fine], [SLEEP], [fine]], {}))
    validator.accept()


def test_an_apply_that_keeps_the_interpreter_to_itself_is_aborted(
    start: Start, validator: Validator, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(supervisor, "BEAT_MARGIN_S", 0.5)
    start(apply_timeout_ms=500)
    validator.accept()
    validator.single("held", GIL)
    validator.accept()
    said = capfd.readouterr().err
    assert "Fatal Python error: Aborted" in said
    assert "worker_family.py" in said


def test_a_worker_that_ends_itself_is_replaced(start: Start, validator: Validator) -> None:
    start()
    validator.accept()
    validator.single("last", Spec((), (), ["exit", "9"]))
    validator.accept()


@pytest.mark.parametrize("spec", [SLEEP, GIL], ids=["sleeps", "holds the interpreter"])
def test_stopping_has_a_bound(start: Start, validator: Validator, spec: Spec) -> None:
    running = start(stop_s_max=0.2)
    validator.accept()
    validator.single("slow", spec)
    running.stop()
    running.join()


def test_a_limit_of_memory_fails_the_apply_alone(start: Start, validator: Validator) -> None:
    start(memory_mib_max=2048)
    validator.accept()
    validator.single("large", Spec((), (), ["memory", str(2**32)]))
    answer = validator.receive(Message.TP_PROCESS_RESPONSE)
    response = processor_pb2.TpProcessResponse.FromString(answer.content)
    assert (response.status, response.message) == (INTERNAL, "MemoryError: ")
    validator.single("small", Spec((), (), []))
    assert validator.verdict("small") == OK


def test_what_an_apply_says_carries_its_fields(start: Start, validator: Validator, tmp_path: Path) -> None:
    start({"configure_logging": functools.partial(worker_family.log_to, tmp_path / "log")})
    validator.accept()
    validator.send(Message.PACKED_PROCESS_REQUEST, "task", packed_request([[Spec((), (), ["speak"])]], {}))
    validator.receive(Message.PACKED_PROCESS_RESPONSE)
    lines = [line.split("|") for line in (tmp_path / "log").read_text().splitlines()]
    said = {(name, message[:20]): fields for _, name, message, *fields in lines}
    of_the_apply = ["ab" * 64, "ba" * 64, FAMILY, VERSION, "0"]
    for record in (("stdout", "printed"), ("stdout", "in two lines"), ("stdout", "no end"), ("author", "logged")):
        assert said[record] == of_the_apply
    assert said["stdout", "long " * 4] == of_the_apply
    printed = "".join(message for _, name, message, *_ in lines if name == "stdout")
    assert printed.endswith("long " * 5000 + "cut " * 5000)
    assert [fields for (name, _), fields in said.items() if name == "processor_sdk.worker.connection"] == [
        ["-"] * 4 + ["0"]
    ]


def test_handlers_that_cannot_be_pickled_are_refused(validator: Validator) -> None:
    processor = TransactionProcessor(validator.url).add(worker_family.Unpicklable())
    with pytest.raises(TypeError, match=r"the handler Unpicklable cannot be given to a worker process: .*lambda"):
        processor.run()
    processor = TransactionProcessor(validator.url).add(*adapted(worker_family.OldUnpicklable()))
    with pytest.raises(TypeError, match="the handler OldUnpicklable cannot be given"):
        processor.run()
    options: list[tuple[str, Any]] = [
        ("workers", 0), ("apply_timeout_ms", 0), ("stop_s_max", -1), ("memory_mib_max", 255),
    ]  # fmt: skip
    for option, value in options:
        with pytest.raises(ValueError, match=f"{option} is {value}; it must be from"):
            TransactionProcessor(validator.url, **{option: value})


def die() -> None:
    os._exit(4)


def test_workers_that_do_not_start_end_the_run(validator: Validator) -> None:
    processor = TransactionProcessor(validator.url, workers=2).add(WorkerHandler())
    with pytest.raises(CannotStart, match="a worker ended with exit code 4 before it could serve"):
        processor.run(configure_logging=die)


def test_a_script_without_its_guard_is_refused_with_the_correction(validator: Validator, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from processor_sdk.runtime import TransactionProcessor\n"
        "from tests.processor_sdk.worker.worker_family import WorkerHandler\n"
        f"TransactionProcessor({validator.url!r}).add(WorkerHandler()).run()\n"
    )
    with started_script(str(script)) as process:
        said = process.communicate(timeout=WAIT_MS / 1000)[1]
    assert process.returncode == 1
    assert "CannotStart: each worker imports the script that runs the processor" in said
    assert 'if __name__ == "__main__":' in said


@pytest.fixture(params=[worker_family.DAY_S])
def script(request: pytest.FixtureRequest, validator: Validator) -> Iterator["subprocess.Popen[str]"]:
    """A registered processor, run as a script. The parameter is the number of seconds that it may take to stop."""
    process = started_script("-m", "tests.processor_sdk.worker.worker_family", validator.url, str(request.param))
    with process:
        validator.accept()
        yield process
        process.kill()


def test_workers_end_with_their_supervisor(validator: Validator, script: "subprocess.Popen[str]") -> None:
    script.kill()
    validator.release()
    # The worker holds the other end of stderr, which closes when the worker ends.
    assert script.communicate(timeout=WAIT_MS / 1000)


@pytest.mark.parametrize("script", [0.1], indirect=True)
def test_a_worker_without_a_supervisor_ends_within_the_bound(
    validator: Validator, script: "subprocess.Popen[str]"
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gate:
        validator.single("held", Spec((), (), ["hold", str(gate.getsockname()[1])]))
        held, _ = gate.accept()
        with held:
            script.kill()
            held.settimeout(WAIT_MS / 1000)
            assert held.recv(1) == b""


def test_a_signal_ends_in_order_and_a_second_one_at_once(validator: Validator, script: "subprocess.Popen[str]") -> None:
    with socket.create_server(("127.0.0.1", 0)) as gate:
        validator.single("held", Spec((), (), ["hold", str(gate.getsockname()[1])]))
        held, _ = gate.accept()
        with held:
            script.send_signal(signal.SIGTERM)
            validator.release()
            # Signals that arrive at the same time count as one.
            while not select.select([held], [], [], ONE_SIGNAL_S)[0]:
                script.send_signal(signal.SIGTERM)
            assert held.recv(1) == b""
    assert script.wait(WAIT_MS / 1000) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_that_come_at_once_let_what_is_in_flight_finish(
    validator: Validator, script: "subprocess.Popen[str]", number: signal.Signals
) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("these tests were started so that this signal is ignored (nohup), and so is what they start")
    with socket.create_server(("127.0.0.1", 0)) as gate:
        validator.single("held", Spec((), (), ["hold", str(gate.getsockname()[1])]))
        held, _ = gate.accept()
        for _ in range(3):
            # The signal goes to the whole process group, as a terminal sends it, or to the process alone.
            os.killpg(script.pid, number)
            script.send_signal(number)
        validator.release()
        held.close()
    assert validator.verdict("held") == OK
    validator.part()
    assert script.wait(WAIT_MS / 1000) == 0
