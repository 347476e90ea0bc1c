"""Verifier processes when the validator is killed: none is left behind, whatever it was at."""

import os
import select
import subprocess
import sys

import pytest

from tests.validator.nodes import signed_batch

_KILLED = """
import asyncio, os, signal, sys
from validator.verifier import VerifierPool

async def main():
    raw = bytes.fromhex(sys.stdin.readline())
    answered = asyncio.Event()
    pool = VerifierPool(2, answered.set)
    for worker in pool._workers:
        print(worker.process.pid, flush=True)
    for _ in range(60):
        pool.verify([raw] * 100, lambda verified: None)
    await answered.wait()
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
_ENDED_MS_MAX = 20_000


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="a process that is no child is waited for by its descriptor")
@pytest.mark.parametrize("life", range(3))
def test_no_verifier_outlives_a_killed_validator(life: int) -> None:
    """Its answer has no reader any more, and it is always at one: sixteen hand-overs are in flight."""
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdin.write(signed_batch(str(life)).raw.hex() + "\n")
        parent.stdin.flush()
        workers = [os.pidfd_open(int(parent.stdout.readline())) for _ in range(2)]
    assert parent.returncode < 0
    for worker in workers:
        ended = select.poll()
        ended.register(worker, select.POLLIN)
        assert ended.poll(_ENDED_MS_MAX)
        os.close(worker)
