"""After the end of a process, in order or by force, no accepted batch is lost, and none is applied twice."""

import signal
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.system.e2e.clients import OK, Api, Author, WireClient, wire_client
from tests.system.e2e.conftest import Networks
from tests.system.e2e.network import INTKEY, Network
from tests.system.e2e.process import Process
from tests.system.e2e.script_family import NAMESPACE, bare_apply, script
from tests.system.independent import client as ledger
from tests.system.independent import protobuf_wire as wire
from tests.system.independent.bare_processor import BareProcessor
from tests.system.independent.client import Batch

_ABSENT = "e2e_late"
_PENDING = 3


class _Parts:
    """A node of separate processes."""

    def __init__(self, networks: Networks) -> None:
        self.network: Network = networks()
        self.processes = self.network.parts(INTKEY)
        self.api: Api = networks.api(self.network)

    def end_validator(self, number: signal.Signals) -> None:
        validator = self.processes["validator"]
        validator.signal(number)
        assert validator.wait() == (-signal.SIGKILL if number is signal.SIGKILL else 0)

    def start_validator(self) -> None:
        """Start the validator again, and wait until the REST API is connected to it."""
        rest = self.processes["rest-api"]
        mark = len(rest.lines)
        self.processes["validator"] = self.network.validator("validator again")
        self.processes["validator"].wait_logged("ready")
        rest.wait_logged("connected to the validator", after=mark)

    def leaves(self) -> list[dict[str, str]]:
        return list(self.api.get("/state", count=1000)["data"])


@pytest.fixture
def parts(networks: Networks) -> _Parts:
    """A running node of separate processes."""
    return _Parts(networks)


def _waiting(author: Author, count: int) -> list[Batch]:
    return [author.batch(author.transaction(_ABSENT, script())) for _ in range(count)]


