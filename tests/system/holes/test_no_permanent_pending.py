"""No batch is pending for ever, and no flood of batches that wait shuts out others, or changes of settings."""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from tests.system.e2e.clients import Api, Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.conftest import author as author
from tests.system.e2e.conftest import networks as networks
from tests.system.e2e.network import Network
from tests.system.e2e.process import DEADLINE_S, Process
from tests.system.e2e.script_family import NAMESPACE, bare_apply, script
from tests.system.independent import secp256k1
from tests.system.independent.bare_processor import BareProcessor, ProcessRequest, StateAccess
from tests.system.independent.client import Batch, Transaction

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

QUEUE = 60
KEYS = 14


def flood(api: Api, authors: list[Author], make: Callable[[Author], Transaction]) -> list[Batch]:
    """Send batches of each author until no author's batch is accepted. Returns the accepted ones."""
    accepted: list[Batch] = []
    while True:
        before = len(accepted)
        for one in authors:
            batch = one.batch(make(one))
            answer = api.post(batch)
            assert answer.status_code in (202, 429), answer.text
            accepted += [batch] * (answer.status_code == 202)
        if len(accepted) == before:
            return accepted


def strangers() -> list[Author]:
    return [Author(f"stranger {number}") for number in range(KEYS)]


def holder(network: Network) -> Author:
    """The key that may change settings, which the genesis of ``up`` authorizes."""
    author = Author("somebody")
    author.key = (network.home / "keys" / "tester.priv").read_text().strip()
    author.public_key = secp256k1.public_key(author.key)
    return author


def change_setting(network: Network, value: str) -> None:
    network.call("settings", "propose", "my.setting", value, "--wait", str(int(DEADLINE_S)))


def kill_validator(up: Process) -> None:
    """SIGKILL, and wait until the node serves again."""
    mark = len(up.lines)
    up.part("validator").send_signal(signal.SIGKILL)
    up.wait_logged("connected to the validator", after=mark)


def test_families_that_nobody_served_take_a_small_share(networks: Networks, author: Author) -> None:
    network = networks(DOVETAIL_LIMITS_PENDING_BATCHES_MAX=str(QUEUE))
    up, api = network.up(), networks.api(network)
    numbers = count()
    assert flood(api, strangers(), lambda one: one.transaction(f"unserved {next(numbers)}", script()))
    api.commit(author.batch(author.intkey("set", "n", 1)))
    change_setting(network, "1")
    kill_validator(up)
    api.commit(author.batch(author.intkey("inc", "n", 1)))
    change_setting(network, "2")


@pytest.mark.parametrize("wait", ["for a processor that left", "for a dependency that never comes"])
def test_batches_that_wait_leave_room_for_others(networks: Networks, author: Author, wait: str) -> None:
    network = networks(DOVETAIL_LIMITS_PENDING_BATCHES_MAX=str(QUEUE))
    network.up()
    api = networks.api(network)
    with BareProcessor(network.validator_url, "served", "1.0", [NAMESPACE], bare_apply):
        api.commit(author.batch(author.transaction("served", script())))
    never = author.transaction("served", script()).id

    def waiting(one: Author) -> Transaction:
        if "processor" in wait:
            return one.transaction("served", script())
        return one.intkey("set", "n", 1, dependencies=[never])

    assert flood(api, strangers(), waiting)
    api.commit(author.batch(author.intkey("set", "n", 1)))
    change_setting(network, "1")


def test_settings_change_in_a_full_queue(networks: Networks, author: Author) -> None:
    network = networks(DOVETAIL_LIMITS_PENDING_BATCHES_MAX=str(QUEUE))
    network.up()
    api = networks.api(network)
    release = threading.Event()

    def hold(request: ProcessRequest, state: StateAccess) -> None:
        release.wait(DEADLINE_S * 2)

    with BareProcessor(network.validator_url, "slow", "1.0", [NAMESPACE], hold):
        try:
            # A processor serves the family, so its batches may take the whole queue, and the quotas of the keys.
            accepted = flood(api, [*strangers(), holder(network)], lambda one: one.transaction("slow", script()))
            assert len(accepted) == QUEUE
            assert api.post(author.batch(author.intkey("set", "n", 1))).status_code == 429
            for value in "123":
                change_setting(network, value)
        finally:
            release.set()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """For requests that stay open during the test."""
    with ThreadPoolExecutor(2) as made:
        yield made


def test_a_wait_ends(networks: Networks, author: Author) -> None:
    network = networks(DOVETAIL_LIMITS_PENDING_WAIT_S_MAX="2")
    up, api = network.up(), networks.api(network)
    batch = author.batch(author.transaction("unserved", script()))
    # Nobody serves the family, so no verdict ends the wait.
    answer = api.post(batch, wait=int(DEADLINE_S) * 10)
    assert (answer.status_code, answer.json()["data"]) == (200, {batch.id: "UNKNOWN"})
    up.wait_logged("batch dropped without a verdict", batch_id=batch.id, reason="it was pending for 2 s")
    api.accept(batch)
    kill_validator(up)
    assert api.settle(batch) == ["UNKNOWN"]


@pytest.mark.parametrize("by", ["ids", "family", "key"])
def test_the_operator_drops(networks: Networks, author: Author, pool: ThreadPoolExecutor, by: str) -> None:
    network = networks()
    up, api = network.up(), networks.api(network)
    other = Author("other")
    kept = other.batch(other.transaction("kept", script()))
    unwanted = [author.batch(author.transaction("unwanted", script())) for _ in range(3)]
    api.accept(kept, *unwanted)
    waiting = pool.submit(api.settle, *unwanted)
    words = {
        "ids": [batch.id for batch in unwanted],
        "family": ["--family", "unwanted@1.0"],
        "key": ["--key", author.public_key],
    }[by]
    command = ("batch", "drop", *words, "--validator", network.validator_url, "--json")
    counted = network.run(*command, "--dry-run")
    assert (counted.code, counted.json["batches"]) == (0, 3), counted.err
    assert api.words(*unwanted) == ["PENDING"] * 3
    dropped = network.run(*command, "--yes", "--reason", "nobody wants it")
    assert (dropped.code, json.loads(dropped.out)) == (0, {"dropped": 3, "executing": 0}), dropped.err
    assert waiting.result(DEADLINE_S) == ["UNKNOWN"] * 3
    for batch in unwanted:
        up.wait_logged("batch dropped without a verdict", batch_id=batch.id)
    kill_validator(up)
    assert api.words(*unwanted, kept) == ["UNKNOWN"] * 3 + ["PENDING"]
    again = network.run(*command, "--yes")
    assert (again.code, again.err.strip()) == (1, "dovetail: no such batch is pending")
