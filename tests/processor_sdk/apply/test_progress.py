"""The progress of applies as other threads see it, with a clock that the test moves."""

import io
import logging
import os
import threading
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import pytest

from processor_sdk.apply.progress import ApplyFields, Applying, Progress, Task
from processor_sdk.worker.process import StdoutLines
from processor_sdk.worker.watch import Beat, Watch
from protos import processor_pb2, validator_pb2

FAMILY = ("f", "1")
OK, INVALID = processor_pb2.TpProcessResponse.OK, processor_pb2.TpProcessResponse.INVALID_TRANSACTION


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def begun(clock: Clock) -> Progress:
    progress = Progress([FAMILY], clock)
    progress.begin("t", "b", FAMILY, True, clock.now)
    return progress


def test_an_apply_is_over_time_when_it_has_run_longer_than_its_limit(clock: Clock) -> None:
    progress = begun(clock)
    assert progress.overtime(100.5, 0.5) is None
    late = progress.overtime(100.75, 0.5)
    assert late is not None
    assert late.fields() == {"transaction": "t", "batch": "b", "family": "f", "version": "1"}
    progress.end(OK)
    assert progress.overtime(1000.0, 0.5) is None


def test_what_an_apply_waits_for_the_validator_is_not_its_own_time(clock: Clock) -> None:
    progress = begun(clock)
    clock.now = 100.25
    own_s = progress.wait_begins()
    assert progress.overtime(1000.0, 0.5) is None
    clock.now = 900.0
    progress.wait_ended(own_s)
    assert progress.overtime(900.25, 0.5) is None
    assert progress.overtime(900.5, 0.5) is not None
    clock.now = 900.25
    progress.end(INVALID)
    counts = progress.counts()[FAMILY]
    assert (counts.ok, counts.invalid, counts.error, counts.seconds) == (0, 1, 0, 0.5)


def test_applies_are_counted_by_verdict_and_duration(clock: Clock) -> None:
    progress = Progress([FAMILY], clock)
    for took_s in (0.0, 0.0625, 100.0):
        progress.begin("t", "b", FAMILY, False, clock.now)
        clock.now += took_s
        assert progress.end(OK) == clock.now
    progress.begin("t", "b", ("another", "1"), False, clock.now)
    progress.end(OK)
    progress.end(OK)
    counts = progress.counts()
    assert counts.keys() == {FAMILY}
    assert (counts[FAMILY].ok, counts[FAMILY].seconds) == (3, 100.0625)
    assert counts[FAMILY].buckets == (1, 0, 0, 1, 0, 0, 1)
    assert counts[FAMILY].plus(counts[FAMILY]).buckets == (2, 0, 0, 2, 0, 0, 2)


class Interrupted(Progress):
    """Runs ``meanwhile``, which stands for the apply thread, right after another thread has read the current apply."""

    meanwhile: Callable[[], None] | None = None

    @property
    def current(self) -> Applying | None:
        seen = super().current
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return seen


@pytest.fixture
def ends() -> Iterator[tuple["Connection[Any, Any]", "Connection[Any, Any]"]]:
    """The two ends of a pipe: the supervisor's and the worker's."""
    supervisors, workers = Pipe()
    with supervisors, workers:
        yield supervisors, workers


Ends = tuple["Connection[Any, Any]", "Connection[Any, Any]"]


def test_a_wait_that_ends_during_a_check_makes_no_apply_late(clock: Clock, ends: Ends) -> None:
    progress = Interrupted([FAMILY], clock)
    watch = Watch(ends[1], progress, limit_ms=500, stop_s_max=1)
    progress.begin("t", "b", FAMILY, True, clock.now)
    own_s = progress.wait_begins()
    clock.now = 160.0
    progress.meanwhile = lambda: progress.wait_ended(own_s)
    assert progress.overtime(clock.now, 0.5) is None
    own_s = progress.wait_begins()
    clock.now = 220.0
    watch.beat(clock.now, registered=True, in_flight=1)
    progress.meanwhile = lambda: progress.wait_ended(own_s)
    assert watch.next_at() == 220.5


def task(name: str, generation: int = 7) -> Task:
    return Task(generation, validator_pb2.Message.TP_PROCESS_REQUEST, name, b"")


