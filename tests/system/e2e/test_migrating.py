"""docs/how-to/migrating.md: its files and commands, run as they stand."""

import hashlib
import json
import re
import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.network import Network
from tests.system.e2e.process import DEADLINE_S, ROOT, Process
from tests.system.independent.bare_validator import BareValidator
from tests.system.independent.client import Transaction
from tests.system.independent.messages import Event

PAGE = (ROOT / "docs" / "how-to" / "migrating.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```(?:python|toml)\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))
LINES = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
NAMESPACE = hashlib.sha512(b"tally").hexdigest()[:6]
APPLES = NAMESPACE + hashlib.sha256(b"apples").hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the page's Python files."""
    made = tmp_path / "family"
    made.mkdir()
    for name, text in FILES.items():
        if name.endswith(".py"):
            (made / name).write_text(text, encoding="utf-8")
    return made


def line(beginning: str) -> str:
    """The only line of the page with this beginning."""
    found: list[str] = [line for line in LINES if line.startswith(beginning)]
    assert len(found) == 1
    return found[0]


def words(beginning: str, places: Mapping[str, str]) -> list[str]:
    """The words after ``dovetail`` in the line with this beginning, with ``places`` replaced."""
    text = line(beginning)
    for place, real in places.items():
        text = text.replace(place, real)
    return shlex.split(text)[1:]


def change(author: Author, by: object, item: str = "apples") -> Transaction:
    """A transaction of a 1.x client: without payload_encoding."""
    payload = json.dumps({"item": item, "change": by}).encode()
    return author.transaction("tally", payload, inputs=[NAMESPACE], outputs=[NAMESPACE])


def tally(count: int, author: Author) -> bytes:
    return b'{"count":%d,"last":"%s"}' % (count, author.public_key.encode())


def test_every_block_is_run() -> None:
    assert list(FILES) == ["tally.py", "test_tally.py", "serve.py", "node.toml", "tally_new.py"]
    assert len(re.findall(r"```\w+\n", PAGE)) == len(FILES) + 1 + len(re.findall(r"```sh\n", PAGE))
    commands = [" ".join(line.split()[:2]) for line in LINES]
    assert commands == [
        "find .", "dovetail processor", "dovetail genesis", "dovetail validator", "dovetail rest-api",
        "dovetail settings", "dovetail settings",
    ]  # fmt: skip


def test_the_command_changes_the_imports(networks: Networks, tmp_path: Path) -> None:
    (diff,) = re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL)
    before, after = ("".join(f"{one[1:]}\n" for one in diff.splitlines() if one[0] == sign) for sign in "-+")
    family = tmp_path / "family" / "processor"
    family.mkdir(parents=True)
    (family / "handler.py").write_text(before)
    ran = networks().run_command(f"cd {tmp_path} && {line('find')}")
    assert (ran.code, (family / "handler.py").read_text()) == (0, after)
    exec(compile(after, "imports", "exec"), {})


def test_the_test_kit_takes_the_handler(networks: Networks, folder: Path) -> None:
    network = networks()
    network.environment["PYTHONPATH"] = f"{folder}:{ROOT}"
    ran = network.run_command(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    )
    assert ran.code == 0, ran
    assert "1 passed" in ran.out


@pytest.mark.parametrize("how", ["tally:TallyHandler", "serve.py"])
def test_it_serves_a_1x_validator(networks: Networks, author: Author, folder: Path, how: str) -> None:
    network = networks()
    network.environment["PYTHONPATH"] = f"{folder}:{ROOT}"
    with BareValidator() as bare:
        process = start(network, folder, how, bare.url)
        bare.wait_for_registration("tally", "1.0", DEADLINE_S)
        state: dict[str, bytes] = {}

        def judged(made: Transaction) -> tuple[int, str, bytes, tuple[Event, ...]]:
            verdict = bare.process(made.header_bytes, made.payload, made.signature, state, timeout=DEADLINE_S)
            return verdict.status, verdict.message, verdict.extended_data, verdict.events

        assert judged(change(author, 3)) == (1, "", b"", (Event("tally/changed", (("item", "apples"),)),))
        assert judged(change(author, -4)) == (2, "only 3 of apples", b"3", ())
        assert judged(change(author, "a"))[:2] == (2, "item must be a string and change an integer")
        assert state == {APPLES: tally(3, author)}
        process.request_end()
        assert process.wait() == 0
        assert bare.unregistered


