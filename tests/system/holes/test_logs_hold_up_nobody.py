"""No process waits for its log, whoever does not read it, and every process ends on SIGTERM."""

import contextlib
import fcntl
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dovetail.node.notify import NOTIFY_SOCKET, NotifyListener
from tests.system.e2e.clients import Api, Author
from tests.system.e2e.network import INTKEY, Network
from tests.system.e2e.process import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

_READY_S = 60.0
_END_S = 20.0
"""Far longer than a part takes to end. A supervisor kills a part after 15 s."""

_PIPE_BYTES = 4096
_STOP = b"\x13"
"""Ctrl-S."""


class Unread:
    """A process whose stdout and stderr are one pipe or terminal that nobody reads, and that takes nothing any more."""

    def __init__(self, network: Network, words: tuple[str, ...], ends: Callable[[], tuple[int, int]]) -> None:
        """``words``: a module of Python and its arguments."""
        self.reader, end = ends()
        with (
            tempfile.TemporaryDirectory(dir="/tmp") as folder,
            contextlib.closing(NotifyListener(Path(folder) / "notify")) as listener,
        ):
            self.process = subprocess.Popen(
                [sys.executable, "-m", *words],
                cwd=ROOT,
                env={**network.environment, NOTIFY_SOCKET: str(listener.path)},
                stdin=subprocess.DEVNULL,
                stdout=end,
                stderr=end,
                start_new_session=True,
            )
            os.close(end)
            self._name = " ".join(words[:2])
            if words[0] == "dovetail":
                self._wait_until_ready(listener)

    def _wait_until_ready(self, listener: NotifyListener) -> None:
        until = time.monotonic() + _READY_S
        while not any(said.get("READY") == "1" for said in listener.drain()):
            left_s = until - time.monotonic()
            if left_s < 0 or not select.select([listener.fileno()], [], [], left_s)[0]:
                self.process.kill()
                raise AssertionError(f"{self._name} does not serve after {_READY_S:g} s")

    def end(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.terminate()
        try:
            return self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self._name} has not ended {_END_S:g} s after SIGTERM") from None

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.reader)


def _full_pipe() -> tuple[int, int]:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    os.write(writer, b"x" * (_PIPE_BYTES - 1) + b"\n")
    return reader, writer


