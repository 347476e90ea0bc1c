"""docs/how-to/upgrades.md, followed by a reader."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.e2e.page import Reader, blocks
from tests.system.e2e.process import ROOT

PYTHON = """#!/bin/sh
PYTHONPATH={root} exec {python} {what} "$@"
"""


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path)
    for name, what in {"dovetail": "-m dovetail", "python3": ""}.items():
        made.install(name, PYTHON.format(root=ROOT, python=sys.executable, what=what))
    try:
        yield made
    finally:
        made.close()


@pytest.mark.timeout(900)
def test_the_page_can_be_followed(reader: Reader) -> None:
    for block in blocks("how-to/upgrades.md"):
        reader.follow(block, reader.folder)
