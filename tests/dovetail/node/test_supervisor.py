"""The supervisor with real processes that follow the notify protocol (``fake_part.py``)."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dovetail.common.errors import Refused
from dovetail.node import supervisor
from dovetail.node.supervisor import Events, Part, back_off, supervise

pytestmark = pytest.mark.timeout(60)

_FAKE = Path(__file__).with_name("fake_part.py")
_ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    monkeypatch.setattr(supervisor, "BACK_OFF_FIRST_S", 0.001)


@dataclass
class Told:
    """Records the supervisor's events, and reacts to them."""

    on_ready: Callable[[], None] = lambda: None
    on_told: Callable[[str], None] = lambda _: None
    on_output: Callable[[str, bytes], None] = lambda *_: None
    waiting: list[dict[str, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def events(self) -> Events:
        def waiting(parts: Mapping[str, str]) -> None:
            self.waiting.append(dict(parts))

        def told(line: str) -> None:
            self.lines.append(line)
            self.on_told(line)

        return Events(waiting, self.on_ready, told, self.on_output)


def _part(name: str, journal: Path, behaviour: str = "serve", ends: int = 0) -> Part:
    return Part(name, (sys.executable, str(_FAKE), name, str(journal), behaviour), ends)


def _run(tmp_path: Path, parts: list[Part], told: Told) -> signal.Signals:
    return asyncio.run(supervise(parts, tmp_path / "logs", told.events()))


def _end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _pids(journal: Path, name: str) -> list[int]:
    lines = [line.split() for line in journal.read_text().splitlines()]
    return [int(line[2]) for line in lines if line[:2] == [name, "started"]]


def test_back_off_doubles_up_to_its_bound() -> None:
    assert [back_off(failures) for failures in range(1, 9)] == [0.001 * 2**n for n in range(8)]
    assert back_off(1_000_000) == supervisor.BACK_OFF_MAX_S == 5


@pytest.mark.parametrize(("served_s", "pauses"), [(0.0, [0.001, 0.001, 0.001]), (60.0, [0.001, 0.002, 0.004])])
def test_service_alone_resets_the_back_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served_s: float, pauses: list[float]
) -> None:
    """``served_s``: the service that resets it. The part is killed as soon as it serves, again and again."""
    monkeypatch.setattr(supervisor, "SERVED_S", served_s)
    journal = tmp_path / "journal"

    def kill() -> None:
        os.kill(_pids(journal, "work")[-1], signal.SIGKILL)

    def on_told(line: str) -> None:
        if line == "work serves again":
            _end() if len(_pids(journal, "work")) == 4 else kill()

    told = Told(on_ready=kill, on_told=on_told)
    _run(tmp_path, [_part("work", journal)], told)
    ends = [line for line in told.lines if "starting it again" in line]
    assert [float(line.split(" in ")[-1].split(" s ")[0]) for line in ends] == pauses
    in_a_row = [line for line in ends if "times in a row" in line]
    assert len(in_a_row) == (2 if served_s else 0)


def test_parts_end_in_order_after_all_served(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    told = Told(on_ready=_end)
    parts = [_part("core", journal, ends=2), _part("door", journal, ends=1), _part("work", journal, "waits", ends=0)]
    # The supervisor must restore the caller's signal handler, because the caller may have more to end.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert _run(tmp_path, parts, told) is signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    assert journal.read_text().splitlines()[-3:] == ["work ended", "door ended", "core ended"]
    assert told.waiting[0] == {"core": "", "door": "", "work": ""}
    assert any(parts.get("work") == "a friend" for parts in told.waiting)
    assert told.lines == []


def test_a_part_that_dies_is_started_again(tmp_path: Path) -> None:
    journal = tmp_path / "journal"

    def kill_worker() -> None:
        os.kill(_pids(journal, "work")[0], signal.SIGKILL)

    def on_told(line: str) -> None:
        if line == "work serves again":
            _end()

    told = Told(on_ready=kill_worker, on_told=on_told)
    _run(tmp_path, [_part("core", journal, ends=1), _part("work", journal)], told)
    assert told.lines[0].startswith("work was ended by SIGKILL; starting it again in 0.001 s (log: ")
    assert len(_pids(journal, "work")) == 2
    assert len(_pids(journal, "core")) == 1


def test_what_a_dead_part_left_behind_is_ended_with_it(tmp_path: Path) -> None:
    fifo = tmp_path / "held-open"
    os.mkfifo(fifo)
    # The end for reading is opened without blocking, although the FIFO has no writer yet.
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    _run(tmp_path, [_part("work", fifo, "parent")], Told(on_ready=_end))
    os.set_blocking(reader, True)
    with open(reader, "rb") as held:
        assert b"work ended" in held.read()


def test_a_refusal_at_the_start_ends_all_with_its_last_line(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    told = Told()
    with pytest.raises(Refused, match=r"^door: the port is in use$"):
        _run(tmp_path, [_part("core", journal, ends=1), _part("door", journal, "refuse")], told)
    assert (tmp_path / "logs" / "door.log").read_text() == "a line before\ndovetail: the port is in use\n"


def test_a_command_that_cannot_start_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"^cannot start core: .*no-such-program"):
        _run(tmp_path, [Part("core", (str(tmp_path / "no-such-program"),), 0)], Told())


def test_a_part_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STOP_S", 0.05)
    journal = tmp_path / "journal"
    told = Told(on_ready=_end)
    _run(tmp_path, [_part("core", journal, "stubborn")], told)
    assert told.lines == ["core did not end within 0.05 s: killed"]


def test_a_second_signal_ends_all_at_once(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    told = Told(on_ready=_end, on_output=lambda *_: os.kill(os.getpid(), signal.SIGINT))
    assert _run(tmp_path, [_part("core", journal, "stubborn")], told) is signal.SIGTERM
    assert "core ended" not in journal.read_text()


def test_a_closed_terminal_ends_all_in_order_unless_nohup_is_before_it(tmp_path: Path) -> None:
    hung_up = Told(on_ready=lambda: os.kill(os.getpid(), signal.SIGHUP))
    assert _run(tmp_path, [_part("core", tmp_path / "journal")], hung_up) is signal.SIGHUP

    def hang_up_and_end() -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        _end()

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        told = Told(on_ready=hang_up_and_end)
        assert _run(tmp_path, [_part("core", tmp_path / "journal")], told) is signal.SIGTERM
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_children_end_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    fifo = tmp_path / "held-open"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    script = textwrap.dedent(
        f"""
        import asyncio, sys
        from pathlib import Path
        from dovetail.node.supervisor import Events, Part, supervise

        def nothing(*_): pass

        parts = [Part(n, (sys.executable, {str(_FAKE)!r}, n, {str(fifo)!r}, "serve"), 0) for n in ("core", "work")]
        events = Events(nothing, lambda: print("ready", flush=True), nothing, nothing)
        asyncio.run(supervise(parts, Path({str(tmp_path / "logs")!r}), events))
        """
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()
    os.set_blocking(reader, True)
    with open(reader, "rb") as held:
        # End of file means that no process holds the writing end, so no child is left.
        assert held.read().count(b" ended\n") == 2
