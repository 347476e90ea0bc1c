"""Text from outside neither controls a terminal nor breaks log lines."""

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from dovetail.common.errors import Refused
from dovetail.node import supervisor
from dovetail.node.logs import LogFormat, LogLevel, configure
from dovetail.node.supervisor import Events, Part
from tests.dovetail.conftest import FakeApi, Run

_HOSTILE = "a\x00b\x1b[31mc\x7fd\x9b1me\u2028f\rg\nh\u202ei"
_ESCAPED = r"a\x00b\x1b[31mc\x7fd\x9b1me\u2028f\rg\nh\u202ei"


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


class _Shown:
    def __repr__(self) -> str:
        return f"<{_HOSTILE}>"


def _log_everything() -> None:
    log = structlog.get_logger()
    log.warning(f"event {_HOSTILE}", path=_HOSTILE, words=f"of {_HOSTILE}", many=[_HOSTILE], thing=_Shown())
    other = logging.getLogger("another.library")
    other.warning("to %s", _HOSTILE)
    for raised in (log.exception, other.exception):
        try:
            raise ValueError(_HOSTILE)
        except ValueError:
            raised("it raised")
    other.warning("with its stack", stack_info=True)


def test_no_value_steers_the_terminal_or_begins_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogFormat.CONSOLE, LogLevel.INFO)
    _log_everything()
    lines = capsys.readouterr().err.removesuffix("\n").split("\n")
    assert all(line.isprintable() for line in lines)
    assert f"event {_ESCAPED}" in lines[0]
    assert f"path={_ESCAPED}".replace("\\", "") in lines[0].replace("\\", "")
    assert f"to {_ESCAPED}" in lines[1]
    records = [line for line in lines if not line.startswith("    ")]
    assert ["it raised" in line or "its stack" in line for line in records] == [False, False, True, True, True]
    assert sum("Traceback (most recent call last)" in line for line in lines) == 2
    assert "ValueError: a\\x00b" in "".join(lines)


def test_json_lines_are_plain_ascii_and_hold_every_value(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogFormat.JSON, LogLevel.INFO)
    _log_everything()
    lines = capsys.readouterr().err.splitlines()
    assert all(line.isascii() and line.isprintable() for line in lines)
    told = [json.loads(line) for line in lines]
    assert (told[0]["path"], told[0]["many"], told[1]["event"]) == (_HOSTILE, [_HOSTILE], f"to {_HOSTILE}")
    assert [_HOSTILE in record.get("exception", "") for record in told] == [False, False, True, True, False]


def test_a_refusal_that_quotes_a_server_is_printable(run: Run, api: FakeApi) -> None:
    api.refuse("GET /blocks", 503, 15, "Not \x1b[31mReady", "\x00 yet\x9b")
    done = run("block", "list", "--url", api.url)
    assert done.err == "dovetail: Not \\x1b[31mReady: \\x00 yet\\x9b (code 15)\n"


def test_the_last_words_of_a_part_are_printable(tmp_path: Path) -> None:
    part = Part("part", [sys.executable, "-c", r"print('dovetail: no \x1b[31m\x00'); raise SystemExit(1)"], 0)
    quiet = Events(lambda _: None, lambda: None, lambda _: None, lambda _name, _content: None)
    with pytest.raises(Refused, match=r"^part: no \\x1b\[31m\\x00$"):
        asyncio.run(supervisor.supervise([part], tmp_path, quiet))
