"""Workers that are killed or frozen in the middle of an apply cost time, but have no other effect."""

import os
import shutil
import signal
from collections.abc import Iterator

import psutil
import pytest

from tests.system.e2e.clients import Api, Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.killed_family import FAMILY, HANDLER, TOTAL, Killer, line, payload
from tests.system.e2e.network import Network
from tests.system.e2e.process import DEADLINE_S, Process
from tests.system.e2e.script_family import HANDLER as SCRIPT_HANDLER
from tests.system.e2e.script_family import Gate, ScriptHandler, address, script
from tests.system.independent.client import Batch

KILLS = int(os.environ.get("DOVETAIL_TEST_KILLS", "5"))
"""How often a worker is killed."""

BATCHES_A_KILL = 2
LINES = 8
WORKERS = 2
SECONDS_A_KILL = 5.0
"""Far more than the replacement of a worker takes."""

_QUICK_TRIES = {
    "DOVETAIL_LIMITS_INTERNAL_ERROR_BACK_OFF_MS": "1",
    "DOVETAIL_LIMITS_PROCESSOR_LOST_BACK_OFF_MS_MAX": "10",
}
_QUICK_PINGS = {"DOVETAIL_LIMITS_PROCESSOR_PING_MS": "100", "DOVETAIL_LIMITS_PROCESSOR_SILENCE_MS": "1200"}


@pytest.fixture
def killer() -> Iterator[Killer]:
    made = Killer(seed=4)
    try:
        yield made
    finally:
        made.close()


def _load(author: Author, port: int, count: int) -> list[Batch]:
    """Batches of one and two transactions in several lines.

    Each transaction depends on the one before it in its line.
    """
    last: dict[int, list[str]] = {number: [] for number in range(LINES)}
    batches = []
    for index in range(count):
        numbers = [index % LINES] if index % 3 else [index % LINES, (index + 1) % LINES]
        transactions = []
        for number in numbers:
            leaves = [TOTAL, line(number)]
            made = author.transaction(
                FAMILY, payload(port, number), inputs=leaves, outputs=leaves, dependencies=last[number]
            )
            last[number] = [made.id]
            transactions.append(made)
        batches.append(author.batch(*transactions))
    return batches


def _root(api: Api) -> str:
    return str(api.get("/blocks", count=1)["data"][0]["header"]["state_root_hash"])


def _committed(api: Api) -> list[str]:
    """Every batch of every block except genesis."""
    found: list[str] = []
    for block_id in api.chain()[1:]:
        found += api.get(f"/blocks/{block_id}")["data"]["header"]["batch_ids"]
    return found


def _run(networks: Networks, network: Network, batches: list[Batch], timeout_s: float) -> tuple[Api, Process]:
    """Start the family's processors, and submit all batches."""
    network.up()
    api = networks.api(network)
    processor = network.start(
        "processor", HANDLER, "--connect", network.validator_url, "--workers", str(WORKERS), name="killed"
    )
    processor.wait_logged("ready")
    api.http.timeout = timeout_s
    for start in range(0, len(batches), 100):
        api.accept(*batches[start : start + 100])
    return api, processor


@pytest.mark.timeout(120 + KILLS * SECONDS_A_KILL)
def test_workers_killed_in_mid_apply_under_load(networks: Networks, author: Author, killer: Killer) -> None:
    """Workers are killed with SIGKILL in the middle of applies.

    Every batch ends once, with the root of an undisturbed run.
    """
    batches = _load(author, killer.port, KILLS * BATCHES_A_KILL)
    transactions = sum(len(batch.transactions) for batch in batches)
    timeout_s = DEADLINE_S + KILLS * SECONDS_A_KILL

    disturbed = networks(**_QUICK_TRIES)
    killer.kill(KILLS)
    api, processor = _run(networks, disturbed, batches, timeout_s)
    steady = [author.batch(author.intkey("set", f"n{number}", number)) for number in range(5)]
    api.commit(*steady)
    killer.wait_until_done(timeout_s)
    assert len(killer.killed) == len(set(killer.killed)) == KILLS
    assert set(api.words(*batches, wait=int(timeout_s))) == {"COMMITTED"}
    assert api.leaf(TOTAL) == b"%d" % transactions
    committed = _committed(api)
    assert sorted(committed) == sorted(batch.id for batch in batches + steady)
    assert processor.terminate() == 0

    # A comparison would apply a transaction at a second processor, too.
    undisturbed = networks(DOVETAIL_LIMITS_COMPARISONS_A_MINUTE_MAX="0")
    shutil.copytree(disturbed.home, undisturbed.home)
    before = killer.let_go
    calm, _ = _run(networks, undisturbed, batches, timeout_s)
    calm.commit(*steady)
    assert set(calm.words(*batches, wait=int(timeout_s))) == {"COMMITTED"}
    assert killer.let_go == before + transactions
    assert _root(calm) == _root(api)


def test_a_frozen_processor_that_comes_back_changes_nothing(networks: Networks, author: Author, gate: Gate) -> None:
    """The processor gets SIGSTOP for longer than the ping limit, then SIGCONT. Its late answer changes nothing."""
    network = networks(**_QUICK_PINGS)
    up, api = network.up(), networks.api(network)
    frozen = network.processor(SCRIPT_HANDLER)
    frozen.wait_logged("ready")
    family, leaf = ScriptHandler.family_name, address("frozen")
    steps = (("expect", leaf, None), ("write", leaf, "01"), ("receipt", "01"), ("hold", gate.port))
    batch = author.batch(author.transaction(family, script(*steps), inputs=[leaf], outputs=[leaf]))
    api.accept(batch)
    gate.wait()
    stopped = [psutil.Process(frozen.pid), *frozen.descendants()]
    for process in stopped:
        process.suspend()
    mark = len(up.lines)
    up.wait_logged("processor left", after=mark, families=[f"{family} 1.0"])
    network.processor(SCRIPT_HANDLER)
    gate.wait()
    # The gate releases the oldest apply, which is that of the frozen processor.
    gate.open()
    assert api.settle(batch) == ["COMMITTED"]
    chain, root = api.chain(), _root(api)
    for process in stopped:
        process.resume()
    # Each processor gets a task that waits at the gate. By then, everything that the frozen processor sent before is
    # handled.
    held = [author.batch(author.transaction(family, script(("hold", gate.port)))) for _ in range(2)]
    for one in held:
        api.accept(one)
        gate.wait()
    assert (api.chain(), _root(api)) == (chain, root)
    assert api.words(batch) == ["COMMITTED"]
    gate.open()
    assert api.settle(*held) == ["COMMITTED", "COMMITTED"]
    assert _committed(api).count(batch.id) == 1
    assert api.leaf(leaf) == b"\x01"
    frozen.signal(signal.SIGTERM)
    assert frozen.wait() == 0
