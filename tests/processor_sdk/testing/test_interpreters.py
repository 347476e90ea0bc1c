"""The processes of the second run: their differences, and their end, whatever happens to the test."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dovetail.ledger.limits import Limits
from processor_sdk.testing import CannotRunTwice, Ledger, NonDeterministic, State, interpreters
from processor_sdk.testing.child import Applied
from processor_sdk.testing.interpreters import Recipe
from processor_sdk.testing.link import StateLink
from processor_sdk.testing.state import View
from protos import processor_pb2, transaction_pb2
from tests.processor_sdk.testing.careless import ADDRESS, Careless

ROOT = Path(__file__).parents[3]
DEADLINE_S = 60
"""A time limit, far longer than anything here takes."""


@pytest.fixture(autouse=True)
def fresh_interpreters() -> Iterator[None]:
    interpreters._pool.close()
    yield
    interpreters._pool.close()


def results(name: str) -> list[bytes | None]:
    """The value that each interpreter writes for the mistake ``name``."""
    ledger = Ledger(Careless())
    transaction = ledger.transaction(name.encode())
    message = transaction_pb2.Transaction.FromString(transaction.raw)
    request = processor_pb2.TpProcessRequest(
        header_bytes=message.header, payload=message.payload, signature=transaction.id, context_id="test:0"
    )
    view = View(State({}), {})
    links = [StateLink((transaction,), view, Careless.namespaces, Limits()) for _ in range(interpreters.INTERPRETERS)]
    ended = interpreters.apply_again(Recipe.of([Careless()]), request.SerializeToString(), links)
    assert all(isinstance(one, Applied) for one in ended)
    return [link.changes[ADDRESS] for link in links]


@pytest.mark.parametrize("name", ["hash", "set order", "time", "time zone", "random", "pid"])
def test_they_differ_from_each_other(name: str) -> None:
    found = results(name)
    assert len(set(found)) == len(found) == 2


def test_their_hashes_are_the_same_every_time() -> None:
    first = results("hash")
    interpreters._pool.close()
    assert results("hash") == first


def test_a_run_that_does_not_end_is_ended_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(Careless())
    ledger.accepts(ledger.transaction(b"sorted"))
    with monkeypatch.context() as patched:
        patched.setattr(interpreters, "APPLY_S_MAX", 0.1)
        with pytest.raises(NonDeterministic, match=r"did not end when it ran again, within 0\.1 s"):
            ledger.apply(ledger.transaction(b"spin"))
    ledger.accepts(ledger.transaction(b"sorted"))


SPINS = """
import os
from processor_sdk import TransactionHandler

class Spins(TransactionHandler):
    family_name, family_version, namespaces = "spins", "1.0", ("abcdef",)

    def __init__(self):
        while "PATH" not in os.environ:
            pass

    def apply(self, transaction, context): pass
"""


def test_making_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "spins_when_made.py").write_text(SPINS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(interpreters, "APPLY_S_MAX", 0.1)
    import spins_when_made  # type: ignore[import-not-found]

    ledger = Ledger(spins_when_made.Spins())
    with pytest.raises(CannotRunTwice, match=r"were not made in a second interpreter within 0\.1 s"):
        ledger.apply(ledger.transaction(b""))


class Interrupted(Exception):
    """An exception like that of a test runner when a test exceeds its time limit."""


def test_an_interruption_ends_all_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    others = set(psutil.Process().children(recursive=True))
    running: list[psutil.Process] = []
    pool: list[interpreters._Interpreter] = []

    def interrupt(*_: object) -> None:
        raise Interrupted

    def answer(link: StateLink, message_type: int, content: bytes) -> bytes:
        content = true_call(link, message_type, content)
        # Only the second run has child processes, so the first run is over when a child exists.
        if children := set(psutil.Process().children(recursive=True)) - others:
            running.extend(children)
            pool.extend(interpreters._pool.get())
            signal.setitimer(signal.ITIMER_REAL, 0.2)
        return content

    true_call = StateLink.__call__
    monkeypatch.setattr(StateLink, "__call__", answer)
    ledger = Ledger(Careless())
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(Interrupted):
            ledger.apply(ledger.transaction(b"spin"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        monkeypatch.undo()
    assert len(running) > interpreters.INTERPRETERS
    assert psutil.wait_procs(running, timeout=DEADLINE_S)[1] == []
    # The child processes end at once, not only when their next write fails.
    assert {interpreter._process.returncode for interpreter in pool} == {-signal.SIGKILL}
    ledger.accepts(ledger.transaction(b"sorted"))


KILLED = """
from processor_sdk.testing import Ledger
from processor_sdk.testing.link import StateLink
from tests.processor_sdk.testing.careless import Careless

true_call = StateLink.__call__

def tell(link, message_type, content):
    print("asked", flush=True)
    return true_call(link, message_type, content)

StateLink.__call__ = tell
ledger = Ledger(Careless())
ledger.apply(ledger.transaction(b"spin"))
"""


def test_nothing_outlives_a_test_process_that_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        # The first run reads state first. Then the run that never ends reads state.
        assert [process.stdout.readline() for _ in range(2)] == [b"asked\n"] * 2
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
    try:
        assert len(children) > interpreters.INTERPRETERS
        assert psutil.wait_procs(children, timeout=DEADLINE_S)[1] == []
    finally:
        for child in children:
            if child.is_running():
                child.kill()


@pytest.mark.parametrize("ends", [False, True])
def test_a_fork_of_the_test_has_interpreters_of_its_own(ends: bool) -> None:
    ledger = Ledger(Careless())
    ledger.accepts(ledger.transaction(b"sorted"))
    fork = os.fork()
    if not fork:
        status = 1
        try:
            if ends:
                # A fork that exits must not close interpreters of its parent.
                interpreters._pool.close()
            ledger.accepts(ledger.transaction(b"sorted"))
            own = {interpreter._process.pid for interpreter in interpreters._pool.get()}
            status = 0 if own == {child.pid for child in psutil.Process().children()} else 2
            interpreters._pool.close()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]) == 0
    ledger.accepts(ledger.transaction(b"sorted"))


FAMILY = """
from processor_sdk import TransactionHandler

class Mine(TransactionHandler):
    family_name, family_version, namespaces = "mine", "1.0", ("abcdef",)

    def apply(self, transaction, context):
        import beside
"""
TEST = """
import os, sys
sys.path.insert(0, "")
import beside, mine
from processor_sdk.testing import Ledger
{chdir}
ledger = Ledger(mine.Mine())
ledger.accepts(ledger.transaction(b""))
"""


@pytest.mark.parametrize("chdir", ["", 'os.chdir("/")'])
def test_modules_of_the_project_do_not_shadow_the_standard_library(tmp_path: Path, chdir: str) -> None:
    for name, text in {"mine": FAMILY, "types": "", "random": "", "enum": "", "beside": ""}.items():
        (tmp_path / f"{name}.py").write_text(text)
    script = f"import types, random, enum, processor_sdk.testing\n{TEST.format(chdir=chdir)}"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
