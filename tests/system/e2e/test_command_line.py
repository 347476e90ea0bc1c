"""Every command of the command line in a process of its own, at the session's node: exit codes, output, JSON."""

import base64
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Networks, Shared
from tests.system.e2e.network import Network, Ran
from tests.system.independent.client import Batch, intkey_address

_COMMANDS = (
    "up", "validator", "rest-api", "processor", "genesis", "keygen", "intkey", "intkey set", "intkey inc", "intkey dec",
    "intkey show", "intkey list", "settings", "settings propose", "settings vote", "settings list", "block",
    "block list", "block show", "batch", "batch list", "batch show", "batch status", "transaction", "transaction list",
    "transaction show", "state", "state list", "state show",
)  # fmt: skip


@pytest.fixture
def call(shared: Shared) -> Callable[..., Ran]:
    """Run a command at the session's node. The command must succeed."""
    return shared.network.call


@pytest.fixture
def refuse(shared: Shared) -> Callable[..., str]:
    """Run a command at the session's node. The command must fail with exit code 1. Returns standard error."""

    def refuse(*words: str) -> str:
        ran = shared.network.run(*words, "--url", shared.network.rest_url)
        assert ran.code == 1, ran
        assert any(line.startswith("dovetail: ") for line in ran.err.splitlines()), ran
        assert "Traceback" not in ran.err
        return ran.err

    return refuse


@pytest.fixture
def committed(shared: Shared, author: Author, named: Callable[[str], str]) -> Batch:
    """A committed batch of two transactions."""
    name = named("n")
    batch = author.batch(author.intkey("set", name, 7), author.intkey("inc", name, 1))
    shared.api.commit(batch)
    return batch


class TestIntkey:
    """intkey set|inc|dec NAME VALUE, show NAME, list."""

    def test_set_inc_dec_show_list(
        self, call: Callable[..., Ran], refuse: Callable[..., str], named: Callable[[str], str]
    ) -> None:
        name = named("n")
        told = call("intkey", "set", name, "40", "--wait", "30", "--json").json
        assert told["status"] == "COMMITTED"
        told_by_inc = call("intkey", "inc", name, "5", "--wait", "30").out
        (newest,) = call("batch", "list", "--count", "1", "--json").json
        assert told_by_inc == f"batch {newest['header_signature']} COMMITTED\n"
        call("intkey", "dec", name, "3", "--wait", "30")
        assert call("intkey", "show", name).out == f"{name}: 42\n"
        assert call("intkey", "show", name, "--json").json == {"name": name, "value": 42}
        assert {"name": name, "value": 42} in call("intkey", "list", "--json").json
        assert name in call("intkey", "list").out
        assert "from 42 by 43 leaves 0 to 4294967295" in refuse("intkey", "dec", name, "43", "--wait", "30")
        assert named("absent") in refuse("intkey", "show", named("absent"))

    def test_without_wait_the_status_is_asked_for_later(
        self, shared: Shared, call: Callable[..., Ran], named: Callable[[str], str]
    ) -> None:
        accepted, follow = call("intkey", "set", named("n"), "1").out.splitlines()
        assert accepted.endswith(" accepted")
        batch_id = accepted.split()[1]
        followed = shared.network.run_command(follow.removeprefix("follow it: "))
        assert followed.code == 0
        assert "COMMITTED" in followed.out
        status = call("batch", "status", batch_id, "--json").json
        assert status == {batch_id: {"status": "COMMITTED", "details": {}}}

    def test_status_of_a_batch_that_is_waited_for_in_vain(
        self, shared: Shared, author: Author, named: Callable[[str], str], refuse: Callable[..., str]
    ) -> None:
        batch = author.batch(author.transaction(named("family"), b""))
        shared.api.accept(batch)
        said = refuse("batch", "status", batch.id, "--wait", "1")
        assert f"batch {batch.id} is still PENDING after 1 s: waiting_for_processor {named('family')} 1.0" in said


class TestReading:
    """block|batch|transaction|state list and show ID, with --json."""

    def test_block(self, shared: Shared, committed: Batch, call: Callable[..., Ran]) -> None:
        blocks = call("block", "list", "--json").json
        newest = blocks[0]["header"]["block_num"]
        assert [block["header"]["block_num"] for block in blocks] == list(range(newest, newest - len(blocks), -1))
        assert committed.id in blocks[0]["header"]["batch_ids"]
        block_id = blocks[0]["header_signature"]
        assert block_id in call("block", "list", "--count", "1").out
        assert call("block", "show", block_id, "--json").json == blocks[0]
        assert call("block", "show", str(newest), "--json").json == blocks[0]
        assert committed.id in call("block", "show", block_id).out

    def test_batch(self, committed: Batch, call: Callable[..., Ran]) -> None:
        (newest,) = call("batch", "list", "--count", "1", "--json").json
        assert newest["header_signature"] == committed.id
        assert committed.id in call("batch", "list").out
        assert call("batch", "show", committed.id, "--json").json == newest
        assert committed.transactions[1].id in call("batch", "show", committed.id).out

    def test_transaction(self, committed: Batch, call: Callable[..., Ran]) -> None:
        newest = call("transaction", "list", "--count", "2", "--json").json
        ids = [transaction.id for transaction in committed.transactions]
        assert [transaction["header_signature"] for transaction in newest] == ids
        assert ids[0] in call("transaction", "list").out
        assert call("transaction", "show", ids[0], "--json").json == newest[0]
        payload = base64.b64encode(committed.transactions[0].payload).decode()
        assert payload in call("transaction", "show", ids[0]).out

    def test_state(
        self, shared: Shared, committed: Batch, named: Callable[[str], str], call: Callable[..., Ran]
    ) -> None:
        address = intkey_address(named("n"))
        leaf = shared.api.leaf(address)
        assert leaf is not None
        shown = {"address": address, "data": base64.b64encode(leaf).decode()}
        assert call("state", "list", "--address", address[:20], "--json").json == [shown]
        assert shown in call("state", "list", "--count", "0", "--json").json
        assert call("state", "show", address, "--json").json == shown
        assert shown["data"] in call("state", "show", address).out
        assert shown["data"] in call("state", "list", "--address", address).out

    def test_what_is_not_there_is_refused_with_its_name(self, refuse: Callable[..., str]) -> None:
        absent = "0" * 128
        assert "Block Not Found" in refuse("block", "show", "999999")
        assert "Batch Not Found" in refuse("batch", "show", absent)
        assert "Transaction Not Found" in refuse("transaction", "show", absent)
        assert "State Not Found" in refuse("state", "show", "0" * 70)

    def test_old_state_by_head(
        self, shared: Shared, author: Author, committed: Batch, named: Callable[[str], str], call: Callable[..., Ran]
    ) -> None:
        head = shared.api.chain()[-1]
        shared.api.commit(*author.incs(named("n"), 1))
        assert call("intkey", "show", named("n"), "--head", head, "--json").json["value"] == 8
        assert call("intkey", "show", named("n"), "--json").json["value"] == 9


