"""The limit of open files."""

import json
import resource
import socket
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[3]
_RAISED = """
import json, resource
from dovetail.node.open_files import raise_open_files_limit
low = []
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
print(json.dumps([raise_open_files_limit(low.append), resource.getrlimit(resource.RLIMIT_NOFILE)[0], low]))
"""


def _raised(soft: int, hard: int) -> object:
    """Raise the limit in a separate process, because a lowered hard limit cannot be raised again."""
    program = _RAISED.format(soft=soft, hard=hard)
    done = subprocess.run([sys.executable, "-c", program], cwd=_ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_the_soft_limit_becomes_the_hard_one() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    told = _raised(100, hard)
    assert isinstance(told, list)
    assert told[:2] == [hard, hard]


def test_a_low_hard_limit_is_told() -> None:
    assert _raised(100, 500) == [500, 500, [500]]


def test_a_part_says_that_its_limit_is_low() -> None:
    # The process ends by itself because its address is in use.
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        part = f'"{sys.executable}" -m dovetail rest-api --bind {bind} --log-format json'
        done = subprocess.run(["sh", "-c", f"ulimit -n 200; exec {part}"], cwd=_ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert json.loads(done.stderr.splitlines()[0])["limit"] == 200
