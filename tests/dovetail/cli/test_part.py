"""A part ends within its time after SIGTERM, whatever blocks it, and says where it was."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]
_DEADLINE_S = 30.0

_PART = """
import asyncio, os, threading, time
from dovetail.cli import part
from dovetail.node.logs import LogFormat, LogLevel
from dovetail.node.open_files import OpenFiles

part.END_S_MAX = {end_s_max}

async def serve(*, on_ready, on_waiting):
    os.write(int(os.environ["SAYS"]), b"serves")
{body}

part.run_part(part.start_part("part", LogFormat.JSON, LogLevel.INFO, OpenFiles(1, 1, "none", 1)), "here", serve)
"""

_WAITS = "    await asyncio.Event().wait()"
_BLOCKED = {
    "a loop in a system call": "    os.read(os.pipe()[0], 1)",
    "a loop in a lock": "    lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "a loop that turns": "    while True: pass",
    "an end that waits": f"    try:\n    {_WAITS}\n    finally:\n    {_WAITS}",
    "a thread that goes on": f"    threading.Thread(target=time.sleep, args=(1000,)).start()\n{_WAITS}",
}


@pytest.mark.parametrize("body", _BLOCKED.values(), ids=list(_BLOCKED))
@pytest.mark.parametrize("is_read", [True, False], ids=["read", "unread"])
def test_a_part_that_is_blocked_ends_on_sigterm_and_says_where_it_was(body: str, is_read: bool) -> None:
    said, says = os.pipe()
    reader, writer = os.pipe()
    if not is_read:
        os.set_blocking(writer, False)
        while select.select([], [writer], [], 0)[1]:
            os.write(writer, b"x" * 65_536)
        os.set_blocking(writer, True)
    process = subprocess.Popen(
        [sys.executable, "-c", _PART.format(body=body, end_s_max=0.3)],
        cwd=_ROOT, stderr=writer, pass_fds=(says,), env={**os.environ, "SAYS": str(says)},
    )  # fmt: skip
    os.close(writer)
    os.close(says)
    try:
        assert os.read(said, 6) == b"serves"
        process.send_signal(signal.SIGTERM)
        assert process.wait(_DEADLINE_S) == 1
        with open(reader, "rb", closefd=False) as stream:
            content = stream.read().decode()
        if is_read:
            assert "Timeout" in content
            assert "most recent call first" in content
    finally:
        process.kill()
        process.wait()
        os.close(said)
        os.close(reader)


def test_a_part_that_ends_in_time_ends_with_0() -> None:
    said, says = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", _PART.format(body=_WAITS, end_s_max=_DEADLINE_S)],
        cwd=_ROOT, pass_fds=(says,), env={**os.environ, "SAYS": str(says)},
    )  # fmt: skip
    os.close(says)
    try:
        assert os.read(said, 6) == b"serves"
        process.send_signal(signal.SIGTERM)
        assert process.wait(_DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(said)
