"""The handlers of a load's families."""

import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.bench import families
from dovetail.bench.families import FAMILIES_MAX, family_name, intkey_processors

_ROOT = Path(__file__).parents[3]
_PRINT_OFFERED_VERSION = """
import sys
from dovetail.node.handlers import make_handlers
from processor_sdk.worker.registration import Registration
from protos.processor_pb2 import TpRegisterRequest
for handler in make_handlers(sys.argv[1]):
    print(TpRegisterRequest.FromString(Registration(handler, 7, None).content).packed_version)
"""


@pytest.mark.parametrize("legacy", [False, True])
def test_every_family_has_a_handler(legacy: bool) -> None:
    for number, (name, handler) in enumerate(intkey_processors(FAMILIES_MAX, 1, legacy=legacy)):
        assert name == f"{family_name(number)}-1"
        module, _, kind = handler.partition(":")
        assert (module, vars(families)[kind].family_name) == (families.__name__, family_name(number))


@pytest.mark.parametrize(("legacy", "packed_version"), [(False, "2"), (True, "0")])
def test_a_legacy_processor_does_not_offer_packed_execution(legacy: bool, packed_version: str) -> None:
    handler = intkey_processors(2, 1, legacy=legacy)[1][1]
    # In an interpreter of its own, because a legacy handler changes its whole interpreter.
    command = [sys.executable, "-c", _PRINT_OFFERED_VERSION, handler]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [packed_version]