class Meanwhile(logging.Handler):
    """Runs ``moves``, which stands for the apply thread, while a log record is written."""

    def __init__(self, moves: Callable[[], None]) -> None:
        super().__init__()
        self.moves = moves

    def emit(self, record: logging.LogRecord) -> None:
        self.moves()


@pytest.mark.parametrize("ended", [False, True], ids=["still runs", "ended meanwhile"])
def test_the_late_apply_is_refused_and_not_the_next_one(clock: Clock, ends: Ends, ended: bool) -> None:
    progress = Progress([FAMILY], clock)
    watch = Watch(ends[1], progress, limit_ms=500, stop_s_max=1)
    progress.task = task("slow")
    progress.begin("slow", "b", FAMILY, True, clock.now)
    clock.now += 0.75

    def moves() -> None:
        if ended:
            progress.end(OK)
            progress.task = task("innocent")
            progress.begin("innocent", "b", FAMILY, True, clock.now)
        else:
            progress.wait_ended(progress.wait_begins())

    handler = Meanwhile(moves)
    logger = logging.getLogger("processor_sdk.worker.watch")
    logger.addHandler(handler)
    try:
        late = watch.overtime(clock.now)
    finally:
        logger.removeHandler(handler)
    assert late is not None
    refused = watch.refusal(late, 7)
    assert refused is not None
    assert refused[1] == "slow"
    assert progress.current is not None
    assert progress.current.transaction == ("innocent" if ended else "slow")
    watch.beat(clock.now, registered=True, in_flight=2)
    counts = ends[0].recv().counts[FAMILY]
    assert (counts.ok, counts.error, counts.seconds) == ((1, 0, 0.75) if ended else (0, 1, 0.75))


def test_a_task_of_several_or_of_a_lost_connection_is_not_refused(clock: Clock, ends: Ends) -> None:
    progress = Progress([FAMILY], clock)
    watch = Watch(ends[1], progress, limit_ms=500, stop_s_max=1)
    for alone, generation, refused in ((True, 7, True), (True, 8, False), (False, 7, False)):
        progress.task = task("slow")
        progress.begin("slow", "b", FAMILY, alone, clock.now)
        late = watch.overtime(clock.now + 0.75)
        assert late is not None
        assert (watch.refusal(late, generation) is not None) is refused


def test_an_unread_beat_does_not_block(clock: Clock, ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = ends[1]
    said: list[Beat] = []
    monkeypatch.setattr(workers, "send", said.append)
    watch = Watch(workers, Progress([FAMILY], clock), limit_ms=500, stop_s_max=1)
    watch.beat(clock.now, registered=True, in_flight=0)
    os.set_blocking(workers.fileno(), False)
    filled_bytes = 2**24
    assert os.write(workers.fileno(), bytes(filled_bytes)) < filled_bytes
    watch.beat(clock.now, registered=True, in_flight=0)
    assert len(said) == 1


def test_only_records_of_the_apply_thread_get_the_missing_fields(clock: Clock) -> None:
    progress = begun(clock)
    progress.thread = threading.get_ident()
    fields = ApplyFields(progress, 3)

    def record(**given: object) -> dict[str, object]:
        made = logging.makeLogRecord({"msg": "m", "thread": threading.get_ident(), **given})
        assert fields.filter(made)
        return {name: value for name, value in vars(made).items() if name in ("batch", "family", "worker")}

    assert record() == {"batch": "b", "family": "f", "worker": 3}
    assert record(family="the author's own") == {"batch": "b", "family": "the author's own", "worker": 3}
    assert record(thread=0) == {"worker": 3}
    progress.end(OK)
    assert record() == {"worker": 3}


def test_a_log_to_stdout_does_not_loop(caplog: pytest.LogCaptureFixture) -> None:
    beneath = io.StringIO()
    stdout = StdoutLines(beneath).text()
    logger = logging.getLogger("stdout")
    handler = logging.StreamHandler(stdout)
    logger.addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, "stdout"):
            print("once", file=stdout)
    finally:
        logger.removeHandler(handler)
    assert caplog.messages == ["once"]
    assert beneath.getvalue() == "once\n"
    with pytest.raises(TypeError, match="must be str, not bytes"):
        stdout.write(b"")  # type: ignore[arg-type]