class TestWithoutANode:
    """--help everywhere; exit code 1 and the reason on stderr for refusals, 2 for wrong usage."""

    @pytest.fixture
    def alone(self, networks: Networks) -> Network:
        """A home folder, and addresses at which no process listens."""
        return networks()

    @pytest.mark.parametrize("command", ["", *_COMMANDS])
    def test_help(self, command: str, help_texts: dict[str, Ran]) -> None:
        ran = help_texts[command]
        assert (ran.code, ran.err) == (0, "")
        assert "Usage: dovetail" in " ".join(ran.out.split())

    def test_keygen_makes_keys_that_only_their_owner_reads(self, alone: Network) -> None:
        told = alone.run("keygen", "alice", "--json").json
        private = alone.home / "keys" / "alice.priv"
        assert told["private_key_file"] == str(private)
        assert private.stat().st_mode & 0o777 == 0o600
        assert private.with_suffix(".pub").read_text().strip() == told["public_key"]
        again = alone.run("keygen", "alice")
        assert again.code == 1
        assert "exists" in again.err
        assert alone.run("keygen", "alice", "--force", "--json").json["public_key"] != told["public_key"]

    def test_genesis_is_made_once(self, alone: Network) -> None:
        made = alone.run("genesis", "--data-dir", str(alone.data), "--json").json
        assert made["genesis"] == str(alone.data / "genesis.batch")
        again = alone.run("genesis", "--data-dir", str(alone.data))
        assert again.code == 1
        assert "has a ledger already" in again.err

    def test_nothing_answers(self, alone: Network) -> None:
        ran = alone.run("block", "list", "--url", alone.rest_url)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err == f"dovetail: nothing answers at {alone.rest_url}; is `dovetail up` running?\n"

    def test_key_that_is_not_there(self, alone: Network) -> None:
        ran = alone.run("intkey", "set", "n", "1", "--key", "nobody", "--url", alone.rest_url)
        assert ran.code == 1
        assert "dovetail keygen" in ran.err

    @pytest.mark.parametrize(
        "words",
        [("nonsense",), ("intkey", "set", "n"), ("intkey", "set", "n", "many"), ("block", "list", "--count", "-1")],
        ids=" ".join,
    )
    def test_wrong_usage(self, alone: Network, words: tuple[str, ...]) -> None:
        ran = alone.run(*words)
        assert (ran.code, ran.out) == (2, "")
        assert "Usage: dovetail" in ran.err

    def test_value_that_no_intkey_can_have(self, alone: Network) -> None:
        alone.run("keygen", "tester")
        ran = alone.run("intkey", "set", "n", str(2**32), "--url", alone.rest_url)
        assert ran.code == 2
        assert "4294967295" in ran.err

    @pytest.mark.parametrize("source", ["environment", "file", "flag"])
    def test_wrong_configuration_names_key_value_and_what_is_allowed(self, networks: Networks, source: str) -> None:
        network = networks(**({"DOVETAIL_VALIDATOR_BIND": "4004"} if source == "environment" else {}))
        network.data.mkdir(parents=True)
        file = network.data / "node.toml"
        file.write_text('[validator]\nbind = "4004"\n')
        words = {"environment": (), "file": ("--config", str(file)), "flag": ("--bind", "4004")}[source]
        ran = network.run("validator", "--data-dir", str(network.data), *words)
        assert ran.code == 1
        assert "validator.bind = '4004'" in ran.err
        assert "must be tcp://HOST:PORT" in ran.err

    @pytest.mark.parametrize(
        ("handler", "said"),
        [
            ("no.such.module:Handler", "cannot import no.such.module"),
            ("families.intkey.handler:Nobody", "it has IntkeyHandler"),
            ("families.intkey.handler", "names no handler"),
        ],
    )
    def test_processor_of_what_is_no_handler(self, alone: Network, handler: str, said: str) -> None:
        ran = alone.run("processor", handler, "--connect", alone.validator_url)
        assert ran.code == 1
        assert said in ran.err


@pytest.fixture(scope="module")
def help_texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """``--help`` of every command, each in a process of its own, two at a time."""
    network = Network(tmp_path_factory.mktemp("help"))
    try:
        with ThreadPoolExecutor(2) as pool:
            commands = ["", *_COMMANDS]
            return dict(zip(commands, pool.map(lambda c: network.run(*c.split(), "--help"), commands), strict=True))
    finally:
        network.close()
