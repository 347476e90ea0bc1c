"""Fixtures: a home folder for the user, a REST API whose answers a test sets, and the command line as a function."""

import json
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dovetail.__main__ import main
from dovetail.node.genesis import STORE_NAME
from tests.dovetail.cli.commands.flipped import forked_child
from tests.dovetail.cli.commands.stores import BLOCKS
from tests.dovetail.rehearsal.rehearsal_chain import long_chain
from tests.dovetail.validator.history.verified import Here


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in DOVETAIL_HOME, which does not exist yet. No other DOVETAIL variable is set."""
    for variable in ("URL", "KEY", "DEBUG"):
        monkeypatch.delenv(f"DOVETAIL_{variable}", raising=False)
    monkeypatch.setenv("DOVETAIL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LOGNAME", "tester")
    return tmp_path / "home"


class Outcome(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line, without the program's name."""

    def run(*arguments: str) -> Outcome:
        # A command may ignore SIGINT until its process ends. Here the process continues, so the handler is restored.
        interrupt = signal.getsignal(signal.SIGINT)
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            signal.signal(signal.SIGINT, interrupt)
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a store. Tests must not change this folder."""
    folder = tmp_path_factory.mktemp("made")
    long_chain(folder / STORE_NAME, BLOCKS * 10, 10, 20)
    return folder


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    """A copy of ``made``, which a test may change."""
    return Path(shutil.copytree(made, tmp_path / "data"))


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork child processes, and check in this process: starting new interpreters would take most of the test's time.

    tests/system/e2e/test_store_tools.py and the tests of kills run the commands with their real processes.
    """
    for module in (
        "cli.commands.chain", "cli.commands.store", "validator.maintenance.copies", "validator.maintenance.repair"
    ):  # fmt: skip
        monkeypatch.setattr(f"dovetail.{module}.run_in_child", forked_child)
    monkeypatch.setattr("dovetail.validator.maintenance.verification.Checkers", lambda processes: nullcontext(Here()))


class Request(NamedTuple):
    """One request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class FakeApi:
    """Answers each ``METHOD target`` as the test set, and other requests with 404. Records all requests."""

    url: str
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    on_request: Callable[[], None] = lambda: None

    def refuse(self, target: str, status: int, code: int, title: str, message: str) -> None:
        """Answer ``target`` with an error in the REST API's shape."""
        self.answers[target] = (status, {"error": {"code": code, "title": title, "message": message}})


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A REST API on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fake.requests.append(Request(self.command, self.path, dict(self.headers.items()), body))
            fake.on_request()
            missing = (404, {"error": {"code": 0, "title": "Not Found", "message": self.path}})
            path = self.path.partition("?")[0]
            status, answer = fake.answers.get(
                f"{self.command} {self.path}", fake.answers.get(f"{self.command} {path}", missing)
            )
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **fake.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        # The server's end waits for the threads of unfinished answers, so that their output does not appear in another
        # test.
        server.daemon_threads = False
        fake = FakeApi(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield fake
        server.shutdown()
        thread.join()