def _stopped_terminal() -> tuple[int, int]:
    master, slave = os.openpty()
    os.write(master, _STOP)
    return master, slave


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    made = Network(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def start(network: Network) -> Iterator[Callable[..., Unread]]:
    with contextlib.ExitStack() as undo:

        def started(*words: str, ends: Callable[[], tuple[int, int]] = _full_pipe) -> Unread:
            process = Unread(network, words, ends)
            undo.callback(process.close)
            return process

        yield started


def _commit(network: Network, name: str, count: int) -> None:
    author = Author(name)
    with contextlib.closing(Api(network.rest_url)) as api:
        api.commit(author.batch(author.intkey("set", name, 0)))
        for batch in author.incs(name, count):
            api.commit(batch)
        assert api.intkey(name) == count


def test_a_ledger_of_unread_parts_works_and_each_ends_on_sigterm(
    network: Network, start: Callable[..., Unread]
) -> None:
    assert network.run("genesis", "--data-dir", str(network.data)).code == 0
    validator = start("dovetail", "validator", "--data-dir", str(network.data), "--bind", network.validator_url)
    rest_api = start("dovetail", "rest-api", "--bind", network.rest_bind, "--validator", network.validator_url)
    intkey = start("dovetail", "processor", INTKEY, "--connect", network.validator_url)
    _commit(network, "parts", 20)
    assert [part.end() for part in (intkey, rest_api, validator)] == [0, 0, 0]


@pytest.mark.parametrize("ends", [_full_pipe, _stopped_terminal])
def test_up_with_a_terminal_that_nobody_reads_works_and_ends_on_sigterm(
    network: Network, start: Callable[..., Unread], ends: Callable[[], tuple[int, int]]
) -> None:
    up = start("dovetail", *network.up_words, "--logs", ends=ends)
    _commit(network, "up", 20)
    assert up.end() == 0


@pytest.mark.parametrize(
    "words",
    [
        ("dovetail", "processor", "tests.system.holes.noisy_family:NoisyHandler", "--connect={}"),
        ("tests.system.holes.noisy_family", "{}", "workers"),
        ("tests.system.holes.noisy_family", "{}", "one process"),
    ],
    ids=["the command", "a script with workers", "a script"],
)
def test_a_processor_whose_handler_writes_much_that_nobody_reads_works_and_ends_on_sigterm(
    network: Network, start: Callable[..., Unread], words: tuple[str, ...]
) -> None:
    up = network.start(*network.up_words)
    up.wait_for_line(r"^ready ")
    processor = start(*(word.format(network.validator_url) for word in words))
    author = Author("noisy")
    with contextlib.closing(Api(network.rest_url)) as api:
        for number in range(20):
            api.commit(author.batch(author.transaction("noisy", b"%d" % number)))
    assert processor.end() == 0
    assert up.terminate() == 0


def test_dropped_lines_are_counted_and_their_number_stands_in_their_place(
    network: Network, start: Callable[..., Unread]
) -> None:
    assert network.run("genesis", "--data-dir", str(network.data)).code == 0
    validator = network.validator()
    validator.wait_logged("ready")
    rest_api = start("dovetail", "rest-api", "--bind", network.rest_bind, "--validator", network.validator_url)
    parts = urlsplit(network.rest_url)
    with contextlib.closing(HTTPConnection(parts.hostname or "", parts.port, timeout=_READY_S)) as connection:
        # More than may wait for a reader.
        sent = 3_000
        for number in range(sent):
            connection.request("GET", f"/{'x' * 255}", headers={"X-Request-Id": f"{number:0128}"})
            assert connection.getresponse().read()
        connection.request("GET", "/metrics")
        metrics = connection.getresponse().read().decode()
    (line,) = [line for line in metrics.splitlines() if line.startswith("dovetail_rest_log_lines_dropped_total ")]
    dropped = float(line.split()[1])
    assert dropped > 0
    rest_api.process.terminate()
    content = b""
    while piece := os.read(rest_api.reader, 65_536):
        content += piece
    assert rest_api.process.wait(_END_S) == 0
    logged = [json.loads(entry) for entry in content.decode().splitlines()[1:]]
    numbers = [int(entry["request_id"]) for entry in logged if entry.get("request_id", "").isdigit()]
    (place,) = [place for place, entry in enumerate(logged) if entry["event"] == "log lines are missing here"]
    before = [int(entry["request_id"]) for entry in logged[:place] if entry.get("request_id", "").isdigit()]
    assert before == list(range(len(before)))
    assert numbers == sorted(set(numbers))
    assert logged[place]["level"] == "warning"
    assert logged[place]["lines"] >= max(dropped, sent - len(numbers)) > 0
    assert validator.terminate() == 0


def test_a_log_file_that_was_removed_or_whose_disk_was_full_is_written_again(network: Network) -> None:
    up = network.start(*network.up_words)
    up.wait_for_line(r"^ready ")
    log = network.data / "logs" / "rest-api.log"
    with contextlib.closing(Api(network.rest_url)) as api:

        def wait_for(text: str) -> str:
            until = time.monotonic() + _READY_S
            while time.monotonic() < until:
                api.get("/healthz")
                content = log.read_text() if log.is_file() else ""
                if text in content:
                    return content
            raise AssertionError(f"{log} has no {text!r} after {_READY_S:g} s")

        wait_for("/healthz")
        log.unlink()
        wait_for("/healthz")
        log.unlink()
        log.symlink_to("/dev/full")
        for _ in range(20):
            api.get("/healthz")
        up.wait_for_line(rf"cannot write the log {log}: No space left on device")
        log.unlink()
        assert "lines are missing here" in wait_for("/healthz").splitlines()[0]
    assert up.terminate() == 0
