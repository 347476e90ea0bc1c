"""Activation of versions: which block holds which version, under load and with kills."""

import os
from collections.abc import Callable
from random import Random

import pytest

from dovetail.ledger.permitted import Permission
from dovetail.ledger.settings import FamilyVersion
from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.network import INTKEY
from tests.system.e2e.upgrades_support import (
    INTKEY_2,
    UNHURRIED,
    V1,
    V2,
    Block,
    Load,
    Node,
    Stream,
    assert_each_once,
    inc,
    numbers_in,
    walk,
)
from tests.system.independent.client import Batch

KILLS = int(os.environ.get("DOVETAIL_TEST_ACTIVATION_KILLS", "1"))
"""In how many activations the validator is killed, each at another moment."""

_AHEAD = 25
"""The number of blocks between a plan and its activation."""

_OVERLAP = 20
"""The number of blocks that may hold both versions."""

_COMMITS = 20


class _Upgrade:
    """intkey from 1.0 to 2.0: 2.0 is permitted from ``activation``, 1.0 until ``last``."""

    def __init__(self, node: Node, author: Author, load: Load, overlap: int) -> None:
        self.node, self._author, self.load = node, author, load
        self.setup = [author.batch(inc(author, V1, name, "set", 0)) for name in ("old", "new")]
        node.api.commit(*self.setup)
        self.activation = node.head_num + _AHEAD
        self.last = self.activation - 1 + overlap
        permissions = (Permission(V1, until_block=self.last), Permission(V2, self.activation))
        self.setup.append(node.plan(*permissions))
        self.early = [author.batch(inc(author, V2, "new")) for _ in range(10)]
        node.api.accept(*self.early)

    def start(self) -> tuple[Stream, Stream]:
        """Start load of both versions before the activation."""
        return self.load.start(self._making(V1, "old")), self.load.start(self._making(V2, "new"))

    def _making(self, family: FamilyVersion, name: str) -> Callable[[], Batch]:
        return lambda: self._author.batch(inc(self._author, family, name))

    def assert_told(self) -> None:
        """Check the details of a batch that came too early."""
        for batch in self.early:
            assert self.node.api.details(batch) == {
                "reason": "waiting_for_activation",
                "message": f"{V2} is permitted from block {self.activation} on",
                "family_name": V2.name,
                "family_version": V2.version,
            }

    def finish(self, old: Stream, new: Stream) -> list[Block]:
        """Wait until 1.0 has ended and 2.0 has many commits.

        Check the versions in the chain's blocks, and return the blocks.
        """
        self.load.wait_until(lambda: bool(new.refused) or (bool(old.refused) and len(new.committed) >= _COMMITS))
        self.load.stop()
        api = self.node.api
        assert new.refused == {}
        assert set(api.settle(*self.early)) == {"COMMITTED"}
        blocks = walk(self.node.network.rest_url)
        for block in blocks:
            assert V2 not in block.families or block.num >= self.activation
            assert V1 not in block.families or block.num <= self.last
        assert any(V2 in block.families for block in blocks)
        assert_each_once(blocks, [*old.committed, *new.batches, *(batch.id for batch in self.early)])
        assert len(old.committed) + len(old.refused) == len(old.batches)
        for batch_id, details in old.refused.items():
            assert details["reason"] == "family_not_permitted"
            assert f"{V1} was permitted until block {self.last}, this is block " in details["message"]
            assert numbers_in(details["message"].partition("this is block ")[2])[0] > self.last
            assert f"{V2} from block {self.activation}" in details["message"]
            assert not any(batch_id in block.batches for block in blocks)
        assert api.intkey("old") == len(old.committed)
        assert api.intkey("new") == len(new.batches) + len(self.early)
        return blocks


def test_each_version_keeps_to_its_blocks_with_load_across(
    networks: Networks, author: Author, request: pytest.FixtureRequest
) -> None:
    """Both versions are permitted in some blocks.

    Another node with the same batches in each block has the same states.
    """
    node = Node(networks)
    node.processor(INTKEY, INTKEY_2)
    upgrade = _Upgrade(node, author, Load(node.network.rest_url, request), _OVERLAP)
    upgrade.assert_told()
    old, new = upgrade.start()
    blocks = upgrade.finish(old, new)
    assert any(V1 in block.families for block in blocks[upgrade.activation : upgrade.last + 1])
    given = {batch.id: batch for batch in (*upgrade.setup, *upgrade.early)} | old.batches | new.batches
    other = Node(networks, node.genesis, UNHURRIED)
    other.processor(INTKEY, INTKEY_2)
    other.assert_follows(blocks, given)


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_validator_killed_about_the_activation_keeps_to_it(
    networks: Networks, author: Author, request: pytest.FixtureRequest, seed: int
) -> None:
    """kill -9 once shortly before, in or after the first block of the new version, and once later."""
    chance = Random(seed)
    node = Node(networks)
    node.processor(INTKEY, INTKEY_2)
    upgrade = _Upgrade(node, author, Load(node.network.rest_url, request), overlap=chance.choice([0, 3, _OVERLAP]))
    old, new = upgrade.start()
    for moment in sorted({upgrade.activation + chance.randint(-3, 1), upgrade.activation + chance.randint(2, 5)}):
        if node.head_num < moment:
            node.validator.wait_logged("block committed", block_num=moment)
        node.kill(upgrade.load)
    upgrade.finish(old, new)
