"""The ledger's settings, changed over the command line, and their effects on the validator."""

import json

import pytest

from tests.system.e2e.clients import Api, Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.network import Network
from tests.system.e2e.script_family import NAMESPACE, bare_apply, script
from tests.system.independent.bare_processor import BareProcessor

_FAMILIES = "sawtooth.validator.transaction_families"
_KEYS = "sawtooth.settings.vote.authorized_keys"
_THRESHOLD = "sawtooth.settings.vote.approval_threshold"


class _Node:
    def __init__(self, networks: Networks) -> None:
        self.network: Network = networks()
        self.network.up()
        self.api: Api = networks.api(self.network)

    def propose(self, key: str, value: str, *words: str) -> str:
        """Propose, and check that the proposal is committed. Returns the id of the proposal."""
        ran = self.network.call("settings", "propose", key, value, "--wait", "30", "--json", *words)
        assert ran.json["status"] == "COMMITTED"
        return str(ran.json["proposal_id"])

    @property
    def settings(self) -> dict[str, str]:
        return dict(self.network.call("settings", "list", "--json").json["settings"])


@pytest.fixture
def node(networks: Networks) -> _Node:
    """A node whose settings a test may change."""
    return _Node(networks)


def _permit(*families: str) -> str:
    return json.dumps([{"family": family, "version": "1.0"} for family in families])


def test_only_permitted_families_commit(node: _Node, author: Author) -> None:
    """WIRE.md: when transaction_families is set, every other family is invalid, with or without a processor."""
    api = node.api
    with BareProcessor(node.network.validator_url, "e2e_other", "1.0", [NAMESPACE], bare_apply):
        api.commit(author.batch(author.transaction("e2e_other", script())))
        node.propose(_FAMILIES, _permit("intkey", "sawtooth_settings"))
        for family in ("e2e_other", "e2e_absent"):
            transaction = author.transaction(family, script())
            mixed = author.batch(author.intkey("set", f"with {family}", 1), transaction)
            details = api.reject(mixed)
            assert details["reason"] == "family_not_permitted"
            assert (details["family_name"], details["family_version"]) == (family, "1.0")
            assert details["transaction_id"] == transaction.id
            assert "intkey 1.0, sawtooth_settings 1.0" in details["message"]
            assert api.intkey(f"with {family}") is None
        api.commit(author.batch(author.intkey("set", "still here", 1)))
        node.propose(_FAMILIES, _permit("intkey", "sawtooth_settings", "e2e_other"))
        api.commit(author.batch(author.transaction("e2e_other", script())))


def test_batch_that_waits_is_judged_by_new_settings(node: _Node, author: Author) -> None:
    """A family loses its permission while its batch waits for a processor.

    The batch becomes INVALID without a processor.
    """
    waiting = author.batch(author.transaction("e2e_late", script()))
    node.api.accept(waiting)
    node.propose(_FAMILIES, _permit("intkey", "sawtooth_settings"))
    assert node.api.settle(waiting) == ["INVALID"]
    assert node.api.details(waiting)["reason"] == "family_not_permitted"


def test_votes_decide_with_a_threshold(node: _Node) -> None:
    """The commands settings propose, vote and list, with two authorized keys and a threshold of two."""
    network = node.network
    own = node.settings[_KEYS]
    other = network.run("keygen", "other", "--json").json["public_key"]
    node.propose(_KEYS, f"{own},{other}")
    node.propose(_THRESHOLD, "2")
    accepted, rejected = node.propose("my.setting", "on"), node.propose("my.other", "off")
    listed = network.call("settings", "list", "--json").json
    assert "my.setting" not in listed["settings"]
    assert {proposal["proposal_id"] for proposal in listed["proposals"]} == {accepted, rejected}
    assert listed["proposals"][0]["votes"] == {own: "accept"}

    network.call("settings", "vote", accepted[:12], "accept", "--key", "other", "--wait", "30")
    network.call("settings", "vote", rejected, "reject", "--key", "other", "--wait", "30")
    listed = network.call("settings", "list", "--json").json
    assert listed["settings"]["my.setting"] == "on"
    assert "my.other" not in listed["settings"]
    assert listed["proposals"] == []
    assert "my.setting" in network.call("settings", "list").out

    gone = network.run("settings", "vote", accepted, "accept", "--key", "other", "--url", network.rest_url)
    assert gone.code == 1
    assert "there is no open proposal" in gone.err


def test_key_that_is_not_authorized_is_refused(node: _Node) -> None:
    """Exit code 1, the reason on stderr, and an unchanged setting."""
    node.network.run("keygen", "stranger")
    words = ("settings", "propose", "my.setting", "on", "--key", "stranger", "--wait", "30")
    refused = node.network.run(*words, "--url", node.network.rest_url)
    assert refused.code == 1
    assert "is not authorized to change settings" in refused.err
    assert "my.setting" not in node.settings
