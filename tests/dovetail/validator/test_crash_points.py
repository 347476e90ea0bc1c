"""Arming a crash point: values of the variable, the end of the process, and no effect if unarmed."""

import os
import signal
import subprocess
import sys

import pytest

from dovetail.validator.crash_points import VARIABLE, Armed, CrashPoint, make_reach, reach, read_armed

REACHES = """
from dovetail.validator.crash_points import CrashPoint, reach
for number in range(5):
    print(number, flush=True)
    reach(CrashPoint.SEALED)
    reach(CrashPoint.EXECUTED)
"""


def _run(armed: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", REACHES], env=os.environ | {VARIABLE: armed}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("armed", "lines"), [("sealed", 1), ("sealed:1", 1), ("executed:3", 3)])
def test_it_ends_the_process_the_time_that_was_said(armed: str, lines: int) -> None:
    done = _run(armed)
    assert done.returncode == -signal.SIGKILL
    assert len(done.stdout.splitlines()) == lines
    assert done.stderr == f"crash point {armed.partition(':')[0]}\n"


@pytest.mark.parametrize("armed", ["", "sealed:6", "genesis_before_write"])
def test_what_is_not_reached_ends_nothing(armed: str) -> None:
    done = _run(armed)
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 5)


@pytest.mark.parametrize("armed", ["seal", "SEALED", ":1", "sealed:0", "sealed:x", "sealed:-1"])
def test_what_arms_nothing_starts_nothing(armed: str) -> None:
    done = _run(armed)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{VARIABLE}={armed}: ")
    with pytest.raises(ValueError, match=r"points are|count from 1"):
        read_armed(armed)


def test_unarmed_every_point_is_an_empty_function() -> None:
    assert read_armed("") is None
    assert make_reach(None) is reach
    assert read_armed("executed:12") == Armed(CrashPoint.EXECUTED, 12)
    assert [point.value for point in CrashPoint] == list(range(1, len(CrashPoint) + 1))