@pytest.fixture(params=[signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def ending(request: pytest.FixtureRequest) -> signal.Signals:
    """The signal that ends the validator."""
    return signal.Signals(request.param)


class TestValidatorStartsAgain:
    """After a restart, COMMITTED batches are still there, and accepted PENDING ones are applied."""

    def test_all_is_as_it_was_and_goes_on(self, parts: _Parts, author: Author, ending: signal.Signals) -> None:
        api = parts.api
        committed = author.batch(author.intkey("set", "n", 5), author.intkey("inc", "n", 1))
        api.commit(committed)
        invalid = author.batch(author.intkey("inc", "absent", 1))
        verdict = api.reject(invalid)
        waiting = _waiting(author, 20)
        dependent = author.batch(author.intkey("inc", "n", 1, dependencies=[waiting[-1].transactions[0].id]))
        for batch in waiting:
            api.accept(batch)
        api.accept(dependent)
        chain, leaves = api.chain(), parts.leaves()
        with wire_client(parts.network.validator_url) as client:
            receipts = client.receipts(committed.transactions[1].id)
            assert isinstance(receipts, list)

        parts.end_validator(ending)
        answer = api.http.get("/blocks")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, 18)
        parts.start_validator()

        assert api.chain() == chain
        assert parts.leaves() == leaves
        assert api.intkey("n") == 6
        assert api.words(committed, invalid, *waiting, dependent) == ["COMMITTED", "INVALID", *["PENDING"] * 21]
        assert api.details(invalid) == verdict
        with wire_client(parts.network.validator_url) as client:
            again = client.receipts(committed.transactions[1].id)
            assert isinstance(again, list)
            assert [receipt.changes for receipt in again] == [receipt.changes for receipt in receipts]

        url = parts.network.validator_url
        with BareProcessor(url, _ABSENT, "1.0", [NAMESPACE], bare_apply, max_occupancy=1) as processor:
            assert api.settle(*waiting, dependent) == ["COMMITTED"] * 21
            # The batches are on the chain once each, in the order of their acceptance.
            assert [request.signature for request in processor.requests] == [
                batch.transactions[0].id for batch in waiting
            ]
        assert api.intkey("n") == 7
        assert api.chain()[: len(chain)] == chain
        blocks = list(reversed(api.get("/blocks", count=1000)["data"]))
        assert [block["header"]["block_num"] for block in blocks] == list(range(len(blocks)))
        for parent, child in pairwise(blocks):
            assert child["header"]["previous_block_id"] == parent["header_signature"]

    def test_killed_in_the_middle_of_a_load(self, parts: _Parts, author: Author) -> None:
        api = parts.api
        api.commit(author.batch(author.intkey("set", "n", 0)))
        incs = author.incs("n", 60)
        for inc in incs:
            api.accept(inc)
        parts.end_validator(signal.SIGKILL)
        parts.start_validator()
        assert api.settle(*incs) == ["COMMITTED"] * len(incs)
        assert api.intkey("n") == len(incs)

    def test_dependency_judged_invalid_before_the_restart(self, parts: _Parts, author: Author) -> None:
        """API.md: INVALID is remembered across a restart; an INVALID dependency makes the batch INVALID at once."""
        bad = author.intkey("inc", "absent", 1)
        parts.api.reject(author.batch(bad))
        parts.end_validator(signal.SIGTERM)
        parts.start_validator()
        dependent = author.batch(author.intkey("set", "n", 1, dependencies=[bad.id]))
        parts.api.accept(dependent)
        assert parts.api.words(dependent, wait=1) == ["INVALID"]

    def test_rest_api_and_processor_start_again(self, parts: _Parts, author: Author) -> None:
        parts.api.commit(author.batch(author.intkey("set", "n", 0)))
        parts.processes[INTKEY].kill()
        incs = author.incs("n", 3)
        parts.api.accept(*incs)
        parts.processes["rest-api"].kill()
        parts.network.rest_api().wait_logged("ready")
        parts.network.processor(INTKEY)
        assert parts.api.settle(*incs) == ["COMMITTED"] * 3
        assert parts.api.intkey("n") == 3


class TestAskedWhileItRestores:
    """Requests that arrive before the validator has restored its pending batches."""

    @pytest.fixture
    def first_in_line(self, parts: _Parts, author: Author) -> Iterator[tuple[WireClient, list[Batch]]]:
        """A client that waits for a killed validator to start again, and the validator's pending batches."""
        waiting = _waiting(author, 20)
        parts.api.accept(*waiting)
        parts.end_validator(signal.SIGKILL)
        with wire_client(parts.network.validator_url) as client:
            yield client, waiting

    def test_accepted_batch_is_never_unknown(
        self, parts: _Parts, first_in_line: tuple[WireClient, list[Batch]]
    ) -> None:
        client, waiting = first_in_line
        asked = client.send(120, wire.encode(wire.repeated(1, [batch.id for batch in waiting])))
        parts.start_validator()
        answer = client.receive(asked)
        statuses = [wire.get_int(wire.decode(status), 2) for status in wire.get_all_bytes(answer, 2)]
        assert statuses == [_PENDING] * len(waiting)

    def test_batch_accepted_meanwhile_survives_a_crash(
        self, parts: _Parts, author: Author, first_in_line: tuple[WireClient, list[Batch]]
    ) -> None:
        """API.md: an accepted batch is on disk before the answer leaves."""
        client, waiting = first_in_line
        fresh = _waiting(author, 1)
        submitted = client.send(100, ledger.make_batch_list(fresh))
        parts.start_validator()
        accepted = wire.get_int(client.receive(submitted), 1) == OK
        parts.end_validator(signal.SIGKILL)
        parts.start_validator()
        expected = "PENDING" if accepted else "UNKNOWN"
        assert parts.api.words(*waiting, *fresh) == [*["PENDING"] * len(waiting), expected]

    def test_batches_committed_meanwhile_take_no_other_along(
        self, parts: _Parts, author: Author, first_in_line: tuple[WireClient, list[Batch]]
    ) -> None:
        client, waiting = first_in_line
        fresh = [author.batch(author.intkey("set", f"n{number}", 1)) for number in range(5)]
        submitted = client.send(100, ledger.make_batch_list(fresh))
        parts.start_validator()
        expected = "COMMITTED" if wire.get_int(client.receive(submitted), 1) == OK else "UNKNOWN"
        assert set(parts.api.settle(*fresh)) == {expected}
        parts.end_validator(signal.SIGKILL)
        parts.start_validator()
        assert parts.api.words(*waiting, *fresh) == ["PENDING"] * len(waiting) + [expected] * len(fresh)


class TestUpRestartsWhatDies:
    """``up`` restarts a part that dies: every batch accepted with 202 ends COMMITTED, exactly once."""

    def test_validator_killed_in_the_middle_of_a_load(self, networks: Networks, author: Author) -> None:
        up, api = self._up(networks, author)
        incs = author.incs("n", 60)
        mark = len(up.lines)
        accepted = 0
        for position, inc in enumerate(incs):
            if position == len(incs) // 2:
                up.part("validator").kill()
            # The API refuses the batch while there is no validator. The test submits it again until a validator accepts
            # it.
            while (answer := api.post(inc)).status_code != 202:
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, 18)
                up.wait_logged("connected to the validator", after=mark)
            accepted += 1
        assert accepted == len(incs)
        up.wait_for_line(r"validator was ended by SIGKILL; starting it again", after=mark)
        assert api.settle(*incs) == ["COMMITTED"] * len(incs)
        assert api.intkey("n") == len(incs)

    def test_other_parts_killed_in_the_middle_of_a_load(self, networks: Networks, author: Author) -> None:
        up, api = self._up(networks, author)
        incs = author.incs("n", 60)
        mark = len(up.lines)
        api.accept(*incs[:30])
        for word in ("intkey", "rest-api"):
            up.part(word).kill()
        for word in ("intkey", "rest-api"):
            up.wait_for_line(f"^{word} was ended by SIGKILL; starting it again", after=mark)
            up.wait_for_line(f"^{word} serves again", after=mark)
        api.accept(*incs[30:])
        assert api.settle(*incs) == ["COMMITTED"] * len(incs)
        assert api.intkey("n") == len(incs)
        assert len([line for line in up.out if line.startswith("ready")]) == 1

    def test_processor_killed_while_it_holds_work(self, networks: Networks, author: Author) -> None:
        """A stopped worker gets its task and does not answer, so that the task is in progress when the worker dies."""
        up, api = self._up(networks, author)
        intkey = up.part("intkey")
        for worker in intkey.children():
            worker.suspend()
        incs = author.incs("n", 30)
        api.accept(*incs)
        assert api.details(incs[0])["reason"] == "executing"
        intkey.kill()
        assert api.settle(*incs) == ["COMMITTED"] * len(incs)
        assert api.intkey("n") == len(incs)

    def _up(self, networks: Networks, author: Author) -> tuple[Process, Api]:
        network = networks()
        up, api = network.up(), networks.api(network)
        api.commit(author.batch(author.intkey("set", "n", 0)))
        return up, api
