"""Outlets: order, bounds, one gap with its number, and no wait for whoever does not read."""

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail import streams
from dovetail.streams import WAITING_BYTES_MAX, Outlet

_ROOT = Path(__file__).parents[2]
_DEADLINE_S = 30.0


class Sink:
    """Takes bytes as a file does, until ``reads`` is cleared or ``error`` is set."""

    def __init__(self) -> None:
        self.content = b""
        self.reads = threading.Event()
        self.reads.set()
        self.waits = threading.Event()
        """Set while a writer waits."""
        self.error: int | None = None
        self.bytes_max: int | None = None

    def put(self, content: memoryview) -> int:
        self.waits.set()
        assert self.reads.wait(_DEADLINE_S)
        self.waits.clear()
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        taken = bytes(content[: self.bytes_max])
        self.content += taken
        return len(taken)

    def stop(self, outlet: Outlet) -> None:
        """Hold the writer up in the middle of a line's write."""
        self.reads.clear()
        outlet.write(b"held\n")
        assert self.waits.wait(_DEADLINE_S)


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def outlet(sink: Sink) -> Iterator[Outlet]:
    made = Outlet(sink.put, lambda count: f"({count})\n")
    yield made
    sink.reads.set()
    assert made.close()


def _lines(first: int, last: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(first, last))


def test_everything_is_written_in_order(sink: Sink, outlet: Outlet) -> None:
    sink.bytes_max = 7
    for number in range(1000):
        outlet.write(b"%d\n" % number)
    assert outlet.drain(_DEADLINE_S)
    assert sink.content == _lines(0, 1000)
    assert outlet.dropped == 0


def test_a_reader_that_pauses_finds_one_gap_with_the_number_of_lines(sink: Sink, outlet: Outlet) -> None:
    sink.stop(outlet)
    line = b"x" * 1023 + b"\n"
    kept = WAITING_BYTES_MAX // len(line)
    for _ in range(kept + 5):
        outlet.write(line)
    # Short enough for the room that is left, and dropped nevertheless: there is one gap.
    outlet.write(b"short\n")
    assert outlet.dropped == 6
    assert not outlet.drain(0)
    sink.reads.set()
    assert outlet.drain(_DEADLINE_S)
    outlet.write(b"later\n")
    assert outlet.drain(_DEADLINE_S)
    assert sink.content == b"held\n" + line * kept + b"(6)\nlater\n"
    assert outlet.dropped == 6


def test_a_write_of_several_lines_counts_each(sink: Sink, outlet: Outlet) -> None:
    sink.stop(outlet)
    outlet.write(b"\n" * (WAITING_BYTES_MAX + 1))
    outlet.write(b"a\nb\n")
    outlet.write(b"unfinished")
    assert outlet.dropped == WAITING_BYTES_MAX + 1 + 2 + 1


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EMFILE])
def test_lines_that_could_not_be_written_are_told_before_the_next(sink: Sink, outlet: Outlet, error: int) -> None:
    outlet.write(b"first\n")
    assert outlet.drain(_DEADLINE_S)
    sink.error = error
    for _ in range(3):
        outlet.write(b"lost\nlost\n")
        assert outlet.drain(_DEADLINE_S)
    sink.error = None
    outlet.write(b"next\n")
    assert outlet.drain(_DEADLINE_S)
    assert sink.content == b"first\n(6)\nnext\n"
    assert outlet.dropped == 6


def test_a_line_that_was_written_in_part_is_ended_first(sink: Sink, outlet: Outlet) -> None:
    writes = [4]

    def put(content: memoryview) -> int:
        if not writes:
            raise OSError(errno.ENOSPC, "full")
        sink.content += bytes(content[: writes[0]])
        return min(len(content), writes.pop())

    torn = Outlet(put, lambda count: f"({count})\n")
    torn.write(b"whole\nlines\n")
    assert torn.drain(_DEADLINE_S)
    writes.append(100)
    torn.write(b"next\n")
    assert torn.close()
    assert sink.content == b"whol\n(2)\nnext\n"


