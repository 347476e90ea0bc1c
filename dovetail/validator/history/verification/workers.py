"""Worker processes that check batches and receipts (``batches``).

A worker is stateless. It ends when its parent ends, or closes the worker's standard input.
"""

import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import IO, Final

from dovetail.validator.history.verification.batches import CheckedBatch, check_batch

Entry = tuple[bytes, list[bytes | None] | None]
"""The arguments of ``check_batch``."""

_LENGTH: Final = struct.Struct(">Q")


class CheckerDied(Exception):
    """A worker ended before it finished; the message says how."""


class Checkers:
    """``count`` worker processes; 0: one for each processor core. A context manager, which kills them at its end."""

    def __init__(self, count: int) -> None:
        self.count = count or os.cpu_count() or 1
        self._workers: list[subprocess.Popen[bytes]] = []
        self._free: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        # Each thread only waits for a process.
        self._carriers = ThreadPoolExecutor(max_workers=self.count, thread_name_prefix="checker")

    def __enter__(self) -> "Checkers":
        for _ in range(self.count):
            # The worker has a session of its own, because a terminal's Ctrl-C is for the parent.
            worker = subprocess.Popen(
                [sys.executable, "-m", "dovetail.validator.history.verification.workers"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            self._workers.append(worker)
            self._free.put(worker)
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()
        self._carriers.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.wait()
            for end in (worker.stdin, worker.stdout):
                assert end is not None, "it was started with pipes"
                # Closing flushes data that the killed process no longer reads.
                with suppress(BrokenPipeError):
                    end.close()

    def check(self, entries: Sequence[Entry]) -> "Future[list[CheckedBatch]]":
        """Check batches in one worker. The future raises CheckerDied."""
        return self._carriers.submit(self._carry, entries)

    def _carry(self, entries: Sequence[Entry]) -> list[CheckedBatch]:
        worker = self._free.get()
        assert worker.stdin is not None, "it was started with pipes"
        assert worker.stdout is not None, "it was started with pipes"
        try:
            _write(worker.stdin, pickle.dumps(entries, pickle.HIGHEST_PROTOCOL))
            content = _read(worker.stdout)
        except (OSError, ValueError):
            content = None
        if content is None:
            raise CheckerDied(f"a checker process ended with exit code {worker.wait()}; run the verification again")
        checked: list[CheckedBatch] = pickle.loads(content)
        self._free.put(worker)
        return checked


def _write(stream: IO[bytes], content: bytes) -> None:
    stream.write(_LENGTH.pack(len(content)))
    stream.write(content)
    stream.flush()


def _read(stream: IO[bytes]) -> bytes | None:
    """One message; None if the other side has ended."""
    length = stream.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    (count,) = _LENGTH.unpack(length)
    content = stream.read(count)
    return content if len(content) == count else None


def work() -> None:
    """The body of a worker: answers each message with the checked batches, until its standard input ends."""
    try:
        while (content := _read(sys.stdin.buffer)) is not None:
            entries: list[Entry] = pickle.loads(content)
            checked = [check_batch(*entry) for entry in entries]
            _write(sys.stdout.buffer, pickle.dumps(checked, pickle.HIGHEST_PROTOCOL))
    except BrokenPipeError:
        # The parent was killed: discard what is left in the buffer.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    work()
