"""Without an event loop, log lines are written at once; with a loop, before the loop sleeps. No line is lost."""

import asyncio
import contextlib
import errno
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
import typer

from dovetail.cli.part import StartedPart, run_part
from dovetail.node import log_lines
from dovetail.node.log_lines import LogLines
from dovetail.node.logs import LogFormat, LogLevel, configure
from dovetail.node.notify import Notifier

ROOT = Path(__file__).parents[3]


class _Stderr:
    """Records writes: one entry for each."""

    def __init__(self) -> None:
        self.writes: list[list[str]] = []

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        self.writes.append([json.loads(line)["event"] for line in text.splitlines()])
        return len(text)

    def flush(self) -> None:
        pass

    @property
    def events(self) -> list[str]:
        return [event for write in self.writes for event in write]


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Stderr]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    written = _Stderr()
    monkeypatch.setattr("sys.stderr", written)
    yield written
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def lines(stderr: _Stderr) -> LogLines:
    return configure(LogFormat.JSON, LogLevel.INFO)


def _beside_a_loop(lines: LogLines, do: Callable[[], Any]) -> None:
    async def doing() -> None:
        do()

    with lines.behind_loop() as runner:
        runner.run(doing())


def test_without_a_loop_each_line_is_written_when_it_is_said(lines: LogLines, stderr: _Stderr) -> None:
    log = structlog.get_logger()
    log.info("first")
    assert stderr.writes == [["first"]]
    log.info("second")
    assert stderr.writes == [["first"], ["second"]]


def test_beside_a_loop_lines_wait_and_are_written_together_before_it_sleeps(
    lines: LogLines, stderr: _Stderr, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "_IDLE_WRITE_S", 0.0)
    monkeypatch.setattr(log_lines, "_WAIT_S_MAX", 3600.0)

    async def saying() -> None:
        log = structlog.get_logger()
        loop = asyncio.get_running_loop()
        written = asyncio.Event()
        for number in range(3):
            log.info(str(number))
            # The loop makes a turn without sleeping.
            await asyncio.sleep(0)
        assert stderr.writes == []
        loop.call_later(0.001, written.set)
        await written.wait()
        assert stderr.writes == [["0", "1", "2"]]

    with lines.behind_loop() as runner:
        runner.run(saying())


def test_a_young_line_waits_for_a_later_sleep(
    lines: LogLines, stderr: _Stderr, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "_IDLE_WRITE_S", 3600.0)
    monkeypatch.setattr(log_lines, "_WAIT_S_MAX", 3600.0)

    async def saying() -> None:
        structlog.get_logger().info("young")
        slept = asyncio.Event()
        asyncio.get_running_loop().call_later(0.001, slept.set)
        await slept.wait()
        assert stderr.writes == []

    with lines.behind_loop() as runner:
        runner.run(saying())
    assert stderr.writes == [["young"]]


def test_a_loop_that_never_sleeps_holds_no_line_back_for_long(
    lines: LogLines, stderr: _Stderr, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "_WAIT_S_MAX", 0.0)

    async def saying() -> None:
        structlog.get_logger().info("said")
        assert stderr.writes == []
        for _ in range(3):
            await asyncio.sleep(0)
        assert stderr.writes == [["said"]]

    with lines.behind_loop() as runner:
        runner.run(saying())


def _warn() -> None:
    structlog.get_logger().warning("important")


def _use_another_library() -> None:
    logging.getLogger("another").info("important")


def _log_where_it_was_raised() -> None:
    try:
        raise ValueError("here")
    except ValueError:
        structlog.get_logger().info("important", exc_info=True)


def _use_a_thread() -> None:
    thread = threading.Thread(target=structlog.get_logger().info, args=("important",))
    thread.start()
    thread.join()


@pytest.mark.parametrize("say", [_warn, _use_another_library, _log_where_it_was_raised, _use_a_thread])
def test_what_cannot_wait_is_written_at_once_behind_what_was_said_before(
    lines: LogLines, stderr: _Stderr, say: Callable[[], None]
) -> None:
    def saying() -> None:
        structlog.get_logger().info("before")
        assert stderr.writes == []
        say()
        assert stderr.events == ["before", "important"]

    _beside_a_loop(lines, saying)
    assert stderr.events == ["before", "important"]


