"""A disk that refuses, loses, cuts short or takes its time: no false COMMITTED, and it goes on when the disk does."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.process import ROOT
from tests.faults.shim import NoShim, Shim, library
from tests.faults.sweep import FAULTS


@pytest.fixture
def shim(tmp_path: Path) -> Iterator[Shim]:
    """The library between a process and its disk; skipped where it cannot be built."""
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
    """A folder where a sync costs nothing, if there is one: what fails there is the library's doing."""
    shared = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_call_to_the_disk_fails_once(tmp_path: Path, quick_folder: Path, shim: Shim, fault: str) -> None:
    """Head, roots, receipts, statuses and all else are as if nothing had failed, whichever call it was."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.sweep", str(quick_folder), str(tmp_path / "control"), fault],
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
