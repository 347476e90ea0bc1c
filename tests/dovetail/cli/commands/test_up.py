"""``dovetail up`` with real processes on free ports."""

import contextlib
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dovetail.node import supervisor
from dovetail.node.notify import NOTIFY_SOCKET, NotifyListener
from dovetail.node.parts import INTKEY, part_name
from dovetail.testing.running import ReservedPort
from tests.dovetail.conftest import Run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

_WHAT_TO_DO = "a node may be running already: use it, stop it, or choose another --data-dir, --validator and --rest"
_ROOT = Path(__file__).parents[4]


@pytest.fixture
def free() -> Iterator[list[int]]:
    """Two ports that stay reserved while the test runs."""
    ports = ReservedPort(), ReservedPort()
    yield [port.number for port in ports]
    for port in ports:
        port.close()


@pytest.fixture
def elsewhere(free: list[int]) -> tuple[str, ...]:
    """Free addresses for ``up``."""
    validator, rest = free
    return ("--validator", f"tcp://127.0.0.1:{validator}", "--rest", f"127.0.0.1:{rest}")


def _up(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "dovetail", "up", *arguments],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _tried(process: "subprocess.Popen[str]") -> list[str]:
    """The commands that ``up`` prints when the node serves."""
    assert process.stdout is not None
    first = process.stdout.readline()
    assert first.startswith("ready  REST API http://127.0.0.1:"), process.communicate()
    return [process.stdout.readline().removeprefix("try").strip() for _ in range(3)]


def test_the_printed_commands_work_as_printed_on_a_new_and_on_an_old_ledger(
    home: Path, elsewhere: tuple[str, ...]
) -> None:
    # A user's other terminal does not have these variables.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DOVETAIL_")}
    blocks = []
    for stop, code in ((signal.SIGINT, 130), (signal.SIGTERM, 0)):
        with _up(*elsewhere) as process:
            outputs = [
                subprocess.run(
                    ["/bin/sh", "-c", command], cwd=_ROOT, env=environment, capture_output=True, text=True, check=True
                ).stdout
                for command in _tried(process)
            ]
            process.send_signal(stop)
            out, err = process.communicate()
        assert (process.returncode, out) == (code, "")
        assert "Traceback" not in err
        assert outputs[0].endswith("COMMITTED\n")
        assert outputs[1].endswith(": 42\n")
        blocks.append(len(outputs[2].splitlines()))
    assert blocks == [3, 4]
    assert not any("Traceback" in log.read_text() for log in (home / "data" / "logs").iterdir())