def test_so_many_lines_wait_and_no_more(lines: LogLines, stderr: _Stderr, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "_LINES_WAITING_MAX", 3)

    def saying() -> None:
        for number in range(5):
            structlog.get_logger().info(str(number))
        assert stderr.writes == [["0", "1", "2"]]

    _beside_a_loop(lines, saying)
    assert stderr.writes == [["0", "1", "2"], ["3", "4"]]


def test_what_waits_when_the_loop_fails_is_written(lines: LogLines, stderr: _Stderr) -> None:
    def saying() -> None:
        structlog.get_logger().info("last words")
        raise KeyError

    with pytest.raises(KeyError):
        _beside_a_loop(lines, saying)
    assert stderr.writes == [["last words"]]
    structlog.get_logger().info("at once again")
    assert stderr.events == ["last words", "at once again"]


def test_a_line_tells_when_it_was_said_and_not_when_it_was_written(
    lines: LogLines, stderr: _Stderr, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamps: list[list[str]] = []
    monkeypatch.setattr(
        stderr, "write", lambda text: stamps.append([json.loads(line)["timestamp"] for line in text.splitlines()])
    )

    def saying() -> None:
        for number in range(2):
            structlog.get_logger().info(str(number))
        said.append(datetime.now(UTC))

    said: list[datetime] = []
    _beside_a_loop(lines, saying)
    ((first, second),) = stamps
    assert datetime.fromisoformat(first) < datetime.fromisoformat(second) <= said[0]


@pytest.mark.parametrize("error", [errno.EPIPE, errno.ENOSPC])
def test_a_line_that_cannot_be_written_costs_nobody_else_anything(
    lines: LogLines, stderr: _Stderr, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse(_: str) -> int:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(stderr, "write", refuse)
    structlog.get_logger().info("at once")
    _beside_a_loop(lines, lambda: structlog.get_logger().warning("beside a loop"))
    logging.getLogger("another").warning("of another library")


class _Unshowable:
    def __repr__(self) -> str:
        raise KeyError


def test_a_line_that_cannot_be_shown_costs_those_beside_it_nothing(lines: LogLines, stderr: _Stderr) -> None:
    def saying() -> None:
        log = structlog.get_logger()
        log.info("before")
        log.info("of what has no words", thing=_Unshowable())
        log.info("behind")
        log.warning("of somebody else")

    _beside_a_loop(lines, saying)
    assert stderr.events == ["before", "a line cannot be shown", "behind", "of somebody else"]


def test_a_loop_with_something_to_do_writes_nothing_first(
    lines: LogLines, stderr: _Stderr, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "_IDLE_WRITE_S", 0.0)
    monkeypatch.setattr(log_lines, "_WAIT_S_MAX", 3600.0)
    here, there = socket.socketpair()

    async def saying() -> None:
        loop = asyncio.get_running_loop()
        heard = asyncio.Event()

        def hear() -> None:
            here.recv(1)
            written.extend(stderr.events)
            heard.set()

        loop.add_reader(here, hear)
        structlog.get_logger().info("said")
        there.send(b"1")
        # If no event had arrived, the loop would sleep here.
        await heard.wait()
        loop.remove_reader(here)
        assert written == []

    written: list[str] = []
    with here, there, lines.behind_loop() as runner:
        runner.run(saying())
    assert stderr.events == ["said"]


def test_lines_are_as_late_as_the_documentation_says() -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    assert f"up to {log_lines._WAIT_S_MAX:g} s late" in page
    assert log_lines._IDLE_WRITE_S <= log_lines._WAIT_S_MAX


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_part_that_is_told_to_end_writes_its_last_lines(
    lines: LogLines, stderr: _Stderr, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    async def serve(*, on_ready: Callable[[], None], on_waiting: Callable[[str], None]) -> None:
        on_ready()
        os.kill(os.getpid(), number)
        await asyncio.Event().wait()

    part = StartedPart(structlog.get_logger(), Notifier.from_environment({}), lines)
    with contextlib.suppress(typer.Exit):
        run_part(part, "here", serve)
    assert stderr.events == ["ready"]
