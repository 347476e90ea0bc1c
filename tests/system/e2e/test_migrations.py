"""Migrations run once, whole, in one block before their version, whatever is killed or refused meanwhile."""

import signal
from contextlib import suppress

import psutil
import pytest

from dovetail.client import DovetailClient, decode_base64
from dovetail.ledger.permitted import Permission
from dovetail.ledger.settings import FamilyVersion
from tests.system.e2e import moved_family
from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.moved_family import GATE, HANDLER_1, HANDLER_2, NAMESPACE, REFUSAL, REFUSING_2, Leaf
from tests.system.e2e.network import INTKEY
from tests.system.e2e.process import Process
from tests.system.e2e.script_family import Gate
from tests.system.e2e.upgrades_support import UNHURRIED, V1, Block, Load, Node, assert_each_once, inc, walk
from tests.system.independent import client as ledger
from tests.system.independent.client import Batch

_AHEAD = 25
"""The number of blocks between a plan and its activation."""

_COMMITS = 20
_SLICED_LEAVES = 5_000
_LEAVES_A_BATCH = 100


class _Migration:
    """The upgrade of the moved family from 1.0 to 2.0.

    Its leaves are migrated at ``activation``. intkey runs beside it.
    """

    def __init__(self, node: Node, author: Author, load: Load, leaves: int, port: int | None = None) -> None:
        self.node, self._author, self.load = node, author, load
        self.values = {number: number + 1 for number in range(leaves)}
        numbers = list(self.values)
        pieces = [numbers[start : start + _LEAVES_A_BATCH] for start in range(0, leaves, _LEAVES_A_BATCH)]
        self.given = [
            self.batch(moved_family.V1, {number: self.values[number] for number in piece}) for piece in pieces
        ]
        if port is not None:
            self.given.append(self.batch(moved_family.V1, {GATE: port}))
        self.given.append(author.batch(inc(author, V1, "beside", "set", 0)))
        node.feed(self.given)
        self.slices = 256 if leaves > 2_000 else 1
        """The number of transactions of the migration."""
        self.activation = node.head_num + _AHEAD
        self.given.append(
            node.plan(
                Permission(V1),
                Permission(moved_family.V1, until_block=self.activation - 1),
                Permission(moved_family.V2, self.activation, migrate=(NAMESPACE,)),
            )
        )
        self.early = self.batch(moved_family.V2, {0: 1})
        node.api.accept(self.early)

    def batch(self, family: FamilyVersion, values: dict[int, int]) -> Batch:
        """A batch that adds these values."""
        touched = [moved_family.address(number) for number in values]
        author = self._author
        return author.batch(
            ledger.make_transaction(
                author.key, author.public_key, *family, touched, touched, moved_family.payload(values)
            )
        )

    def start(self) -> None:
        """Start load of both versions, each on a leaf of its own, and of intkey."""
        author = self._author
        self.old = self.load.start(lambda: self.batch(moved_family.V1, {1: 1}), 2)
        self.new = self.load.start(lambda: self.batch(moved_family.V2, {2: 1}), 2)
        self.beside = self.load.start(lambda: author.batch(inc(author, V1, "beside")), 2)

    def batches(self) -> dict[str, Batch]:
        """All submitted batches, by id."""
        alone = {batch.id: batch for batch in (*self.given, self.early)}
        return alone | self.old.batches | self.new.batches | self.beside.batches

    def finish(self) -> list[Block]:
        """Wait for commits of 2.0, and return all blocks.

        Checks that all leaves were migrated once, in one block, before the first transaction of 2.0.
        """
        self.load.wait_until(
            lambda: bool(self.new.refused) or (len(self.new.committed) >= _COMMITS and len(self.old.refused) == 2)
        )
        self.load.stop()
        assert self.new.refused == self.beside.refused == {}
        assert {details["reason"] for details in self.old.refused.values()} == {"family_not_permitted"}
        assert self.node.api.settle(self.early) == ["COMMITTED"]
        blocks = walk(self.node.network.rest_url)
        (block,) = (block for block in blocks if block.migrations)
        (name,) = block.migrations
        assert block.batches[name] == [moved_family.V2] * self.slices
        assert block.num >= self.activation
        for other in blocks:
            assert moved_family.V1 not in other.families or other.num < self.activation
            assert moved_family.V2 not in other.families or other.num > block.num
        assert_each_once(blocks, [*self.old.committed, *self.new.batches, *self.beside.batches, self.early.id])
        expected = dict(self.values)
        for number, count in ((0, 1), (1, len(self.old.committed)), (2, len(self.new.batches))):
            expected[number] += count
        assert self._leaves() == {number: Leaf(value, 1) for number, value in expected.items()}
        assert self.node.api.intkey("beside") == len(self.beside.batches)
        return blocks

    def _leaves(self) -> dict[int, Leaf]:
        """The leaves of the state by number, without the gate."""
        with DovetailClient(self.node.network.rest_url) as client:
            found = {item["address"]: item["data"] for item in client.items("state", address=NAMESPACE, count=1_000)}
        found.pop(moved_family.address(GATE), None)
        numbers = {moved_family.address(number): number for number in self.values}
        return {numbers[address]: moved_family.leaf_of(decode_base64(data)) for address, data in found.items()}


