"""A proposal is a change of the value that it was made against: it never undoes, unseen, what changed meanwhile."""

import json

import pytest

from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.conftest import networks as networks
from tests.system.e2e.network import Network
from tests.system.independent import settings

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def two_of_three(networks: Networks) -> tuple[Network, list[str]]:
    """A node whose settings change with two votes. Returns it and the public keys of tester, alice and bob."""
    network = networks()
    network.up()
    keys = [network.call("settings", "list", "--json").json["settings"][settings.KEYS]]
    keys += [network.run("keygen", name, "--json").json["public_key"] for name in ("alice", "bob")]
    network.call("settings", "propose", settings.KEYS, ",".join(keys), "--wait", "30")
    network.call("settings", "propose", settings.THRESHOLD, "2", "--wait", "30")
    return network, keys


def families(network: Network) -> set[tuple[str, str]]:
    value = network.call("settings", "list", "--json").json["settings"].get(settings.FAMILIES, "[]")
    return {(entry["family"], entry["version"]) for entry in json.loads(value)}


def plan(network: Network, family: str, key: str) -> str:
    words = ("upgrade", "plan", family, "1.0", "2.0", "--at", "+1000", "--also", f"{family}:1.0", "--yes", "--json")
    return str(network.call(*words, "--key", key).json["proposal_id"])


def test_the_second_plan_does_not_remove_the_first(networks: Networks) -> None:
    network, _ = two_of_three(networks)
    start = [{"family": name, "version": "1.0"} for name in ("sawtooth_settings", "intkey", "xo")]
    both = network.call("settings", "propose", settings.FAMILIES, json.dumps(start), "--wait", "30", "--json").json
    network.call("settings", "vote", both["proposal_id"], "accept", "--key", "bob", "--wait", "30")
    first, second = plan(network, "intkey", "tester"), plan(network, "xo", "alice")
    network.call("settings", "vote", first, "accept", "--key", "bob", "--wait", "30")
    assert ("intkey", "2.0") in families(network)

    # The command refuses the vote, and says why to everybody who looks.
    words = ("settings", "vote", second, "accept", "--key", "bob", "--wait", "30", "--url", network.rest_url)
    refused = network.run(*words)
    assert ("intkey", "2.0") in families(network), "the second plan removed the first"
    assert refused.code == 1
    assert "it would undo what changed meanwhile" in refused.err
    assert "cannot take effect" in network.call("settings", "list").err
    status = network.run("upgrade", "status", "--url", network.rest_url)
    assert status.code == 1
    assert "cannot take effect" in status.out

    # The ledger refuses the vote of a client that does not look.
    api, bob = networks.api(network), Author("bob")
    bob.key = (network.home / "keys" / "bob.priv").read_text().strip()
    cast = settings.accept(bob.key, second, settings.FAMILIES)
    message = api.reject(cast)["message"]
    assert f"proposal {second} cannot take effect" in message
    assert "was made against its value" in message
    assert ("xo", "2.0") not in families(network)

    # Voted against and made anew, the second plan comes beside the first.
    network.call("settings", "vote", second, "reject", "--key", "bob", "--wait", "30")
    network.call("settings", "vote", second, "reject", "--key", "tester", "--wait", "30")
    again = plan(network, "xo", "alice")
    network.call("settings", "vote", again, "accept", "--key", "bob", "--wait", "30")
    assert families(network) >= {("intkey", "2.0"), ("xo", "2.0")}


def test_proposals_of_the_1x_line_do_not_undo_each_other(networks: Networks) -> None:
    """They name no value. Each was made against the value of the state that it met."""
    network, _ = two_of_three(networks)
    api = networks.api(network)
    tester, alice, bob = (
        (network.home / "keys" / f"{name}.priv").read_text().strip() for name in ("tester", "alice", "bob")
    )
    one, two = settings.propose(tester, "my.limit", "1"), settings.propose(alice, "my.limit", "2")
    other = settings.propose(alice, "my.other", "3")
    api.commit(one.batch, two.batch, other.batch)
    api.commit(settings.accept(bob, one.id, one.setting))
    api.commit(settings.accept(bob, other.id, other.setting))
    message = api.reject(settings.accept(tester, two.id, two.setting))["message"]
    assert "'my.limit' was made against its value unset" in message
    listed = network.call("settings", "list", "--json").json
    assert (listed["settings"]["my.limit"], listed["settings"]["my.other"]) == ("1", "3")
    (left,) = listed["proposals"]
    assert (left["proposal_id"], "made against" in left["refusal"]) == (two.id, True)