def test_a_port_in_use_is_one_clear_line(home: Path, free: list[int]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with _up("--validator", f"tcp://127.0.0.1:{free[0]}", "--rest", f"127.0.0.1:{port}") as process:
            out, err = process.communicate()
    assert (process.returncode, out) == (1, "")
    assert err == f"dovetail: rest-api: cannot listen on 127.0.0.1:{port}: Address already in use; {_WHAT_TO_DO}\n"
    assert not home.exists()


def test_a_port_that_is_open_to_the_network_is_told_on_stderr(
    run: Run, monkeypatch: pytest.MonkeyPatch, free: list[int]
) -> None:
    async def supervise(*_: object, **__: object) -> signal.Signals:
        return signal.SIGTERM

    monkeypatch.setattr("dovetail.cli.commands.up.supervise", supervise)
    rest = ("--rest", f"127.0.0.1:{free[1]}")
    anywhere = f"tcp://0.0.0.0:{free[0]}"
    warning = f"the validator's port {anywhere} is open to the network: every process that reaches it can execute"
    told = run("up", "--validator", anywhere, *rest, "--insecure")
    assert (told.code, told.out) == (0, "")
    assert told.err.startswith(warning)
    assert "open to the network" not in run("up", "--validator", f"tcp://127.0.0.1:{free[0]}", *rest, "--insecure").err


@pytest.mark.parametrize("taken", ["validator", "rest", "store"])
def test_what_another_node_has_is_refused_before_anything_starts(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, free: list[int], taken: str
) -> None:
    def supervise(*_: object, **__: object) -> None:
        raise AssertionError("started")

    monkeypatch.setattr("dovetail.cli.commands.up.supervise", supervise)
    lock = home / "data" / "store" / "owner.lock"
    with contextlib.ExitStack() as held:
        server = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        used = server.getsockname()[1]
        if taken == "store":
            lock.parent.mkdir(parents=True)
            file = held.enter_context(lock.open("ab"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        validator = f"tcp://*:{used if taken == 'validator' else free[0]}"
        rest = f"127.0.0.1:{used if taken == 'rest' else free[1]}"
        done = run("up", "--validator", validator, "--rest", rest, "--insecure")
    reason = {
        "validator": f"validator: cannot listen on {validator}: Address already in use",
        "rest": f"rest-api: cannot listen on {rest}: Address already in use",
        "store": f"the store in {home / 'data'} is in use by another validator",
    }[taken]
    assert done == (1, "", f"dovetail: {reason}; {_WHAT_TO_DO}\n")
    assert not (home / "keys").exists()


def test_an_old_ledger_and_a_new_user(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: tuple[str, ...]
) -> None:
    async def supervise(*_: object) -> signal.Signals:
        return signal.SIGTERM

    monkeypatch.setattr("dovetail.cli.commands.up.supervise", supervise)
    up = ("up", "--no-families", *elsewhere)
    first = run(*up)
    assert first.code == 0
    assert "authorized" not in first.err
    (home / "keys" / "tester.priv").unlink()
    (home / "data" / "store").mkdir()
    made = f"made the key {home / 'keys' / 'tester.priv'}; it may not change this ledger's settings unless it is"
    assert run(*up).err.startswith(made)
    (home / "data" / "keys" / "validator.priv").unlink()
    lost = run(*up)
    assert (lost.code, lost.err.count("\n")) == (1, 1)
    assert "validator.priv is missing: put it back" in lost.err


def test_log_lines_of_the_parts_are_printable_here(
    run: Run, monkeypatch: pytest.MonkeyPatch, elsewhere: tuple[str, ...]
) -> None:
    async def supervise(_parts: object, _log_dir: object, events: supervisor.Events) -> signal.Signals:
        events.output("rest-api", b"one \x1b[31m\x00 \xff\ntwo\rthree\n")
        return signal.SIGTERM

    monkeypatch.setattr("dovetail.cli.commands.up.supervise", supervise)
    done = run("up", "--logs", *elsewhere)
    assert done.err.splitlines()[-2:] == ["rest-api  | one \\x1b[31m\\x00 \ufffd", "rest-api  | two\\rthree"]


@pytest.mark.parametrize("nobody_reads", [("stderr",), ("stdout", "stderr")])
def test_a_node_goes_on_where_nobody_reads_along_any_more(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: tuple[str, ...], nobody_reads: Sequence[str]
) -> None:
    listener = NotifyListener(tmp_path / "s")
    monkeypatch.setenv(NOTIFY_SOCKET, str(listener.path))
    with contextlib.closing(listener), _up("--logs", *elsewhere) as process:
        assert process.stderr is not None
        assert process.stderr.readline()
        for stream in nobody_reads:
            getattr(process, stream).close()
        while not any(said.get("READY") == "1" for said in listener.drain()):
            assert select.select([listener], [], [], 60)[0]
        process.terminate()
        assert process.wait() == 0


_MINE = """from processor_sdk import TransactionHandler


class Mine(TransactionHandler[bytes]):
    family_name, family_version, namespaces = {family!r}, "1.0", ("mine",)

    def apply(self, transaction, context):
        pass
"""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[supervisor.Part]:
    """The parts that ``up`` would start. The current folder contains a family of its own in ``mine.py``."""
    parts: list[supervisor.Part] = []

    async def supervise(given: list[supervisor.Part], *_: object) -> signal.Signals:
        parts.extend(given)
        return signal.SIGTERM

    monkeypatch.setattr("dovetail.cli.commands.up.supervise", supervise)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    (tmp_path / "mine.py").write_text(_MINE.format(family="my family/2"))
    return parts


def test_a_family_is_a_part_beside_the_bundled_ones(
    run: Run, started: list[supervisor.Part], elsewhere: tuple[str, ...]
) -> None:
    assert run("up", *elsewhere, "--family", "mine:Mine").code == 0
    assert [part.name for part in started] == ["validator", "rest-api", "intkey", "my_family_2"]
    command = list(started[-1].command)
    assert command[command.index("processor") + 1] == "mine:Mine"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("nowhere:Mine",), "cannot import nowhere for nowhere:Mine: No module named 'nowhere'"),
        (("mine:Yours",), "mine has no handler class Yours; it has Mine"),
        (("mine",), "'mine' names no handler: MODULE:HANDLER"),
        (("mine:Mine", "mine:Mine"), "mine:Mine is for my family/2 1.0, which mine:Mine executes already"),
        ((INTKEY,), f"which {INTKEY} executes already; leave the bundled one out with --no-families"),
        (
            ("families.settings.handler:SettingsHandler",),
            "is for sawtooth_settings 1.0, which the node itself executes already",
        ),
    ],
)
def test_a_mistake_in_a_family_ends_up_before_anything_is_made(
    run: Run,
    home: Path,
    started: list[supervisor.Part],
    elsewhere: tuple[str, ...],
    words: tuple[str, ...],
    reason: str,
) -> None:
    done = run("up", *elsewhere, *(word for name in words for word in ("--family", name)))
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert reason in done.err
    assert started == []
    assert not home.exists()


def test_parts_are_called_by_their_family_and_unlike_each_other() -> None:
    assert part_name("tickets", ["intkey"]) == "tickets"
    assert part_name("tickets", ["tickets"]) == "tickets-2"
    assert part_name("tickets", ["tickets", "tickets-2"]) == "tickets-3"
    assert part_name("validator", []) == "validator-2"
    assert part_name("../../etc", []) == "_.._etc"
    assert part_name("..", []) == "processor"
    assert len(part_name("x" * 256, [])) <= 24