def _migration(
    networks: Networks, author: Author, request: pytest.FixtureRequest, leaves: int, port: int | None = None
) -> _Migration:
    """A node with the old version and intkey, and the plan on its chain."""
    node = Node(networks, environment=UNHURRIED)
    node.processor(INTKEY, HANDLER_1)
    return _Migration(node, author, Load(node.network.rest_url, request), leaves, port)


@pytest.mark.parametrize("leaves", [300, _SLICED_LEAVES])
def test_a_migration_is_in_the_first_block_that_may_hold_it(
    networks: Networks, author: Author, request: pytest.FixtureRequest, leaves: int
) -> None:
    """Under load, the migration is in the activation's block.

    Another node with its own keys makes the same migration.
    """
    migration = _migration(networks, author, request, leaves)
    migration.node.processor(HANDLER_2)
    migration.start()
    blocks = migration.finish()
    assert [block.num for block in blocks if block.migrations] == [migration.activation]

    other = Node(networks, migration.node.genesis, UNHURRIED)
    other.processor(INTKEY, HANDLER_1, HANDLER_2)
    other.assert_follows(blocks, migration.batches())


def test_a_migration_that_is_cut_short_is_made_once(
    networks: Networks, author: Author, request: pytest.FixtureRequest, gate: Gate
) -> None:
    """SIGKILL ends the processor, then the validator, each while some slices are done and one is in progress."""
    migration = _migration(networks, author, request, _SLICED_LEAVES, gate.port)
    node = migration.node
    processor = node.processor(HANDLER_2)
    migration.start()
    gate.wait()
    _kill(processor)
    processor = node.processor(HANDLER_2)
    gate.wait()
    node.kill(migration.load)
    # The old worker finishes a slice that is no longer needed, and then gets the first slice again.
    gate.open()
    gate.wait()
    _kill(processor)
    node.processor(HANDLER_2)
    gate.wait()
    gate.open()
    migration.finish()


@pytest.mark.parametrize("order", ["the refusing build ends first", "the mended build comes first"])
def test_a_refused_migration_leaves_nothing_and_another_build_makes_it(
    networks: Networks, author: Author, request: pytest.FixtureRequest, order: str
) -> None:
    """One slice is refused after others are done.

    Nothing is kept, other families continue, and the next build is asked.
    """
    migration = _migration(networks, author, request, _SLICED_LEAVES)
    node = migration.node
    refusing = node.processor(REFUSING_2)
    migration.start()
    _wait_refused(node)
    migration.load.wait_for_commits(_COMMITS, migration.beside)
    assert migration.new.committed == []
    details = node.api.details(migration.early)
    assert (details["reason"], details["family_version"]) == ("waiting_for_activation", "2.0")
    touched = [node.api.leaf(moved_family.address(number)) for number in range(3, 20)]
    assert touched == [b"%d" % migration.values[number] for number in range(3, 20)]
    assert not any(block.migrations for block in walk(node.network.rest_url))
    if order == "the refusing build ends first":
        assert refusing.terminate() == 0
        node.processor(HANDLER_2)
    else:
        node.processor(HANDLER_2)
        assert node.api.settle(migration.early) == ["COMMITTED"]
        assert refusing.terminate() == 0
    migration.finish()


def test_a_refused_migration_is_tried_again_when_a_build_leaves(
    networks: Networks, author: Author, request: pytest.FixtureRequest
) -> None:
    """The processor that connected last is asked; when it leaves, the one before it migrates."""
    migration = _migration(networks, author, request, 300)
    node = migration.node
    node.processor(HANDLER_2)
    refusing = node.processor(REFUSING_2)
    migration.start()
    _wait_refused(node)
    assert refusing.terminate() == 0
    migration.finish()


def _wait_refused(node: Node) -> None:
    refused = node.validator.wait_logged(
        "migration refused, its version waits: start a build that migrates this, or cancel the upgrade"
    )
    assert REFUSAL in refused.logged["message"]


def _kill(processor: Process) -> None:
    """Kill the processor with its workers, so that none of its processes answers any more."""
    workers = processor.descendants()
    processor.signal(signal.SIGKILL)
    for worker in workers:
        with suppress(psutil.NoSuchProcess):
            worker.kill()
    processor.wait()
