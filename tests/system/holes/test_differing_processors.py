"""Two processors of one family that judge differently are noticed while the node runs."""

import time
from collections.abc import Callable

import pytest

from tests.system.e2e.clients import Api, Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.conftest import author as author
from tests.system.e2e.conftest import networks as networks
from tests.system.e2e.metrics import metric, wait_for_metric
from tests.system.e2e.network import Network
from tests.system.e2e.process import DEADLINE_S
from tests.system.independent.bare_processor import BareProcessor, Invalid, ProcessRequest, StateAccess, intkey_apply
from tests.system.independent.client import INTKEY_NAMESPACE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

NAMES = 20
CONDITION = "dovetail_validator_condition"


def adds_an_event(request: ProcessRequest, state: StateAccess) -> None:
    intkey_apply(request, state)
    state.add_event("surplus")


def adds_data(request: ProcessRequest, state: StateAccess) -> None:
    intkey_apply(request, state)
    state.add_receipt_data(b"surplus")


def refuses(request: ProcessRequest, state: StateAccess) -> None:
    raise Invalid("nothing is right")


def start(networks: Networks, author: Author) -> tuple[Network, Api]:
    network = networks()
    network.up()
    api = networks.api(network)
    api.commit(*[author.batch(author.intkey("set", f"n{number}", 2**30)) for number in range(NAMES)])
    return network, api


def submit_until(api: Api, author: Author, seen: Callable[[], bool]) -> None:
    """Submit transactions, to be applied by any processor, until ``seen``."""
    deadline = time.monotonic() + DEADLINE_S
    while not seen():
        assert time.monotonic() < deadline, "what was waited for has not been seen"
        batches = [author.batch(author.intkey("dec", f"n{number}", 1)) for number in range(NAMES)]
        api.accept(*batches)
        api.settle(*batches)


@pytest.mark.parametrize("apply", [adds_an_event, adds_data, refuses, None], ids=["events", "data", "verdict", "state"])
def test_a_processor_that_judges_differently_is_noticed(
    networks: Networks, author: Author, apply: Callable[[ProcessRequest, StateAccess], None] | None
) -> None:
    """With ``apply`` None: a packed processor, started as a user starts it, that subtracts one too many."""
    network, api = start(networks, author)
    end: Callable[[], object]
    if apply is None:
        other = network.processor("tests.system.e2e.planted_family:Planted")
        other.wait_logged("ready")
        end = other.terminate
    else:
        bare = BareProcessor(network.validator_url, "intkey", "1.0", [INTKEY_NAMESPACE], apply)
        bare.start()
        end = bare.stop
    try:
        submit_until(api, author, lambda: metric(api, CONDITION, condition="processors_differ") == 1)
        assert metric(api, "dovetail_validator_comparisons_total", outcome="different") >= 1
        (held,) = api.get("/readyz")["data"]["conditions"]
        assert held["condition"] == "processors_differ"
        connections = [one["connection_id"] for one in api.get("/status/processors")["data"]
                       if one["families"][0]["family_name"] == "intkey"]  # fmt: skip
        assert [one for one in connections if one[:16] not in held["message"]] == []
        assert "processors_differ" in network.call("status").out
        (up, *_) = network.processes
        line = up.wait_logged("processors judge differently", family="intkey 1.0")
        assert {line.logged[f"{side}_connection"] for side in ("first", "second")} == set(connections)
    finally:
        end()
    wait_for_metric(api, CONDITION, 0)


def test_processors_that_judge_alike_are_compared_in_both_protocols(networks: Networks, author: Author) -> None:
    network, api = start(networks, author)
    with BareProcessor(network.validator_url, "intkey", "1.0", [INTKEY_NAMESPACE], intkey_apply):
        submit_until(api, author, lambda: metric(api, "dovetail_validator_comparisons_total", outcome="same") >= 3)
        assert metric(api, "dovetail_validator_comparisons_total", outcome="different") == 0
        assert metric(api, CONDITION) == 0
