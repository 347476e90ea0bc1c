"""Log files stay within their size limit, outlive removal and failures, and a stack trace in one is plain text."""

import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.node.log_files import RotatingFile, write_trace

_HOSTILE = "a\x00b\x1b[31mc\x7fd\x9b1me\u2028f\rg\nh\u202ei"


def test_a_log_file_keeps_its_bound_and_three_older_ones(tmp_path: Path) -> None:
    path = tmp_path / "part.log"
    file = RotatingFile(path, bytes_max=10)
    for number in range(6):
        file.write(f"line {number}\n".encode())
    file.close()
    again = RotatingFile(path, bytes_max=10)
    again.write(b"line 6\n")
    again.close()
    held = {entry.name: entry.read_text() for entry in tmp_path.glob("part.log*")}
    assert held == {
        "part.log": "line 6\n",
        "part.log.1": "line 5\n",
        "part.log.2": "line 4\n",
        "part.log.3": "line 3\n",
    }


def _removed(path: Path) -> None:
    path.unlink()


def _renamed(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))


def _removed_with_its_folder(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()


@pytest.mark.parametrize("happens", [_removed, _renamed, _removed_with_its_folder])
def test_a_file_that_is_gone_is_made_anew(tmp_path: Path, happens: Callable[[Path], None]) -> None:
    path = tmp_path / "logs" / "part.log"
    path.parent.mkdir()
    file = RotatingFile(path)
    file.write(b"first\n")
    happens(path)
    file.write(b"second\n")
    file.close()
    assert path.read_text() == "second\n"


def _names(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def test_a_file_that_was_emptied_counts_from_there(tmp_path: Path) -> None:
    path = tmp_path / "part.log"
    file = RotatingFile(path, bytes_max=10)
    file.write(b"line 0\n")
    os.truncate(path, 0)
    file.write(b"line 1\n")
    file.close()
    assert _names(tmp_path) == {"part.log": "line 1\n"}


@pytest.mark.parametrize("fails_at", range(1, 5))
def test_a_rotation_that_failed_anywhere_is_finished_later_and_loses_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    """The renames of three files, and the opening of the new one, fail one after the other, three times each."""
    path = tmp_path / "part.log"
    file = RotatingFile(path, bytes_max=10)
    for number in range(4):
        file.write(b"line %d\n" % number)
    calls = 0

    def failing(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            nonlocal calls
            calls += 1
            if calls >= fails_at:
                raise OSError(24, "Too many open files")
            return real(*arguments)

        return call

    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", failing(Path.replace))
            patch.setattr(os, "open", failing(os.open))
            with pytest.raises(OSError, match="Too many open files"):
                file.write(b"line 4\n")
        kept = set(_names(tmp_path).values())
        # The oldest of four makes room for the new one, once.
        assert kept >= {"line 1\n", "line 2\n", "line 3\n"}
    file.write(b"line 4\n")
    file.close()
    assert _names(tmp_path) == {
        "part.log": "line 4\n",
        "part.log.1": "line 3\n",
        "part.log.2": "line 2\n",
        "part.log.3": "line 1\n",
    }


def test_a_lack_of_descriptors_ends_no_log(tmp_path: Path) -> None:
    path = tmp_path / "part.log"
    file = RotatingFile(path)
    file.write(b"first\n")
    path.unlink()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        with pytest.raises(OSError, match="Too many open files"):
            file.write(b"lost\n")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    file.write(b"second\n")
    file.close()
    assert path.read_text() == "second\n"


def test_a_written_trace_is_text(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["dovetail", "--url", "https://me:secret@node", "\x1b[31m"])
    path = write_trace(ValueError(f"{_HOSTILE} \udcff"))
    assert path == home / "logs" / "dovetail.log"
    lines = path.read_text().split("\n")
    assert all(line.isprintable() for line in lines)
    assert lines[0].endswith(r" dovetail --url https://me:…@node \x1b[31m")
