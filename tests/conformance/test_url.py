"""The option ``--url``: a run against a node that does not answer ends with one line, before any row."""

import errno
import os
import subprocess
import sys

import pytest

from tests.system.e2e.process import ROOT


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (
            "http://127.0.0.1:1",
            f"nothing answers at http://127.0.0.1:1: [Errno {errno.ECONNREFUSED}] Connection refused",
        ),
        ("https://127.0.0.1:1", "'https://127.0.0.1:1' is not an http:// address"),
    ],
)
def test_one_line_reports_a_node_that_does_not_answer(url: str, reason: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/conformance", "--url", url],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout.strip()) == (pytest.ExitCode.USAGE_ERROR, "")
    assert ran.stderr.strip() == f"ERROR: --url: {reason}"
