"""schemathesis with all of its checks against a node's /openapi.json: every answer must be documented.

schemathesis runs in a process of its own, because its plugins would affect other tests.
``DOVETAIL_SCHEMATHESIS_EXAMPLES`` is the number of cases of each operation and phase, by default 5.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.system.e2e.network import Network
from tests.system.e2e.process import ROOT

EXAMPLES = os.environ.get("DOVETAIL_SCHEMATHESIS_EXAMPLES", "5")
SEED = "20260131"
BATCHES = 5

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0 if "DOVETAIL_SCHEMATHESIS_EXAMPLES" in os.environ else 300)]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A node with a few committed batches, whose waits last at most a second."""
    network = Network(
        tmp_path_factory.mktemp("schemathesis"),
        DOVETAIL_VALIDATOR_VERIFIER_PROCESSES="0",
        DOVETAIL_REST_API_TIMEOUT_S="5",
        DOVETAIL_LIMITS_STATUS_WAIT_S_MAX="1",
    )
    try:
        network.up()
        for number in range(BATCHES):
            network.call("intkey", "set", f"made{number}", str(number), "--wait", "30")
        yield network
    finally:
        network.close()


def test_schemathesis_finds_nothing(network: Network, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    found = subprocess.run(
        [
            sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()",
            "run", f"{network.rest_url}/openapi.json",
            "--checks", "all",
            "--phases", "examples,coverage,fuzzing,stateful",
            "--max-examples", EXAMPLES,
            "--seed", SEED,
            "--generation-deterministic",
            "--continue-on-failure",
            "--no-color",
            "--report-junit-path", str(report),
        ],
        cwd=tmp_path,
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "SCHEMATHESIS_HOOKS": "tests.conformance.schemathesis_hooks",
            "DOVETAIL_SCHEMATHESIS_IDS": json.dumps(_ids(network.rest_url)),
        },
        capture_output=True,
        text=True,
        errors="replace",
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    assert report.stat().st_size


def _ids(url: str) -> dict[str, Any]:
    """An existing value for each parameter of a path."""
    with httpx.Client(base_url=url, timeout=30) as http:
        block = http.get("/blocks?count=1").json()["data"][0]
        leaf = http.get("/state?count=1").json()["data"][0]
    batch = block["batches"][0]
    return {
        "block_id": block["header_signature"],
        "batch_id": batch["header_signature"],
        "transaction_id": batch["transactions"][0]["header_signature"],
        "address": leaf["address"],
    }
