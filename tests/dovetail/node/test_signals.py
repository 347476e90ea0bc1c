"""Ending signals end code inside ``ending_signals_interrupt`` in order, and a benchmark leaves no files behind."""

import asyncio
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from dovetail.bench import node
from dovetail.bench.steps import run as steps_run
from dovetail.node.signals import ending_signals, ending_signals_interrupt, handle_ending_signals
from dovetail.node.supervisor import Events
from tests.dovetail.conftest import Run

pytestmark = pytest.mark.timeout(60)


async def _signalled(number: signal.Signals, ended: list[str]) -> NoReturn:
    try:
        os.kill(os.getpid(), number)
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")
    finally:
        ended.append("in order")


@pytest.mark.parametrize("number", ending_signals())
def test_each_ends_what_runs_in_order(number: signal.Signals) -> None:
    handlers = [signal.getsignal(one) for one in ending_signals()]
    ended: list[str] = []
    with pytest.raises((KeyboardInterrupt, SystemExit)) as raised, ending_signals_interrupt():
        asyncio.run(_signalled(number, ended))
    assert ended == ["in order"]
    code = None if number is signal.SIGINT else 128 + number
    assert getattr(raised.value, "code", None) == code
    assert [signal.getsignal(one) for one in ending_signals()] == handlers


def test_where_ctrl_c_is_ignored_the_others_are_not() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended: list[str] = []
    try:
        with pytest.raises(SystemExit) as raised, ending_signals_interrupt():
            asyncio.run(_signalled(signal.SIGTERM, ended))
    finally:
        signal.signal(signal.SIGINT, before)
    assert raised.value.code == 143
    assert ended == ["in order"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_benchmark_leaves_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    made: list[Path] = []

    async def measure(options: steps_run.StepsOptions, _: Any) -> NoReturn:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            made.append(Path(folder))
            await _signalled(number, [])

    monkeypatch.setattr(steps_run, "measure_steps", measure)
    assert run("bench", "steps", "--dir", str(tmp_path)).code == code
    assert made
    assert not list(tmp_path.iterdir())


def test_one_that_comes_while_its_node_ends_is_not_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The signal is not lost even if stderr has no reader."""

    heard = asyncio.Event()
    restores: list[Callable[[], None]] = []

    def handle(handler: Callable[[signal.Signals], None], within_s: float) -> None:
        def hear(number: signal.Signals) -> None:
            handler(number)
            heard.set()

        restores.append(handle_ending_signals(hear, within_s))

    async def supervise(_parts: object, _log_dir: Path, events: Events) -> NoReturn:
        events.ready()
        try:
            await asyncio.Event().wait()
            raise AssertionError("nobody sets it")
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            await heard.wait()
            restores[0]()

    async def use(_: node.Node) -> str:
        return "done"

    monkeypatch.setattr(node, "supervise", supervise)
    monkeypatch.setattr(node, "handle_ending_signals", handle)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        with pytest.raises(node.Interrupted, match="SIGTERM"):
            asyncio.run(node.with_node(tmp_path, processors=(), profiles={}, use=use))
    assert not list(tmp_path.iterdir())
