"""The ends of workers: the supervisor must not be deceived, blocked or ended by them."""

import contextlib
import functools
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from multiprocessing import resource_tracker, spawn
from pathlib import Path
from typing import Any

import psutil
import pytest

from processor_sdk.runtime import Report, TransactionProcessor
from processor_sdk.worker import process as worker
from processor_sdk.worker import slot, supervisor
from processor_sdk.worker.supervisor import Supervisor
from processor_sdk.worker.watch import OVERTIME_EXIT, Beat
from tests.processor_sdk.router import WAIT_MS, Validator
from tests.processor_sdk.running import Start, started_script
from tests.processor_sdk.scripts import OK, Spec
from tests.processor_sdk.worker import worker_family

REPORT_S_MAX = 0.25
pytestmark = pytest.mark.timeout(60)


def pid_of(report: Report) -> int:
    pid = report.workers[0].pid
    assert pid is not None
    return pid


@pytest.fixture
def gate() -> Iterator[socket.socket]:
    """A socket where a handler's child process reports and waits."""
    with socket.create_server(("127.0.0.1", 0)) as opened:
        opened.settimeout(WAIT_MS / 1000)
        yield opened


def kill(report: Report, number: signal.Signals | int = signal.SIGKILL) -> None:
    os.kill(pid_of(report), number)


def test_the_end_of_a_worker_is_noticed_whatever_its_handler_has_started(
    start: Start, validator: Validator, gate: socket.socket
) -> None:
    running = start()
    validator.accept()
    validator.single("fork", Spec((), (), ["fork", str(gate.getsockname()[1])]))
    assert validator.verdict("fork") == OK
    held, _ = gate.accept()
    with held:
        kill(running.wait(lambda report: report.registered == 1))
        validator.accept()
        running.stop()
        running.join()


def test_the_end_of_a_worker_is_noticed_without_a_descriptor(
    start: Start, validator: Validator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot, "_end_of", lambda process: None)
    running = start()
    validator.accept()
    kill(running.wait(lambda report: report.registered == 1))
    validator.accept()


def test_a_forked_child_that_outlives_its_apply_ends_without_an_answer(
    start: Start, validator: Validator, gate: socket.socket
) -> None:
    start()
    validator.accept()
    validator.single("fork", Spec((), (), ["fork and go on", str(gate.getsockname()[1])]))
    held, _ = gate.accept()
    with held:
        held.settimeout(WAIT_MS / 1000)
        assert held.recv(4) == b"here"
        assert held.recv(1) == b""
    assert validator.verdict("fork") == OK
    validator.single("next", Spec((), (), []))
    assert validator.verdict("next") == OK


def test_a_large_handler_is_served(start: Start, validator: Validator) -> None:
    start(handler=worker_family.Large())
    validator.accept()


def test_a_start_does_not_wait_until_the_worker_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    resource_tracker.ensure_running()
    # This worker ends before it has read its arguments.
    monkeypatch.setattr(spawn, "_python_exe", b"/bin/false")
    with contextlib.closing(worker.SharedBytes.holding(bytes(1024 * 1024))) as shared:
        place = slot.Slot(0)
        place.start(worker.Orders(shared, 1000, 1, None, 0, None))
        assert place.process is not None
        place.process.join()
        assert place.ended()
        place.release()
        assert shared.content() == bytes(1024 * 1024)


@pytest.mark.parametrize(
    ("exit_code", "leaving", "words"),
    [
        (-9, None, "signal SIGKILL"),
        (-35, None, "signal 35"),
        (-63, None, "signal 63"),
        (OVERTIME_EXIT, OVERTIME_EXIT, "exit code 70 (an apply over its time limit)"),
        (OVERTIME_EXIT, None, "exit code 70"),
        (3, None, "exit code 3"),
    ],
)
def test_an_end_is_told_by_its_name(exit_code: int, leaving: int | None, words: str) -> None:
    assert supervisor._how(exit_code, leaving) == words