def test_a_flush_waits_for_a_moment_and_then_not_again(
    sink: Sink, outlet: Outlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(outlet, "drain", lambda seconds: waited.append(seconds))
    for _ in range(3):
        outlet.flush()
    monkeypatch.undo()
    assert waited == [streams.FLUSH_S_MAX]
    assert streams.FLUSH_S_MAX < streams.PATIENCE_S / 100


def test_a_flush_returns_when_the_line_is_written(sink: Sink, outlet: Outlet) -> None:
    outlet.write(b"said\n")
    outlet.flush()
    assert sink.content == b"said\n"


_UNREAD = """
import logging, os, sys, warnings
logging.basicConfig(level="INFO")
{install}
line = "x" * 1000
for _ in range(1500):
    print(line)
    print(line, file=sys.stderr)
    logging.info(line)
    warnings.warn_explicit(line, UserWarning, "file", _)
os.write(3, b"%d" % lines_dropped())
{end}
"""


def _unread(install: str, end: str) -> tuple[subprocess.Popen[bytes], int, int]:
    """A process that writes more than a pipe holds to both its streams. Returns it, the readers' end and its report."""
    reader, writer = os.pipe()
    said, saying = os.pipe()
    program = _UNREAD.format(install=install, end=end)
    # Descriptor 3 is the report.
    process = subprocess.Popen(
        [sys.executable, "-c", f"import os; os.dup2({saying}, 3)\n{program}"],
        cwd=_ROOT, stdout=writer, stderr=writer, pass_fds=(saying,),
    )  # fmt: skip
    os.close(writer)
    os.close(saying)
    return process, reader, said


@pytest.mark.parametrize(
    ("install", "end"),
    [
        ("from dovetail.streams import lines_dropped, unblock; unblock()", ""),
        ("from dovetail.streams import lines_dropped, unblock; unblock()", "raise ValueError(line)"),
        ("from dovetail.streams import drain, lines_dropped, unblock; unblock()", "drain(); os._exit(0)"),
        (
            "from dovetail.streams import lines_dropped, unblocked\nheld = unblocked(); held.__enter__()",
            "held.__exit__(None, None, None)\nprint(line * 1000)",
        ),
    ],
    ids=["its end", "an exception", "an exit at once", "the end of the context"],
)
def test_a_process_that_nobody_reads_goes_on_and_ends(install: str, end: str) -> None:
    process, reader, said = _unread(install, end)
    try:
        assert process.wait(_DEADLINE_S) == (1 if end.startswith("raise") else 0)
        assert int(os.read(said, 100)) > 3000
    finally:
        process.kill()
        process.wait()
        os.close(reader)
        os.close(said)


def test_a_log_of_both_streams_stays_in_order(tmp_path: Path) -> None:
    program = (
        "import sys; from dovetail.streams import unblock; unblock()\n"
        "for number in range(1000): print(number, file=(sys.stdout, sys.stderr)[number % 2])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
    )
    assert done.stdout == _lines(0, 1000)


def test_a_line_before_a_crash_is_written(tmp_path: Path) -> None:
    program = (
        "import logging, os; logging.basicConfig(level='INFO'); from dovetail.streams import unblock; unblock()\n"
        "for number in range(100): logging.info(number)\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=_ROOT, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    assert done.stderr.splitlines()[-1] == b"INFO:root:99"


def test_a_forked_process_writes_too() -> None:
    program = (
        "import os, sys; from dovetail.streams import unblock; unblock()\n"
        "print('before', flush=True)\n"
        "if os.fork(): os.wait()\n"
        "print('behind', flush=True)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=_ROOT, capture_output=True, check=True, timeout=30)
    assert done.stdout == b"before\nbehind\nbehind\n"


def test_streams_that_are_closed_or_replaced_stay() -> None:
    program = (
        "import io, sys; from dovetail.streams import unblock\n"
        "sys.stdout = replaced = io.StringIO()\n"
        "assert sys.stderr is None and not unblock() and sys.stdout is replaced"
    )
    subprocess.run(["sh", "-c", f'"{sys.executable}" -c "{program}" 2>&-'], cwd=_ROOT, check=True)
