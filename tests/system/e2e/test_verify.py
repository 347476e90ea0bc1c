"""``dovetail chain verify`` on a real node's ledger: while the node runs, after its end, and with --reexecute."""

import json
from collections.abc import Iterator

import pytest

from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.network import Network, Ran
from tests.system.e2e.planted_family import KILL_ONCE
from tests.system.e2e.script_family import HANDLER

_NAMES = 40
_DECS = 5


class Ledger:
    """The ledger of a node that has ended; ``decs``: the dec transactions."""

    def __init__(self, network: Network, decs: list[str]) -> None:
        self.network = network
        self.decs = decs
        self.transcript = network.transcript

    def verify(self, *words: str) -> Ran:
        return self.network.run("chain", "verify", "--data-dir", str(self.network.data), "--processes", "1", *words)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """A ledger of several blocks: sets, incs and decs of intkey, one or many in a batch, and an INVALID one."""
    nodes = Networks(tmp_path_factory.mktemp("verify"))
    author = Author("verify")
    try:
        network = nodes(**{KILL_ONCE: str(tmp_path_factory.mktemp("kill") / "once")})
        up = network.up()
        api = nodes.api(network)
        api.commit(*(author.batch(author.intkey("set", f"n{number}", 50)) for number in range(_NAMES)))
        api.reject(author.batch(author.intkey("inc", "nobody", 1)))
        api.commit(author.batch(*(author.intkey("inc", f"n{number}", 1) for number in range(_NAMES))))
        decs = [author.intkey("dec", f"n{number}", 2) for number in range(_DECS)]
        api.commit(*(author.batch(transaction) for transaction in decs))
        made = Ledger(network, [transaction.id for transaction in decs])
        beside = made.verify("--json")
        assert (beside.code, beside.json["sound"]) == (0, True), beside
        assert up.terminate() == 0
        yield made
    finally:
        nodes.close()


def test_a_stopped_nodes_ledger_is_sound_in_whole_and_in_part(ledger: Ledger) -> None:
    whole = ledger.verify("--json").json
    assert whole["sound"] is True
    assert whole["transactions"] == 1 + 2 * _NAMES + _DECS
    part = ledger.verify("--json", "--from", "1", "--to", str(whole["last_block"])).json
    assert (part["sound"], part["transactions"]) == (True, whole["transactions"] - 1)


def test_history_run_again_comes_to_the_same(ledger: Ledger) -> None:
    ran = ledger.verify("--reexecute", "--json")
    assert ran.code == 0, ran
    assert ran.json["reexecuted_transactions"] == ran.json["transactions"] == 1 + 2 * _NAMES + _DECS
    assert "processors may connect at tcp://127.0.0.1:" in ran.err


def test_a_handler_that_judges_otherwise_is_found_at_each_transaction_of_its(ledger: Ledger) -> None:
    ran = ledger.verify("--reexecute", "--json", "--family", "tests.system.e2e.planted_family:Planted")
    assert ran.code == 1
    state = [finding for finding in ran.json["findings"] if finding["what"] == "reexecuted_state"]
    found = [name for name in ledger.decs if any(name in finding["where"] for finding in state)]
    assert found == ledger.decs
    assert len(state) == _DECS
    assert set(ran.json["findings_by_kind"]) == {"reexecuted_state", "reexecuted_root"}
    assert "a version's rules may never change" in ran.err


def test_a_processor_that_is_killed_meanwhile_changes_nothing(ledger: Ledger) -> None:
    ran = ledger.verify("--reexecute", "--json", "--family", "tests.system.e2e.planted_family:KilledOnce")
    assert ran.code == 0, ran
    assert ran.json["reexecuted_transactions"] == ran.json["transactions"]


def test_a_version_that_nobody_serves_is_named_before_anything_runs(networks: Networks, author: Author) -> None:
    network = networks()
    up = network.up()
    script = network.processor(HANDLER)
    script.wait_logged("ready")
    api = networks.api(network)
    api.commit(author.batch(author.intkey("set", "a", 1)))
    api.commit(author.batch(author.transaction("e2e_script", json.dumps([]).encode())))
    script.terminate()
    up.terminate()
    words = ("chain", "verify", "--data-dir", str(network.data), "--processes", "1", "--reexecute")
    ran = network.run(*words, "--wait-s", "0")
    assert ran.code == 1
    assert "history needs processors that are not started here: e2e_script 1.0 (first in block 2)" in ran.err
    assert "no processor of e2e_script 1.0 (first in block 2)" in ran.err.splitlines()[-1]
    assert "0 blocks were run again" in ran.err
    # A processor that connects during the wait is enough.
    replay = network.start(*words, "--wait-s", "60", "--json")
    endpoint = replay.wait_for_line(r"connect at (\S+)$").text.rpartition(" ")[2]
    network.start("processor", HANDLER, "--connect", endpoint)
    assert replay.wait() == 0
    assert json.loads(replay.out[-1])["reexecuted_transactions"] == 3
