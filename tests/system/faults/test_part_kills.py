"""``kill -9`` of the REST API, of processors and of verifiers under load: clients see nothing wrong."""

import os
from random import Random

import pytest

from tests.system.e2e.conftest import Networks
from tests.system.e2e.process import DEADLINE_S
from tests.system.faults.checks import agrees_with_clients, reexecute, sound_from
from tests.system.faults.load import Load
from tests.system.faults.node import Node

KILLS = int(os.environ.get("DOVETAIL_TEST_PART_KILLS", "3"))
"""How often one of the parts is killed."""

SECONDS_A_KILL = 10.0
"""Far more than a restart takes."""


@pytest.mark.timeout(120 + KILLS * SECONDS_A_KILL)
def test_parts_killed_under_load(networks: Networks) -> None:
    random = Random(10)
    node = Node(networks)
    clients = [node.client(Load(10, f"client{number}")) for number in range(3)]
    killed = {"rest-api": 0, "processor": 0, "verifier": 0}
    for number in range(KILLS):
        assert random.choice(clients).wait_for_answers(random.randint(1, 30), DEADLINE_S)
        part = list(killed)[number % len(killed)]
        if part == "rest-api":
            node.restart_rest()
            killed[part] += 1
        elif part == "processor":
            node.restart_processor()
            killed[part] += 1
        else:
            mark = len(node.validator.lines)
            killed[part] += node.kill_verifiers()
            node.validator.wait_logged("verifier died, started another", after=mark)
    node.finish()
    assert all(killed.values())
    batches = agrees_with_clients(node.network, networks.api(node.network), clients)
    sound_from(node.network.data, 0)
    reexecute(node.network)
    node.end()
    print(f"killed {killed}, {batches} batches")
