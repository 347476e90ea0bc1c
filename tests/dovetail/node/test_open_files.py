"""The limit of open files: raised, checked against the configuration, and told or refused with the values."""

import json
import resource
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail.node.open_files import CONNECTIONS_MIN

_ROOT = Path(__file__).parents[3]
_RAISED = """
import json, resource
from dovetail.common.errors import Refused
from dovetail.node.open_files import OpenFiles, ensure_open_files
told = []
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
try:
    ensure_open_files("this part", OpenFiles(10, 1, "a.key", 500), lambda *words: told.append(words))
except Refused as refused:
    told.append(str(refused))
print(json.dumps([resource.getrlimit(resource.RLIMIT_NOFILE)[0], told]))
"""


def _raised(soft: int, hard: int) -> list[Any]:
    """Raise the limit in a separate process, because a lowered hard limit cannot be raised again."""
    program = _RAISED.format(soft=soft, hard=hard)
    done = subprocess.run([sys.executable, "-c", program], cwd=_ROOT, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def test_the_soft_limit_becomes_the_hard_one() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert _raised(100, hard) == [hard, []]


def test_a_limit_below_the_configured_one_is_told_with_the_values_and_what_to_do() -> None:
    assert _raised(100, 510) == [510, []]
    soft, ((limit, reason),) = _raised(100, 509)
    assert soft == limit == 509
    for words in ("510", "10 for itself", "a.key = 500", "ulimit -n 510", "LimitNOFILE=510", "lower a.key"):
        assert words in reason


def test_a_limit_with_room_for_few_connections_is_refused_with_the_values_and_what_to_do() -> None:
    assert CONNECTIONS_MIN == 64
    assert _raised(74, 74)[1][0][0] == 74
    soft, (reason,) = _raised(73, 73)
    assert soft == 73
    for words in ("this part may have 73", "no fewer than 74", "510", "a.key = 500", "ulimit -n 510"):
        assert words in reason


def test_a_part_says_that_its_limit_is_low() -> None:
    # The process ends by itself because its address is in use.
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        part = f'"{sys.executable}" -m dovetail rest-api --bind {bind} --log-format json'
        done = subprocess.run(["sh", "-c", f"ulimit -n 200; exec {part}"], cwd=_ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    told = json.loads(done.stderr.splitlines()[0])
    assert told["limit"] == 200
    assert "rest_api.requests_in_flight_max = 20000" in told["reason"]


@pytest.mark.parametrize(
    ("command", "setting"),
    [
        ("validator --data-dir {folder}", "limits.connections_max = 4000"),
        ("rest-api", "rest_api.requests_in_flight_max = 20000"),
        ("processor families.intkey.handler:IntkeyHandler --workers 9", "processor.workers = 9"),
    ],
)
def test_a_part_with_64_files_refuses_to_start(tmp_path: Path, command: str, setting: str) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "dovetail", "genesis", "--data-dir", str(tmp_path)],
        cwd=_ROOT,
        capture_output=True,
        env={"DOVETAIL_HOME": str(tmp_path / "home"), "PATH": "", "LOGNAME": "tester"},
    )
    assert made.returncode == 0, made.stderr
    part = f'"{sys.executable}" -m dovetail {command.format(folder=tmp_path)}'
    done = subprocess.run(["sh", "-c", f"ulimit -n 64; exec {part}"], cwd=_ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "may have 64 files open (RLIMIT_NOFILE)" in done.stderr
    assert setting in done.stderr
