"""A lack of descriptors or of address space is told with its cause, its values and what to do."""

import contextlib
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.system.e2e.clients import Api, Author
from tests.system.e2e.network import INTKEY, Network
from tests.system.e2e.process import DEADLINE_S, ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

_MIB = 1024 * 1024


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    made = Network(tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_a_rest_api_with_64_descriptors_says_what_it_needs_instead_of_refusing_every_request(network: Network) -> None:
    command = f'"{sys.executable}" -m dovetail rest-api --bind {network.rest_bind}'
    done = subprocess.run(
        ["sh", "-c", f"ulimit -n 64; exec {command}"],
        cwd=ROOT, env=network.environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    for words in ("64 files", "RLIMIT_NOFILE", "rest_api.requests_in_flight_max = 20000", "ulimit -n", "LimitNOFILE="):
        assert words in done.stderr


def test_a_map_that_cannot_grow_refuses_writes_says_why_and_goes_on_when_it_can(network: Network) -> None:
    assert network.run("genesis", "--data-dir", str(network.data)).code == 0
    parts = [network.validator(), network.rest_api(), network.processor(INTKEY)]
    parts.append(network.processor("tests.system.holes.noisy_family:NoisyHandler"))
    for part in parts:
        part.wait_logged("ready")
    author = Author("map")
    validator = parts[0].pid
    with contextlib.closing(Api(network.rest_url)) as api:
        api.commit(author.batch(author.intkey("set", "before", 1)))
        # Room for requests, and none for a map that is twice as large.
        allowed = psutil.Process(validator).memory_info().vms + 60 * _MIB
        resource.prlimit(validator, resource.RLIMIT_AS, (allowed, resource.RLIM_INFINITY))
        for number in range(100):
            large = author.batch(author.transaction("noisy", b"%03d" % number * (_MIB // 3)))
            # Either the batch or its block is refused.
            answer = api.post(large, wait=3)
            conditions = api.get("/readyz")["data"]["conditions"]
            if answer.status_code != 201 and conditions:
                break
        (condition,) = [held for held in conditions if held["condition"] == "storage_failed"]
        for words in ("RLIMIT_AS", f"{allowed} bytes of address space", "LimitAS=infinity", "prlimit"):
            assert words in condition["message"]
        assert "room on the disk" not in condition["message"]
        assert api.intkey("before") == 1
        resource.prlimit(validator, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        until = time.monotonic() + DEADLINE_S
        while (answer := api.post(large, wait=3)).status_code != 201 and time.monotonic() < until:
            assert parts[0].running
        assert answer.status_code == 201, answer.text
        api.commit(author.batch(author.intkey("set", "behind", 1)))
    assert parts[0].running