def test_a_family_moves_from_one_style_to_the_next(networks: Networks, author: Author, folder: Path) -> None:
    network = networks()
    network.up()
    network.environment["PYTHONPATH"] = f"{folder}:{ROOT}"
    api = networks.api(network)
    served = 0
    for how in ("tally:TallyHandler", "serve.py", "tally_new:TallyHandler"):
        process = start(network, folder, how, network.validator_url)
        api.commit(author.batch(change(author, 1)), author.batch(change(author, 5), change(author, -3)))
        served += 3
        assert api.leaf(APPLES) == tally(served, author)
        details = api.reject(author.batch(change(author, 1), change(author, -100)))
        assert (details["reason"], details["message"]) == ("invalid_transaction", f"only {served + 1} of apples")
        misfit = api.reject(author.batch(change(author, "a")))["message"]
        assert "change" in misfit
        process.request_end()
        assert process.wait() == 0
    # In the new style, the codec refuses the payload.
    assert misfit.startswith("the payload (application/json) does not fit: change ")


def start(network: Network, folder: Path, how: str, url: str) -> Process:
    """A processor of the family, started as the page says, with the old or the new handler."""
    places = {"tcp://127.0.0.1:4004": url, "tally:TallyHandler": how}
    if how != "serve.py":
        return network.start(*words("dovetail processor tally", places), name=how)
    (folder / how).write_text(FILES[how].replace("tcp://127.0.0.1:4004", url), encoding="utf-8")
    process = Process(how, [sys.executable, str(folder / how)], network.environment)
    network.processes.append(process)
    return process


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('["1.0"]', '"1.0"', "TypeError: TallyHandler.family_versions is the string '1.0'; write a list: ['1.0']"),
        ("[NAMESPACE]", "[nowhere]", "NameError: name 'nowhere' is not defined"),
        ("def namespaces", "def namespace", "TypeError: Can't instantiate abstract class TallyHandler"),
        ("class TallyHandler", "class Tallier", "tally has no handler class TallyHandler; it has Tallier"),
    ],
)
def test_a_mistake_in_a_handler_is_told(networks: Networks, folder: Path, before: str, after: str, said: str) -> None:
    network = networks()
    network.environment["PYTHONPATH"] = f"{folder}:{ROOT}"
    (folder / "tally.py").write_text(FILES["tally.py"].replace(before, after, 1))
    ran = network.run(*words("dovetail processor tally", {}))
    assert ran.code != 0
    assert said in ran.err


def test_a_node_is_made_from_what_a_1x_node_had(networks: Networks, tmp_path: Path) -> None:
    network = networks()
    alice = Author("alice")
    keys = tmp_path / ".sawtooth" / "keys"
    keys.mkdir(parents=True)
    for path, key in ((keys / "alice.priv", alice), (tmp_path / "validator.priv", Author("validator"))):
        path.write_text(f"{key.key}\n")
        path.chmod(0o600)
    places = {
        "/var/lib/dovetail": str(tmp_path / "ledger"),
        "/etc/sawtooth/keys/validator.priv": str(tmp_path / "validator.priv"),
        "~/.sawtooth": str(tmp_path / ".sawtooth"),
        "tcp://127.0.0.1:4004": network.validator_url,
        "127.0.0.1:8008": network.rest_bind,
        "node.toml": str(tmp_path / "node.toml"),
    }
    configuration = FILES["node.toml"]
    for place, real in places.items():
        configuration = configuration.replace(place, real)
    (tmp_path / "node.toml").write_text(configuration)
    assert network.run(*words("dovetail genesis", places)).code == 0
    for part in ("dovetail validator", "dovetail rest-api"):
        network.start(*words(part, places), name=part)
    for process in network.processes:
        process.wait_logged("ready")
    proposed = network.run(*words("dovetail settings propose", places))
    assert proposed.code == 0, proposed
    listed = network.run(*words("dovetail settings list", places))
    assert "sawtooth.validator.transaction_families" in listed.out
    api = networks.api(network)
    (genesis,) = api.get("/blocks", min=0, max=0)["data"]
    assert genesis["header"]["signer_pubkey"] == Author("validator").public_key
    refused = api.reject(alice.batch(alice.intkey("set", "apples", 1)))
    assert refused["reason"] == "family_not_permitted"
    assert api.http.get("/batch_statuses").status_code == 404
    for process in reversed(network.processes):
        process.signal(signal.SIGTERM)
        process.wait()
