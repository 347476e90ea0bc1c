"""A part of ``dovetail up`` that serves between its ends starts again soon; one that never serves starts ever later."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.e2e.network import Network
from tests.system.e2e.process import Line, Process

KILLS = 6
SERVES_S = 2.2
"""A part serves so long between two kills; the code that resets by time alone asks for a minute."""


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    running = Network(tmp_path)
    yield running
    running.close()


def _kill(up: Process, after: int) -> Line:
    up.part("rest-api").kill()
    return up.wait_for_line(r"rest-api was ended by SIGKILL.*; starting it again", after=after)


def _pause_s(line: Line) -> float:
    found = re.search(r"again in ([0-9.]+) s", line.text)
    assert found is not None
    return float(found[1])


def test_a_part_that_serves_between_its_ends_starts_again_soon(network: Network) -> None:
    up = network.up()
    pauses = []
    for _ in range(KILLS):
        until = time.monotonic() + SERVES_S
        while time.monotonic() < until:
            assert network.run("status", "--url", network.rest_url).code == 0
        mark = len(up.lines)
        pauses.append(_pause_s(_kill(up, mark)))
        up.wait_for_line("^rest-api serves again", after=mark)
    assert max(pauses) <= 0.5


def test_a_part_that_does_not_serve_starts_ever_later(network: Network) -> None:
    up = network.up()
    pauses, lines = [], []
    for _ in range(4):
        mark = len(up.lines)
        lines.append(_kill(up, mark))
        pauses.append(_pause_s(lines[-1]))
        up.wait_for_line("^rest-api serves again", after=mark)
    assert pauses[1:] == [1, 2, 4]
    assert "4 times in a row" in lines[-1].text
