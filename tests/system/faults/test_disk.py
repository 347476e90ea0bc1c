"""A disk that refuses, loses, shortens or delays writes. No status is a false COMMITTED, and the node recovers."""

import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dovetail.ledger.building import encode_batch_list
from dovetail.ledger.ids import BatchId
from families.intkey.client import intkey_address
from tests.system.e2e.clients import Api, Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.process import DEADLINE_S, ROOT
from tests.system.faults.checks import agrees_with_clients, annotated, reexecute, sound_from
from tests.system.faults.load import BAD, Load, value_at
from tests.system.faults.node import Node
from tests.system.faults.shim import Calls, NoShim, Shim, library
from tests.system.faults.sweep import FAULTS

_YEAR_S = 365 * 24 * 3600


@pytest.fixture
def shim(tmp_path: Path) -> Iterator[Shim]:
    """The library between a process and its disk. Skips if the library cannot be built."""
    if sys.platform != "linux":
        pytest.skip("the library for faults is for Linux")
    try:
        library()
    except NoShim as reason:
        pytest.skip(str(reason))
    made = Shim(tmp_path / "control")
    yield made
    made.close()


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """A folder in memory, if there is one: a sync costs nothing there, and only the library can make it fail."""
    shared = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The data folder of the test's first node, on an 8 MiB disk of its own. Skips without the rights to mount one."""
    folder = tmp_path / "node0" / "data"
    folder.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a file system of its own needs root: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_call_to_the_disk_fails_once(tmp_path: Path, quick_folder: Path, shim: Shim, fault: str) -> None:
    """After a failure of any call, all tables are as without the failure."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.system.faults.sweep", str(quick_folder), str(tmp_path / "control"), fault],
        cwd=ROOT,
        env=os.environ | shim.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    totals = json.loads(done.stdout)
    print(fault, totals)
    assert totals["refused"] + totals["reopened"] > 0


def _full_for_a_while(node: Node, api: Api, fill: Callable[[], None], free: Callable[[], None]) -> None:
    """The disk is full under load. The node refuses batches with the reason, serves reads, and recovers by itself."""
    client, running = node.clients[0], node.validator
    load, taken = Load(11, f"full{len(running.lines)}"[:8]), list[BatchId]()
    mark = len(running.lines)
    fill()
    running.wait_for_line("not written, |not accepted", after=mark)
    # Free pages of the file may hold some more batches first.
    refused = None
    while refused is None or refused.status_code == 202:
        batches = load.make(20, BAD)
        refused = api.post_list(encode_batch_list(batches))
        taken += [batch.id for batch in batches] if refused.status_code == 202 else []
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, 10)
    assert "the store refused a write" in refused.json()["error"]["message"]
    assert set(api.statuses([batch.id for batch in batches])["data"].values()) == {"UNKNOWN"}
    head, leaf = api.chain()[-1], intkey_address(client.load.names[0])
    assert value_at(api.leaf(leaf), client.load.names[0]) is not None
    assert api.chain()[-1] == head
    free()
    for one in node.clients:
        assert one.wait_for_answers(10, DEADLINE_S)
    if taken:
        assert set(api.statuses(taken[-1_000:], wait=int(DEADLINE_S))["data"].values()) == {"INVALID"}
    assert node.validator is running
    assert running.running


def test_a_node_on_a_disk_that_fails_and_a_clock_that_steps(networks: Networks, shim: Shim) -> None:
    """Several faults, one after the other, under one load and in all of the node's processes."""
    node = Node(networks, shim.environment)
    api = networks.api(node.network)
    clients = [node.client(Load(12, f"client{number}")) for number in range(2)]

    # No step counts as time that a batch waits (pending_wait_s_max is a day).
    author = Author("clock")
    waiting = author.batch(author.transaction("unserved", b""))
    api.accept(waiting)

    for years in (1, -1, 0):
        with annotated(f"a clock that is {years} years off"):
            shim.step_clock(years * _YEAR_S)
            shown = datetime.fromisoformat(api.get("/status/system")["data"]["local_time"])
            assert abs((shown - datetime.now(UTC)).total_seconds() - years * _YEAR_S) < _YEAR_S / 10
            for client in clients:
                assert client.wait_for_answers(10, DEADLINE_S)
            assert api.words(waiting) == ["PENDING"]

    with annotated("a slow disk"):
        shim.slow_down(20_000)
        for client in clients:
            assert client.wait_for_answers(5, DEADLINE_S)
        shim.slow_down(0)

    with annotated("a full disk"):
        _full_for_a_while(node, api, lambda: shim.fail(Calls.WRITES), shim.heal)
    with annotated("a full disk that writes a part"):
        _full_for_a_while(node, api, lambda: shim.fail(Calls.WRITES, part=2), shim.heal)

    with annotated("a sync that fails"):
        shim.fail(Calls.SYNCS, errno.EIO, times=1)
        assert node.validator.wait() == 1
        assert node.validator.err[-1].startswith("dovetail: the store refused a write of ")
        assert (
            "the disk lost data that it had accepted: Input/output error: look after the disk" in node.validator.err[-1]
        )
        assert "Traceback" not in node.validator.text
        shim.heal()
        sound_from(node.network.data, 0)
        node.restart_validator()

    node.finish()
    agrees_with_clients(node.network, api, clients)
    reexecute(node.network)
    node.end()


def test_a_node_on_a_small_disk_that_fills_up(networks: Networks, small_disk: Path) -> None:
    """A real file system fills up, so LMDB gets the system's own errors, not those of the library."""
    node = Node(networks)
    client = node.client(Load(13, "client"))
    assert client.wait_for_answers(10, DEADLINE_S)
    ballast = small_disk / "ballast"

    def fill() -> None:
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    api = networks.api(node.network)
    _full_for_a_while(node, api, fill, ballast.unlink)
    node.finish()
    agrees_with_clients(node.network, api, [client])
    reexecute(node.network)
    node.end()
