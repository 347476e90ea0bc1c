"""Verifier processes that end: by themselves, with a killed validator, or without a replacement.

No process is left behind.
"""

import errno
import os
import select
import subprocess
import sys
from collections.abc import Callable

import psutil
import pytest
from structlog.testing import capture_logs

from dovetail.validator.admission.verifier import Verified, VerifierPool, verify_all
from tests.dovetail.validator.nodes import signed_batch
from tests.dovetail.validator.peers import run

_KILLED = """
import asyncio, os, signal, sys
from dovetail.validator.admission.verifier import VerifierPool

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
    """Sixteen jobs are in flight, so a worker is always busy. After the kill, nobody reads its answers."""
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


def _no_process(*_: object, **__: object) -> None:
    raise OSError(errno.EAGAIN, "no process left")


def _no_pipe() -> tuple[int, int]:
    raise OSError(errno.EMFILE, "no descriptor left")


@pytest.mark.parametrize("fault", [(subprocess, "Popen", _no_process), (os, "pipe", _no_pipe)])
def test_a_verifier_that_cannot_be_replaced_leaves_all_as_it_was(
    fault: tuple[object, str, Callable[..., None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is sent to the next worker, and every descriptor is closed once."""

    async def test() -> None:
        before = psutil.Process().num_fds()
        pool = VerifierPool(1, lambda: None)
        dead = pool._workers[0]
        dead.process.kill()
        dead.process.wait()
        answers: list[Verified] = []
        pool.verify([signed_batch().raw], answers.append)
        with monkeypatch.context() as faulty:
            faulty.setattr(*fault)
            for _ in range(2):
                with capture_logs() as said:
                    pool.watch()
                assert [line["log_level"] for line in said] == ["error"]
        assert pool._workers == [dead]
        pool.watch()
        assert isinstance(await verify_all(pool, [signed_batch().raw]), list)
        assert len(answers) == 1
        pool.close()
        assert psutil.Process().num_fds() == before

    run(test)
