"""What is known of applies from outside them, by a clock that the test moves."""

import io
import logging
import threading

import pytest

from processor_sdk.progress import ApplyFields, Progress
from processor_sdk.worker import StdoutLines
from protos import processor_pb2

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
    progress.begin("t", "b", *FAMILY, True)
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
    began = progress.wait_begins()
    assert progress.overtime(1000.0, 0.5) is None
    clock.now = 900.0
    progress.wait_ended(began)
    assert progress.overtime(900.25, 0.5) is None
    assert progress.overtime(900.5, 0.5) is not None
    clock.now = 900.25
    progress.end(INVALID)
    counts = progress.counts()[FAMILY]
    assert (counts.ok, counts.invalid, counts.error, counts.seconds) == (0, 1, 0, 0.5)


def test_applies_are_counted_by_verdict_and_duration(clock: Clock) -> None:
    progress = Progress([FAMILY], clock)
    for took_s in (0.0, 0.0625, 100.0):
        progress.begin("t", "b", *FAMILY, False)
        clock.now += took_s
        progress.end(OK)
    progress.begin("t", "b", "another", "1", False)
    progress.end(OK)
    progress.end(OK)
    counts = progress.counts()
    assert counts.keys() == {FAMILY}
    assert (counts[FAMILY].ok, counts[FAMILY].seconds) == (3, 100.0625)
    assert counts[FAMILY].buckets == (1, 0, 0, 1, 0, 0, 1)
    assert counts[FAMILY].plus(counts[FAMILY]).buckets == (2, 0, 0, 2, 0, 0, 2)


def test_records_of_the_apply_thread_alone_get_the_fields_that_they_lack(clock: Clock) -> None:
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


def test_a_log_that_goes_to_stdout_does_not_go_round(caplog: pytest.LogCaptureFixture) -> None:
    beneath = io.StringIO()
    stdout = StdoutLines(beneath)
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
