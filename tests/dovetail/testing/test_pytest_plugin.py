"""The pytest plugin in another project: its fixtures, the report of a failure, and its cost for other projects."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[3]
FAMILY = """
from processor_sdk import InvalidTransaction, TransactionHandler

PLACE = "abcdef" + "0" * 64

class Greeting(TransactionHandler):
    family_name, family_version, namespaces = "greeting", "1.0", ("abcdef",)

    def apply(self, transaction, context):
        if not transaction.payload:
            raise InvalidTransaction("nobody to greet")
        context.set(PLACE, b"hello " + transaction.payload)
"""
IN_MEMORY = """
import pytest
from greeting import Greeting

@pytest.fixture
def handlers():
    return [Greeting()]

def test_greets(ledger):
    ledger.accepts(ledger.transaction(b"you"))
    assert list(ledger.state.values()) == [b"hello you"]

def test_is_empty_again(ledger):
    assert not ledger.state
    ledger.refuses(ledger.transaction(b""), "nobody")
"""
REAL = """
from dovetail.testing.running import NotRunning
from greeting import PLACE, Greeting
from dovetail.ledger.building import build_batch, build_transaction
import pytest

def greet(running, whom):
    transaction = build_transaction(
        running.signer, batcher_pubkey=running.signer.public_key, family_name="greeting", family_version="1.0",
        inputs=["abcdef"], outputs=["abcdef"], payload=whom, payload_encoding="", nonce="n",
    )
    batch = build_batch(running.signer, [transaction])
    return running.client.post_batches([batch], wait_s=60)[batch.id]

def test_greets(running_validator):
    running_validator.run(Greeting)
    assert greet(running_validator, b"you").status == "COMMITTED"
    assert running_validator.client.leaf(PLACE) == b"hello you"

def test_is_the_same_node(running_validator):
    assert "nobody to greet" in greet(running_validator, b"").why
    with pytest.raises(NotRunning, match="no_such_module"):
        running_validator.run("no_such_module:Handler")

def test_fails(running_validator):
    print("node", running_validator.url, running_validator.validator)
    assert False
"""


THEN = """
import psutil

def test_the_node_of_another_module_is_gone():
    assert psutil.Process().children() == []
"""


def run_pytest(folder: Path, *words: str, plugin: bool = True, **files: str) -> tuple[int, str]:
    """Run pytest in a project of these modules. Returns its exit code and output."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n", encoding="utf-8")
    plugins = ["-p", "dovetail.testing.pytest_plugin"] if plugin else []
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", *plugins, *words],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(folder),
            # Dovetail may be installed here or only be on the path; both must work.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_ledger_over_the_handlers_of_the_module(tmp_path: Path) -> None:
    code, said = run_pytest(tmp_path, greeting=FAMILY, test_memory=IN_MEMORY)
    assert (code, "2 passed" in said) == (0, True), said


def test_without_handlers_it_says_what_to_write(tmp_path: Path) -> None:
    code, said = run_pytest(tmp_path, test_none="def test_it(ledger): pass\n")
    assert code == 1
    assert "write a fixture `handlers` that returns them" in said


def test_it_can_be_left_out(tmp_path: Path) -> None:
    code, said = run_pytest(tmp_path, plugin=False, test_it="def test_it(): pass\n")
    assert (code, "1 passed" in said) == (0, True), said


LOADED = """
import sys

def test_it():
    loaded = {name.partition(".")[0] for name in sys.modules}
    assert not loaded & {"processor_sdk", "ledger", "validator", "protos", "zmq", "httpx", "google", "cbor2"}
"""


def test_it_loads_nothing_before_it_is_needed(tmp_path: Path) -> None:
    code, said = run_pytest(tmp_path, test_it=LOADED)
    assert code == 0, said


@pytest.mark.e2e
def test_a_real_validator_for_a_module(tmp_path: Path) -> None:
    code, said = run_pytest(tmp_path, greeting=FAMILY, test_real=REAL, test_then=THEN, types="")
    assert (code, "1 failed, 3 passed" in said) == (1, True), said
    shown = said.partition("processes of running_validator")[2]
    for part in ("=== validator", "=== rest-api", "=== up-1", "=== Greeting-2"):
        assert part in shown, said
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        assert not any(str(tmp_path) in word for word in words), words
