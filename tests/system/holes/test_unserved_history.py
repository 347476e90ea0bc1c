"""``chain verify --reexecute`` says at once which families of the history nobody serves."""

import time

import pytest

from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.conftest import author as author
from tests.system.e2e.conftest import networks as networks
from tests.system.e2e.script_family import NAMESPACE, bare_apply, script
from tests.system.independent.bare_processor import BareProcessor

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

FAMILIES = ("served once", "served twice")
_AT_ONCE_S = 30


def test_a_family_that_nobody_serves_is_said_at_once(networks: Networks, author: Author) -> None:
    network = networks()
    up, api = network.up(), networks.api(network)
    for family in FAMILIES:
        with BareProcessor(network.validator_url, family, "1.0", [NAMESPACE], bare_apply):
            api.commit(author.batch(author.transaction(family, script())))
    assert up.terminate() == 0
    began_s = time.monotonic()
    ran = network.run("chain", "verify", "--reexecute", "--data-dir", str(network.data), "--processes", "1")
    assert time.monotonic() - began_s < _AT_ONCE_S
    assert ran.code == 1
    for number, family in enumerate(FAMILIES, 1):
        assert f"{family} 1.0 (first in block {number})" in ran.err.splitlines()[-1], ran.err