def test_any_signal_may_end_a_worker(start: Start, validator: Validator) -> None:
    running = start()
    validator.accept()
    kill(running.wait(lambda report: report.registered == 1), signal.SIGRTMIN + 1)
    validator.accept()


@pytest.mark.parametrize("word", ["sleep", "exit"])
def test_only_the_sdk_says_overtime(
    start: Start, validator: Validator, caplog: pytest.LogCaptureFixture, word: str
) -> None:
    running = start(apply_timeout_ms=100 if word == "sleep" else 10_000)
    validator.accept()
    validator.single("last", Spec((), (), [word, str(OVERTIME_EXIT)]))
    running.wait(lambda report: report.workers[0].restarts == 1)
    (said,) = [message for message in caplog.messages if "ended with" in message]
    assert ("ended with exit code 70 (an apply over its time limit)" in said) == (word == "sleep")


def test_a_process_that_cannot_be_started_is_tried_again(
    start: Start, validator: Validator, caplog: pytest.LogCaptureFixture
) -> None:
    running = start()
    validator.accept()
    report = running.wait(lambda report: report.registered == 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        kill(report)
        running.wait(lambda report: "no process can be started for worker 0" in caplog.text)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    validator.accept()


def test_a_worker_that_ignores_its_abort_is_killed(
    start: Start, validator: Validator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "BEAT_MARGIN_S", 0.5)
    monkeypatch.setattr(supervisor, "ABORT_S_MAX", 0.1)
    start(apply_timeout_ms=500)
    validator.accept()
    validator.single("deaf", Spec((), (), ["deaf"]))
    validator.accept()


@pytest.mark.parametrize(("served_s", "counts"), [(0.0, [0, 1, 2, 3]), (60.0, [1, 2, 3])], ids=["served", "not"])
def test_service_alone_resets_the_delay_of_replacements(
    start: Start,
    validator: Validator,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    served_s: float,
    counts: list[int],
) -> None:
    """``served_s``: the service that resets it. The first worker serves, its replacements do not register."""
    monkeypatch.setattr(supervisor, "SERVED_S", served_s)
    failures: list[int] = []
    enough = threading.Event()

    def back_off_s(count: int) -> float:
        failures.append(count)
        if count == 3:
            enough.set()
        return 0.0

    monkeypatch.setattr(supervisor, "back_off_s", back_off_s)
    dying = tmp_path / "dying"
    running = start({"configure_logging": functools.partial(worker_family.die_where, dying)})
    validator.accept()
    report = running.wait(lambda report: report.registered == 1)
    dying.touch()
    kill(report)
    assert enough.wait(WAIT_MS / 1000)
    assert failures[: len(counts)] == counts
    dying.unlink()
    validator.accept()


class Clock:
    """Stands in for the module ``time``."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(supervisor, "time", clock)
    return clock


@pytest.fixture
def watcher() -> Iterator[Supervisor]:
    """A supervisor whose only worker is missing, with an apply limit of 1 s."""
    shared = worker.SharedBytes.holding(b"-")
    waker, wake = socket.socketpair()
    with waker, wake:
        yield Supervisor(worker.Orders(shared, 1000, 1, None, 0, None), 1, wake, None, REPORT_S_MAX)
    shared.close()


def test_a_beat_delays_the_abort_and_cancels_none(watcher: Supervisor, clock: Clock) -> None:
    (place,) = watcher._slots
    place.pipe, other = slot._spawn.Pipe()
    with place.pipe, other:
        for place.aborted, silent_at in ((False, 106.0), (True, 50.0)):
            place.silent_at = 50.0
            other.send(Beat(True, 0, {}))
            watcher._read(place, place.pipe)
            assert place.silent_at == silent_at
        place.pipe = None


def test_beats_that_a_suspended_supervisor_missed_are_no_silence(
    watcher: Supervisor, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place,) = watcher._slots
    place.start_at = None
    watcher._kill_at = 1000.0

    def wait(_ends: Any, timeout_s: float) -> list[Any]:
        clock.now += timeout_s + slept_s
        return []

    monkeypatch.setattr(supervisor, "wait", wait)
    for slept_s, silent_at in ((0.5, 200.0), (60.0, 260.0)):  # noqa: B007 (read by wait)
        place.silent_at = 200.0
        watcher._wait()
        assert place.silent_at == silent_at


def test_the_supervisor_reports_in_time(watcher: Supervisor, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher._kill_at = 1000.0
    waited: list[float] = []

    def wait(_ends: Any, timeout_s: float) -> list[Any]:
        waited.append(timeout_s)
        return []

    monkeypatch.setattr(supervisor, "wait", wait)
    watcher._slots[0].start_at = None
    watcher._wait()
    assert waited == [REPORT_S_MAX]


def test_workers_begin_with_the_signals_blocked_the_first_too(validator: Validator) -> None:
    options = (validator.url, "1")
    with (
        started_script("-m", "tests.processor_sdk.worker.worker_family", *options) as script,
        contextlib.ExitStack() as undo,
    ):
        undo.callback(script.kill)
        validator.accept()
        assert script.stderr is not None
        # When the worker prints this line, it already ignores SIGHUP.
        assert script.stderr.readline() == "blocked: SIGINT SIGTERM\n"


def test_a_blocked_interpreter_ends_soon_after_its_supervisor(validator: Validator, gate: socket.socket) -> None:
    options = (validator.url, "0.1", "500", "2.5")
    with started_script("-m", "tests.processor_sdk.worker.worker_family", *options) as script:
        validator.accept()
        validator.single("held", Spec((), (), ["hold all", str(gate.getsockname()[1])]))
        held, _ = gate.accept()
        with held:
            script.kill()
            held.settimeout(WAIT_MS / 1000)
            assert held.recv(1) == b""
        assert script.stderr is not None
        assert "Timeout (0:00:03)!" in script.stderr.read()


def test_closed_standard_streams_do_not_become_a_workers_pipe(validator: Validator) -> None:
    command = [sys.executable, "-m", "tests.processor_sdk.worker.worker_family", validator.url, "1"]
    shell = subprocess.Popen(["/bin/sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh", *command])
    with shell, contextlib.ExitStack() as undo:
        undo.callback(shell.kill)
        validator.accept()
        validator.single("speak", Spec((), (), ["speak"]))
        assert validator.verdict("speak") == OK
        shell.terminate()
        validator.release()
        assert shell.wait(WAIT_MS / 1000) == 0


def test_a_worker_is_replaced_even_if_sigchld_is_ignored(validator: Validator) -> None:
    """An ignored SIGCHLD survives exec, so a processor may be started with it."""
    script = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN);"
        "os.execv(sys.executable, [sys.executable, '-m', 'tests.processor_sdk.worker.worker_family', *sys.argv[1:]])"
    )
    with started_script("-c", script, validator.url, "1") as process, contextlib.ExitStack() as undo:
        undo.callback(process.kill)
        validator.accept()
        (worker,) = [
            child for child in psutil.Process(process.pid).children() if "spawn_main" in " ".join(child.cmdline())
        ]
        worker.kill()
        validator.accept()
        process.terminate()
        validator.release()
        assert process.wait(WAIT_MS / 1000) == 0


@pytest.mark.parametrize(
    "url",
    [
        "tcp://*:4004",
        "tcp://host:0",
        "tcp://host:65536",
        "tcp://host",
        "tcp://a b:1",
        "tcp://a/b:1",
        "tcp://h:１",
        "ipc://",
    ],
)
def test_malformed_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="it must be tcp://HOST:PORT, PORT from 1 to 65535, or ipc://PATH"):
        TransactionProcessor(url)


@pytest.mark.parametrize("url", ["tcp://[::1]:65535", "tcp://node-1.example:1", "tcp://127.0.0.1:4004", "ipc:///tmp/s"])
def test_urls_that_one_can_connect_to_are_taken(url: str) -> None:
    TransactionProcessor(url)
