"""No setting that a client proposes, and no vote, shuts out the changes of settings that come later."""

import json

import pytest

from tests.system.e2e.clients import Api, Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.conftest import networks as networks
from tests.system.e2e.network import Network
from tests.system.independent import secp256k1, settings

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

INTKEY = {"family": "intkey", "version": "1.0"}
SETTINGS = {"family": "sawtooth_settings", "version": "1.0"}
NO_POINT = "02" + "00" * 32
"""The form of a public key, with which nobody can sign."""

LOCKING = [
    [],
    [INTKEY],
    [{**SETTINGS, "version": "2.0"}, INTKEY],
    [{**SETTINGS, "until_block": 1_000}, INTKEY],
    [{**SETTINGS, "from_block": 1_000_000}, INTKEY],
    [{**SETTINGS, "migrate": ["1cf126"]}, INTKEY],
    [{**SETTINGS, "until_block": 2}, {**SETTINGS, "from_block": 4}, INTKEY],
    [SETTINGS, {**INTKEY, "migrate": ["000000"]}],
]


def holder(network: Network) -> Author:
    """The key that may change settings, which the genesis of ``up`` authorizes."""
    author = Author("holder")
    author.key = (network.home / "keys" / "tester.priv").read_text().strip()
    author.public_key = secp256k1.public_key(author.key)
    return author


def change(api: Api, author: Author, setting: str, value: str) -> None:
    api.commit(settings.propose(author.key, setting, value).batch)


def test_a_client_of_the_1x_line_locks_no_ledger(networks: Networks) -> None:
    network = networks()
    network.up()
    api, author = networks.api(network), holder(network)
    refused = [
        *((settings.FAMILIES, json.dumps(entries)) for entries in LOCKING),
        (settings.KEYS, f"{author.public_key},{NO_POINT}"),
        (settings.KEYS, NO_POINT),
        (settings.KEYS, f"{author.public_key},{author.public_key}"),
        (settings.KEYS, ""),
        (settings.THRESHOLD, "2"),
        (settings.THRESHOLD, "0"),
    ]
    for setting, value in refused:
        assert api.reject(settings.propose(author.key, setting, value).batch)["reason"] == "invalid_transaction"
        # Whatever was tried before, settings still change.
        change(api, author, "my.setting", value)
    change(api, author, settings.FAMILIES, json.dumps([INTKEY, SETTINGS]))
    change(api, author, "my.setting", "on")


def test_no_vote_and_no_order_of_votes_locks_a_ledger(networks: Networks) -> None:
    """Both keys propose, then the other one votes: what each change alone would allow, both together would not."""
    network = networks()
    network.up()
    api, first, second, third = networks.api(network), holder(network), Author("second"), Author("third")
    three = ",".join(one.public_key for one in (first, second, third))
    change(api, first, settings.KEYS, three)
    change(api, first, settings.THRESHOLD, "2")
    fewer = settings.propose(first.key, settings.KEYS, f"{first.public_key},{second.public_key}")
    higher = settings.propose(second.key, settings.THRESHOLD, "3")
    api.commit(fewer.batch, higher.batch)
    api.commit(settings.accept(first.key, higher.id, higher.setting))
    api.commit(settings.accept(second.key, fewer.id, fewer.setting))
    assert "fewer than 3 votes need" in api.reject(settings.accept(third.key, fewer.id, fewer.setting))["message"]
    last = settings.propose(third.key, settings.THRESHOLD, "1")
    api.commit(last.batch)
    api.commit(settings.accept(first.key, last.id, last.setting))
    api.commit(settings.accept(second.key, last.id, last.setting))
    change(api, third, "my.setting", "on")


def test_one_key_of_many_leaves_room_for_the_votes_on_others(networks: Networks) -> None:
    """One authorized key proposes as much as it may. The other keys, which are enough, decide all the same."""
    network = networks()
    network.up()
    api, first = networks.api(network), holder(network)
    others = [Author(f"key {number}") for number in range(3)]
    change(api, first, settings.KEYS, ",".join(one.public_key for one in (first, *others)))
    change(api, first, settings.THRESHOLD, "3")
    for size in (1_000_000, 100_000, 10_000, 1_000, 100, 1):
        while api.post(settings.propose(first.key, "my.setting", "x" * size).batch, wait=60).status_code == 201:
            pass
    good = settings.propose(others[0].key, "my.setting", "on")
    api.commit(good.batch)
    for one in others[1:]:
        api.commit(settings.accept(one.key, good.id, good.setting))
