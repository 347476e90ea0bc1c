"""docs/reference/rest-api.md: its commands run as they stand, its tables compared with the API."""

import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from dovetail.rest_api.errors import Problem
from dovetail.rest_api.routes import ENDPOINTS
from tests.system.e2e.conftest import Shared
from tests.system.e2e.process import ROOT

PAGE = (ROOT / "docs" / "reference" / "rest-api.md").read_text(encoding="utf-8")
LINES = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
ADDRESS = "http://127.0.0.1:8080"


class Asked(NamedTuple):
    """The request of a curl line, and the status that the page names."""

    method: str
    path: str
    status: str


def asked(line: str) -> Asked:
    url = re.search(rf"{ADDRESS}([^\s'\")?]*)", line)
    status = re.search(r"  # (\d{3})$", line)
    assert url, f"no URL: {line}"
    assert status, f"no status: {line}"
    named = re.search(r"-X (\w+)", line)
    method = "HEAD" if "--head" in line else "POST" if re.search(r" (-d|--data-binary) ", line) else "GET"
    return Asked(named[1] if named else method, url[1], status[1])


CURLS = [asked(line) for line in LINES if "curl " in line]


def test_every_line_answers_as_the_page_says(shared: Shared, tmp_path: Path) -> None:
    network = shared.network
    # Options with which curl reaches this node at the page's address, and prints the status on stderr.
    connect_to = f"127.0.0.1:8080:{network.rest_bind}"
    (tmp_path / ".curlrc").write_text(
        f'connect-to = "{connect_to}"\nwrite-out = "%{{stderr}}status %{{http_code}}\\n"\nsilent\n'
    )
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "dovetail").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dovetail "$@"\n')
    (programs / "dovetail").chmod(0o755)
    environment = f"export CURL_HOME={tmp_path} PYTHONPATH={ROOT} PATH={programs}:$PATH; cd {tmp_path}"
    script = tmp_path / "page.sh"
    script.write_text("\n".join([environment, *(f'{line}\necho "line $?" >&2' for line in LINES), ""]))
    ran = network.run_command(["bash", str(script)])
    told = re.split(r"(?m)^line (\d+)$", ran.err)
    assert len(told) == 2 * len(LINES) + 1, ran
    for line, said, code in zip(LINES, told[::2], told[1::2], strict=False):
        assert code == "0", f"{line}\n{said}"
        if "curl " in line:
            assert re.findall(r"status (\d{3})", said) == [asked(line).status], f"{line}\n{said}"


def test_every_endpoint_has_a_line() -> None:
    for endpoint in ENDPOINTS:
        pattern = re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(endpoint.path)))
        methods = {one.method for one in CURLS if pattern.fullmatch(one.path) and int(one.status) < 400}
        assert set(endpoint.handlers) <= methods, endpoint.path
    assert {"HEAD", "OPTIONS"} <= {one.method for one in CURLS}


def test_every_error_is_in_the_table() -> None:
    rows = re.findall(r"(?m)^\| (\d+) \| (\d+) \| ([^|]+) \|", PAGE)
    assert rows == [(str(problem.code), str(problem.status), problem.title) for problem in Problem]
    assert all(int(before[0]) < int(after[0]) for before, after in pairwise(rows))


def test_every_metric_is_in_the_table(shared: Shared) -> None:
    named = set(re.findall(r"`(dovetail_(?:rest|validator)_\w+)`", PAGE))
    families = re.findall(r"(?m)^# TYPE (dovetail_\w+) (\w+)$", shared.api.http.get("/metrics").text)
    served = {name for name, kind in families if not name.endswith("_created") and "_process_" not in name}
    assert served == named
