"""``kill -9`` of the validator under load, at every crash point and at random moments: nothing lost, nothing twice."""

import os
import threading
from random import Random

import pytest

from dovetail.validator.crash_points import CrashPoint
from tests.system.e2e.conftest import Networks
from tests.system.e2e.process import DEADLINE_S
from tests.system.faults.checks import agrees_with_clients, annotated, reexecute, sound_from
from tests.system.faults.load import BAD, Load
from tests.system.faults.node import Node

KILLS = int(os.environ.get("DOVETAIL_TEST_VALIDATOR_KILLS", "2"))
"""How often the validator is killed at a random moment."""

SECONDS_A_KILL = 10.0
"""Far more than a restart takes."""

GENESIS = {CrashPoint.GENESIS_BEFORE_WRITE: -1, CrashPoint.GENESIS_BEFORE_SYNC: -1, CrashPoint.GENESIS_AFTER_SYNC: 0}
"""Crash points at genesis, and the number of the head that each leaves; -1: no block."""

UNDER_LOAD = {
    CrashPoint.MAP_BEFORE_GROWTH: 1,
    CrashPoint.MAP_AFTER_GROWTH: 1,
    CrashPoint.PENDING_BEFORE_WRITE: 5,
    CrashPoint.PENDING_BEFORE_SYNC: 3,
    CrashPoint.PENDING_AFTER_SYNC: 4,
    CrashPoint.ACCEPTED_AFTER_REPLY: 3,
    CrashPoint.TASKS_GIVEN: 6,
    CrashPoint.EXECUTED: 4,
    CrashPoint.SEALED: 3,
    CrashPoint.COMMIT_BEFORE_WRITE: 2,
    CrashPoint.COMMIT_BEFORE_SYNC: 5,
    CrashPoint.COMMIT_AFTER_SYNC: 4,
    CrashPoint.SETTLED_BEFORE_REPLY: 3,
    CrashPoint.SETTLED_AFTER_REPLY: 6,
}
"""Crash points under load, and how often each is passed before it ends the process: late enough for a mixed load."""

VERDICTS = {CrashPoint.VERDICTS_BEFORE_WRITE: 2, CrashPoint.VERDICTS_BEFORE_SYNC: 3, CrashPoint.VERDICTS_AFTER_SYNC: 2}
"""The same with INVALID batches only, so that verdicts are written without a block."""

PRUNING = {CrashPoint.PRUNE_BEFORE_SYNC: 3}
"""The same on a node that keeps the states of only a few blocks."""

_SMALL_MAP = {"DOVETAIL_LIMITS_STORE_MAP_BYTES_INITIAL": str(1024 * 1024)}
"""The map is small, so it must grow after each start."""


def _hold(networks: Networks, node: Node) -> int:
    """Check everything at the end. Returns the number of batches."""
    node.finish()
    batches = agrees_with_clients(node.network, networks.api(node.network), node.clients)
    reexecute(node.network)
    node.end()
    return batches


def test_every_point_is_reached_by_a_test() -> None:
    assert set(CrashPoint) == GENESIS.keys() | UNDER_LOAD.keys() | VERDICTS.keys() | PRUNING.keys()


@pytest.mark.timeout(120 + len(CrashPoint) * SECONDS_A_KILL)
def test_killed_at_each_point(networks: Networks) -> None:
    """The validator crashes at genesis, then under load, then while only verdicts are written."""
    heads: dict[CrashPoint, int] = {}

    def crash_at_genesis(node: Node) -> None:
        for point in GENESIS:
            with annotated(point.label):
                if heads:
                    node.start_armed(point.label)
                node.wait_for_crash(point.label)
                heads[point] = sound_from(node.network.data, 0)
        node.start_validator()

    node = Node(networks, _SMALL_MAP, next(iter(GENESIS)).label, crash_at_genesis)
    assert heads == GENESIS

    clients = [node.client(Load(7, f"client{number}")) for number in range(2)]
    head = 0
    node.kill_validator()
    for point, time in UNDER_LOAD.items():
        with annotated(point.label):
            node.start_armed(f"{point.label}:{time}")
            node.wait_for_crash(point.label)
            head = sound_from(node.network.data, max(head - 1, 0))
    node.restart_validator()
    for client in clients:
        assert client.wait_for_answers(10, DEADLINE_S)
    node.finish()

    bad = node.client(Load(8, "bad"), BAD)
    assert bad.wait_for_answers(10, DEADLINE_S)
    node.kill_validator()
    head = sound_from(node.network.data, head)
    for point, time in VERDICTS.items():
        with annotated(point.label):
            node.start_armed(f"{point.label}:{time}")
            node.wait_for_crash(point.label)
            assert sound_from(node.network.data, head) == head
    node.restart_validator()
    _hold(networks, node)


def test_killed_while_old_states_are_pruned(networks: Networks) -> None:
    node = Node(networks, {"DOVETAIL_VALIDATOR_STATE_DEPTH_BLOCKS": "3"})
    client = node.client(Load(14, "pruned"))
    assert client.wait_for_answers(10, DEADLINE_S)
    node.kill_validator()
    for point, time in PRUNING.items():
        with annotated(point.label):
            node.start_armed(f"{point.label}:{time}")
            node.wait_for_crash(point.label)
            sound_from(node.network.data, 0)
    node.restart_validator()
    assert client.wait_for_answers(20, DEADLINE_S)
    node.finish()
    agrees_with_clients(node.network, networks.api(node.network), [client])
    sound_from(node.network.data, 0)
    node.end()


@pytest.mark.timeout(120 + KILLS * SECONDS_A_KILL)
def test_killed_at_random_moments_under_load(networks: Networks) -> None:
    random = Random(9)
    node = Node(networks, _SMALL_MAP)
    clients = [node.client(Load(9, f"client{number}")) for number in range(3)]
    head = 0
    for number in range(KILLS):
        with annotated(f"kill {number}"):
            assert random.choice(clients).wait_for_answers(random.randint(1, 40), DEADLINE_S)
            # The random pause lets kills come at any moment between two answers. No result depends on the pause.
            threading.Event().wait(random.uniform(0, 0.02))
            node.kill_validator()
            head = sound_from(node.network.data, max(head - 1, 0))
            node.restart_validator()
    batches = _hold(networks, node)
    print(f"{KILLS} kills, {batches} batches, {head} blocks")
