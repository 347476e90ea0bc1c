"""docs/upgrades.md, followed by somebody who learns to upgrade; and both versions of intkey, however they are run."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from families.intkey.client import intkey_address
from tests.e2e.conftest import Networks
from tests.e2e.network import INTKEY, SETTINGS
from tests.e2e.page import Reader, blocks
from tests.e2e.process import ROOT

PYTHON = """#!/bin/sh
PYTHONPATH={root} exec {python} {what} "$@"
"""
INTKEY_2 = "families.intkey.v2.handler:IntkeyHandler"
BOTH = (("1.0", 2**32 - 1), ("2.0", 2**64 - 1))


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
    for block in blocks("upgrades.md"):
        reader.follow(block, reader.folder)


def test_up_serves_2_0_beside_1_0_when_it_is_asked_to(networks: Networks) -> None:
    network = networks()
    network.up("--family", INTKEY_2)
    for version, value in BOTH:
        network.call("intkey", "set", version, str(value), "--family-version", version, "--wait", "30")
        assert network.call("intkey", "show", version, "--json").json == {"name": version, "value": value}


def test_one_process_serves_both_versions(networks: Networks) -> None:
    network = networks()
    network.up("--no-families", "--family", SETTINGS)
    network.processor(INTKEY, INTKEY_2).wait_logged("ready")
    for version, value in BOTH:
        network.call("intkey", "set", version, str(value), "--family-version", version, "--wait", "30")
    assert network.call("intkey", "list", "--json").json == [
        {"name": version, "value": value} for version, value in sorted(BOTH, key=lambda both: intkey_address(both[0]))
    ]
