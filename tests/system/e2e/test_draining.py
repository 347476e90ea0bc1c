"""A processor that is told to end while it has tasks gets no new tasks, and finishes its tasks. Nothing is lost."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.system.e2e.clients import Api, Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.network import Network
from tests.system.e2e.process import Process
from tests.system.e2e.script_family import Gate, script
from tests.system.e2e.versioned_family import FAMILY
from tests.system.independent.client import Batch, make_transaction

_MODULE = "tests.system.e2e.versioned_family"
_VERSIONS = ("1.0", "2.0")
_NODE = {"DOVETAIL_LIMITS_BLOCK_EXECUTION_MS_MAX": "1"}
"""Blocks do not wait for held batches."""

_PATIENT = ("--apply-timeout-ms", "60000")


def _batch(author: Author, version: str, *payloads: bytes) -> Batch:
    return author.batch(
        *(make_transaction(author.key, author.public_key, FAMILY, version, (), (), payload) for payload in payloads)
    )


def _started(network: Network, build: str, prefix: str, *, together: bool) -> list[Process]:
    """Registered processors of both versions: one process for both, or one process for each."""
    handlers = [f"{_MODULE}:{prefix}{name}" for name in ("First", "Second")]
    started = [
        network.start(
            "processor", *named, "--connect", network.validator_url, "--build-id", build, *_PATIENT, name=build
        )
        for named in ([handlers] if together else [[handler] for handler in handlers])
    ]
    for process in started:
        process.wait_logged("ready")
    return started


def _listed(api: Api) -> Counter[tuple[str, str, str]]:
    """The number of this family's registrations by state, version and build."""
    return Counter(
        (entry["state"], family["family_version"], family["build_id"])
        for entry in api.http.get("/status/processors").json()["data"]
        for family in entry["families"]
        if family["family_name"] == FAMILY
    )


def _drain(up: Process, leaving: Sequence[Process]) -> None:
    """Tell the processes to end, and wait until the validator has logged that they unregistered."""
    mark = len(up.lines)
    for process in leaving:
        process.request_end()
    for _ in leaving:
        mark = up.lines.index(up.wait_logged("processor left", after=mark, reason="it unregistered")) + 1


@pytest.mark.parametrize("prefix", ["", "Conversing"], ids=["packed", "1.x"])
class TestReplacement:
    """A draining processor gets no new tasks, its replacement takes over, and no batch fails."""

    @pytest.mark.parametrize("together", [True, False], ids=["one process", "two processes"])
    def test_the_new_one_first(
        self, networks: Networks, author: Author, gate: Gate, prefix: str, together: bool
    ) -> None:
        network = networks(**_NODE)
        up, api = network.up(), networks.api(network)
        old = _started(network, "old", prefix, together=together)
        # There are many batches of one transaction. The first of them is being applied.
        held = _batch(author, "1.0", script(("hold", gate.port)), script(), script())
        behind = [_batch(author, version, script()) for version in _VERSIONS for _ in range(30)]
        api.accept(held, *behind)
        gate.wait()
        _started(network, "new", prefix, together=together)
        both = {("takes_work", version, build): 1 for version in _VERSIONS for build in ("old", "new")}
        assert _listed(api) == both
        _drain(up, old)
        listed = _listed(api)
        assert listed["draining", "1.0", "old"] == 1
        assert not any(listed["takes_work", version, "old"] for version in _VERSIONS)
        # While the old processor still applies, the new one serves both versions.
        api.commit(*(_batch(author, version, script()) for version in _VERSIONS for _ in range(10)))
        assert api.words(held) == ["PENDING"]
        gate.open()
        assert set(api.settle(held, *behind)) == {"COMMITTED"}
        assert [process.wait() for process in old] == [0] * len(old)
        assert _listed(api) == {("takes_work", version, "new"): 1 for version in _VERSIONS}
        _nothing_was_lost(up)

    def test_with_a_gap_batches_wait_and_go_on(
        self, networks: Networks, author: Author, gate: Gate, prefix: str
    ) -> None:
        network = networks(**_NODE)
        up, api = network.up(), networks.api(network)
        old = _started(network, "old", prefix, together=True)
        held = _batch(author, "1.0", script(("hold", gate.port)), script(), script())
        api.accept(held)
        gate.wait()
        _drain(up, old)
        later = [_batch(author, version, script()) for version in _VERSIONS for _ in range(10)]
        api.accept(*later)
        gate.open()
        assert api.settle(held) == ["COMMITTED"]
        assert [process.wait() for process in old] == [0]
        for batch, version in zip(later, sorted(_VERSIONS * 10), strict=True):
            reason = {"reason": "waiting_for_processor", "family_name": FAMILY, "family_version": version}
            assert api.details(batch) == reason
        assert _listed(api) == {}
        _started(network, "new", prefix, together=True)
        assert set(api.settle(*later)) == {"COMMITTED"}
        _nothing_was_lost(up)


def _nothing_was_lost(up: Process) -> None:
    """Check that every processor that left had unregistered and finished its tasks."""
    left: list[Any] = [line.logged for line in up.lines if line.logged.get("event") == "processor left"]
    assert {line["reason"] for line in left} == {"it unregistered"}
