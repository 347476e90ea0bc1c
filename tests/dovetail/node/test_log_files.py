"""Log files stay within their size limit, and a stack trace in a log file is plain text."""

import sys
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


def test_a_written_trace_is_text(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["dovetail", "--url", "https://me:secret@node", "\x1b[31m"])
    path = write_trace(ValueError(f"{_HOSTILE} \udcff"))
    assert path == home / "logs" / "dovetail.log"
    lines = path.read_text().split("\n")
    assert all(line.isprintable() for line in lines)
    assert lines[0].endswith(r" dovetail --url https://me:…@node \x1b[31m")
