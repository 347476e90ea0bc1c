"""Exit codes, help, refusals, unexpected errors and Ctrl-C."""

import os
import queue
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.__main__ import main
from dovetail.cli.commands import resources
from tests.dovetail.conftest import FakeApi, Run

pytestmark = pytest.mark.timeout(60)

_COMMANDS = (
    (),
    ("up",),
    ("genesis",),
    ("keygen",),
    ("validator",),
    ("rest-api",),
    ("processor",),
    *((group,) for group in ("intkey", "settings", "block", "batch", "transaction", "state")),
    *(("intkey", command) for command in ("set", "inc", "dec", "show", "list")),
    *(("settings", command) for command in ("propose", "vote", "list")),
    *((group, command) for group in ("block", "batch", "transaction", "state") for command in ("list", "show")),
    ("batch", "status"),
)


def test_where_stderr_is_closed_nothing_for_it_goes_to_stdout(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    for refused in (("block", "list", "--url", "http://127.0.0.1:1"), ("intkey", "show", "\udcff")):
        outcome = run(*refused)
        assert outcome.code
        assert outcome.out == ""


@pytest.mark.parametrize("command", _COMMANDS, ids=" ".join)
def test_every_command_has_help(run: Run, command: tuple[str, ...]) -> None:
    helped = run(*command, "--help")
    assert helped.code == 0
    assert helped.err == ""
    is_group = len(command) == 0 or command in {
        (g,) for g in ("intkey", "settings", "block", "batch", "transaction", "state")
    }
    assert ("Commands" if is_group else "Examples:") in helped.out


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, dovetail.cli.app;"
        "heavy = {'httpx', 'zmq', 'lmdb', 'coincurve', 'google.protobuf', 'structlog', 'uvicorn'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_nobody_answers(run: Run) -> None:
    done = run("block", "list", "--url", "http://127.0.0.1:1")
    assert done == (1, "", "dovetail: nothing answers at http://127.0.0.1:1; is `dovetail up` running?\n")


def test_a_surprise_is_one_line_and_a_trace_in_the_log(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def surprise(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr(resources, "DovetailClient", surprise)
    done = run("block", "list")
    log = home / "logs" / "dovetail.log"
    assert done.code == 1
    assert done.err == f"dovetail: unexpected ZeroDivisionError: by nought; the stack trace is in {log}\n"
    assert "Traceback" in log.read_text()
    with pytest.raises(ZeroDivisionError):
        main(("--debug", "block", "list"))


def test_a_trace_that_cannot_be_written(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write_text("a file where the folder should be")
    monkeypatch.setattr(resources, "DovetailClient", None)
    done = run("block", "list")
    assert done.code == 1
    assert done.err.endswith("the stack trace could not be written; --debug shows it\n")
    assert done.err.count("\n") == 1


def test_an_argument_that_is_no_text_is_told_in_one_line(run: Run) -> None:
    done = run("intkey", "show", "a\udcff")
    assert done == (2, "", "dovetail: the argument 'a\\udcff' is no valid text (UTF-8)\n")


@pytest.mark.parametrize(
    ("arguments", "heard"),
    [
        (("intkey", "set", "a", "1"), "POST /batches"),
        (("intkey", "set", "a", "1"), "GET /batch_status"),
        (("batch", "status", "ab" * 64), "GET /batch_status"),
    ],
)
def test_ctrl_c_ends_with_130_and_the_way_to_go_on(
    run: Run, api: FakeApi, arguments: tuple[str, ...], heard: str
) -> None:
    run("keygen")
    api.answers["POST /batches"] = (202, {"link": "…"})
    started: queue.Queue[subprocess.Popen[bytes]] = queue.Queue()

    def interrupt() -> None:
        if not f"{api.requests[-1].method} {api.requests[-1].target}".startswith(heard):
            return
        process = started.get()
        process.send_signal(signal.SIGINT)
        started.put(process)
        process.wait()

    api.on_request = interrupt
    process = subprocess.Popen(
        [sys.executable, "-m", "dovetail", *arguments, "--wait", "60", "--url", api.url],
        cwd=Path(__file__).parents[3],
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    started.put(process)
    out, err = process.communicate()
    assert (process.returncode, out) == (130, b"")
    lines = err.decode().splitlines()
    if heard == "POST /batches":
        assert lines == []  # The command does not know whether the batch is accepted, so it prints no hint.
        return
    batch_id = api.requests[-1].target.partition("id=")[2].partition("&")[0]
    follow = f"follow it: {sys.executable} -m dovetail batch status {batch_id} --wait 60 --url {api.url}"
    told = [] if arguments[0] == "batch" else [f"batch {batch_id} accepted; waiting up to 60 s"]
    assert lines == [*told, follow]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("processor", "./my/family.py:X"), "is a file; name its module, as python -m does: my.family:X"),
        (("processor", "no_such_module:X"), "cannot import no_such_module for no_such_module:X: No module named"),
        (("processor", "families.intkey.handler:X"), "has no handler class X; it has IntkeyHandler"),
        (("processor", "families.intkey.handler"), "names no handler: MODULE:HANDLER"),
        (
            ("processor", "families.intkey.handler:IntkeyHandler", "--connect", "here"),
            "processor.connect = 'here' (flag --connect)",
        ),
        (("rest-api", "--bind", "8080"), "rest_api.bind = '8080' (flag --bind): must be HOST:PORT"),
        (("validator", "--data-dir", "/nowhere"), "there is no key at /nowhere/keys/validator.priv"),
        (
            ("up", "--data-dir", "/dev/null/x", "--validator", "tcp://127.0.0.1:1", "--rest", "127.0.0.1:2"),
            "cannot make the folder /dev/null/x: Not a directory",
        ),
        (("up", "--config", "no.toml"), "cannot read the configuration no.toml"),
    ],
)
def test_parts_that_cannot_start_say_why(run: Run, arguments: tuple[str, ...], reason: str) -> None:
    done = run(*arguments)
    assert (done.code, done.out) == (1, "")
    assert reason in done.err
    assert done.err.count("\n") == 1


_HANDLER = """from processor_sdk import TransactionHandler
class H(TransactionHandler):
    family_name, family_version, namespaces = "f", "1", {namespaces}
    def __init__(self):
        {construction}
    def apply(self, transaction, context):
        pass
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("int('x')", "ValueError: invalid literal for int() with base 10: 'x' ({file}, line 1)"),
        ("len(3)", "TypeError: object of type 'int' has no len() ({file}, line 1)"),
        ("len.x", "AttributeError: 'builtin_function_or_method' object has no attribute 'x' ({file}, line 1)"),
        ("nobody", "NameError: name 'nobody' is not defined ({file}, line 1)"),
        ("from os import nothing", "ImportError: cannot import name 'nothing' from 'os'"),
        ("def (", "invalid syntax (mistaken.py, line 1)"),
        ("1 / 0", "ZeroDivisionError: division by zero ({file}, line 1)"),
        ("import sys; sys.exit(3)", "cannot import mistaken for mistaken:H: it calls sys.exit(3)"),
        ("import sawtooth_sdk.processor", "; how a family of the Sawtooth 1.x SDK is run"),
        (_HANDLER.format(namespaces=("abc",), construction="pass"), "TypeError: H.namespaces holds 'abc'"),
        (_HANDLER.format(namespaces=("abc",), construction="pass"), "({file}, line 2)"),
        (_HANDLER.format(namespaces=("aaaaaa",), construction="raise SystemExit"), "it calls sys.exit(None)"),
        (_HANDLER.format(namespaces=("aaaaaa",), construction="int('x')"), "ValueError: invalid literal"),
    ],
)
def test_a_mistake_of_a_handlers_author_is_a_refusal(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    file = tmp_path / "mistaken.py"
    file.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mistaken", raising=False)
    done = run("processor", "mistaken:H")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert done.err.startswith("dovetail: ")
    assert "mistaken:H" in done.err
    assert reason.format(file=file) in done.err
    assert "unexpected" not in done.err
    assert "/processor_sdk/handler.py" not in done.err
