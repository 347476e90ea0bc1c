"""Every processor is replaced in turn under load of two versions. No batch is affected."""

import os
from collections.abc import Callable

import pytest

from dovetail.ledger.settings import FamilyVersion
from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.network import INTKEY
from tests.system.e2e.upgrades_support import INTKEY_2, V1, V2, Load, Node, Stream, assert_each_once, inc, walk
from tests.system.independent.client import Batch

REPLACEMENTS = int(os.environ.get("DOVETAIL_TEST_REPLACEMENTS", "2"))
"""How often a processor is replaced; half as often if it serves both versions."""

SECONDS_A_REPLACEMENT = 10.0
"""Far more than a replacement takes."""

_COMMITS_A_REPLACEMENT = 10
_GAPS = 2
_NAMES = ("of both", "of 1.0", "of 2.0")

_LAYOUTS: dict[str, list[tuple[str, ...]]] = {
    "apart": [(INTKEY,), (INTKEY,), (INTKEY_2,), (INTKEY_2,)],
    "together": [(INTKEY, INTKEY_2), (INTKEY, INTKEY_2)],
}


class _Loaded:
    """A node under load of both versions. Each version has a name of its own, and both use one shared name."""

    def __init__(self, node: Node, author: Author, request: pytest.FixtureRequest) -> None:
        self.node = node
        self._author = author
        self.setup = author.batch(*(inc(author, V1, name, "set", 0) for name in _NAMES))
        node.api.commit(self.setup)
        self.load = Load(node.network.rest_url, request)
        self.v1 = self.load.start(self._making(V1, "of 1.0"))
        self.v2 = self.load.start(self._making(V2, "of 2.0"))
        self.load.wait_for_commits(_COMMITS_A_REPLACEMENT, self.v1, self.v2)

    def _making(self, family: FamilyVersion, name: str) -> Callable[[], Batch]:
        return lambda: self._author.batch(inc(self._author, family, name), inc(self._author, family, "of both"))

    def batch_of(self, stream: Stream) -> Batch:
        """One more batch for the test itself, which no sender sends."""
        batch = stream.make()
        stream.batches[batch.id] = batch
        return batch

    def finish(self) -> list[str]:
        """Check that every batch of the load is committed and applied once. Returns all batches in chain order."""
        self.load.stop()
        for stream in (self.v1, self.v2):
            assert stream.refused == {}
        blocks = walk(self.node.network.rest_url)
        assert_each_once(blocks, [*self.v1.batches, *self.v2.batches])
        counts = [len(self.v1.batches) + len(self.v2.batches), len(self.v1.batches), len(self.v2.batches)]
        assert [self.node.api.intkey(name) for name in _NAMES] == counts
        in_order = [name for block in blocks[1:] for name in block.batches]
        assert len(in_order) == counts[0] + 1
        return in_order

    def batches(self) -> dict[str, Batch]:
        """All submitted batches, by id."""
        return {self.setup.id: self.setup, **self.v1.batches, **self.v2.batches}

    def report(self, record: Callable[[str, object], None]) -> None:
        """Record the longest time without a commit of each version, for the report."""
        for version, stream in (("1.0", self.v1), ("2.0", self.v2)):
            record(f"batches of {version}", len(stream.batches))
            record(f"longest stall of {version} in ms", round(stream.stall_ms))
            print(f"\n{version}: {len(stream.batches)} batches, longest stall {stream.stall_ms:.0f} ms", end="")


@pytest.mark.timeout(120 + REPLACEMENTS * SECONDS_A_REPLACEMENT)
@pytest.mark.parametrize("layout", _LAYOUTS)
def test_replacing_every_processor_in_turn_fails_nothing_and_runs_nothing_twice(
    networks: Networks,
    author: Author,
    request: pytest.FixtureRequest,
    layout: str,
    record_property: Callable[[str, object], None],
) -> None:
    """The new processor registers before the old one ends: no batch waits for a processor, no task is lost."""
    places = _LAYOUTS[layout]
    node = Node(networks)
    running = [node.processor(*handlers) for handlers in places]
    replacements = REPLACEMENTS if layout == "apart" else REPLACEMENTS // 2
    under_load = _Loaded(node, author, request)
    for turn in range(replacements):
        place = turn % len(places)
        replacement = node.processor(*places[place])
        replaced, running[place] = running[place], replacement
        assert replaced.terminate() == 0
        under_load.load.wait_for_commits(_COMMITS_A_REPLACEMENT, under_load.v1, under_load.v2)
    in_order = under_load.finish()
    under_load.report(record_property)
    node.assert_no_task_was_lost()
    assert min(node.lowest_counts(V1, V2).values()) >= 1
    assert node.validator.count_logged("processor left") == replacements

    undisturbed = Node(networks, node.genesis)
    for handlers in places[::2]:
        undisturbed.processor(*handlers)
    batches = under_load.batches()
    undisturbed.feed(batches[name] for name in in_order)
    assert walk(undisturbed.network.rest_url)[-1].root == walk(node.network.rest_url)[-1].root


def test_a_gap_between_two_processors_is_waited_for(
    networks: Networks, author: Author, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    """Without a processor of a version, its batches wait, and their status says why. The other version continues."""
    node = Node(networks)
    node.processor(INTKEY)
    processor = node.processor(INTKEY_2)
    under_load = _Loaded(node, author, request)
    for _ in range(_GAPS):
        assert processor.terminate() == 0
        waiting = under_load.batch_of(under_load.v2)
        node.api.accept(waiting)
        # This batch arrives after the waiting batch, so the validator has handled the waiting batch when this one is
        # committed.
        node.api.commit(under_load.batch_of(under_load.v1))
        assert node.api.details(waiting) == {
            "reason": "waiting_for_processor",
            "family_name": V2.name,
            "family_version": V2.version,
        }
        under_load.load.wait_for_commits(_COMMITS_A_REPLACEMENT, under_load.v1)
        processor = node.processor(INTKEY_2)
        assert node.api.settle(waiting) == ["COMMITTED"]
        under_load.load.wait_for_commits(_COMMITS_A_REPLACEMENT, under_load.v1, under_load.v2)
    under_load.finish()
    under_load.report(record_property)
    node.assert_no_task_was_lost()
    assert node.lowest_counts(V1, V2) == {V1: 1, V2: 0}
