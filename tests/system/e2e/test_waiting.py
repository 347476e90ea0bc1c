"""Batches that wait: for processors, dependencies, room in the queue. Other batches are not delayed."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.system.e2e.clients import Api, Author, error_of
from tests.system.e2e.conftest import Networks, Shared
from tests.system.e2e.network import Network
from tests.system.e2e.process import DEADLINE_S
from tests.system.e2e.script_family import NAMESPACE, bare_apply, script
from tests.system.independent.bare_processor import BareProcessor, ProcessRequest, StateAccess
from tests.system.independent.client import Batch


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """For requests that stay open during the test."""
    with ThreadPoolExecutor(4) as made:
        yield made


class TestNoProcessor:
    """Batches of a family without a processor stay PENDING while others commit. They commit when a processor comes."""

    def test_batches_wait_with_their_reason_while_others_commit(
        self, shared: Shared, author: Author, named: Callable[[str], str], pool: ThreadPoolExecutor
    ) -> None:
        family, api = named("family"), shared.api
        waiting = [author.batch(author.transaction(family, script())) for _ in range(3)]
        mixed = author.batch(author.intkey("set", named("mixed"), 1), author.transaction(family, script()))
        api.accept(*waiting, mixed)
        kept_open = pool.submit(api.post, *waiting, mixed, wait=int(DEADLINE_S))
        api.commit(author.batch(author.intkey("set", named("other"), 1)))
        assert api.words(*waiting, mixed) == ["PENDING"] * 4
        for batch in (*waiting, mixed):
            assert api.details(batch) == {
                "reason": "waiting_for_processor",
                "family_name": family,
                "family_version": "1.0",
            }
        assert api.intkey(named("mixed")) is None
        assert not kept_open.done()
        with BareProcessor(shared.network.validator_url, family, "1.0", [NAMESPACE], bare_apply):
            assert kept_open.result(DEADLINE_S).status_code == 201
        assert api.intkey(named("mixed")) == 1

    def test_another_version_is_another_family(
        self, shared: Shared, author: Author, named: Callable[[str], str]
    ) -> None:
        family, api = named("family"), shared.api
        batch = author.batch(author.transaction(family, script()))
        with BareProcessor(shared.network.validator_url, family, "2.0", [NAMESPACE], bare_apply) as newer:
            api.accept(batch)
            api.commit(author.batch(author.intkey("set", named("n"), 1)))
            assert api.details(batch)["family_version"] == "1.0"
            assert newer.requests == []
        with BareProcessor(shared.network.validator_url, family, "1.0", [NAMESPACE], bare_apply):
            assert api.settle(batch) == ["COMMITTED"]

    def test_wait_that_runs_out_answers_pending(self, api: Api, author: Author, named: Callable[[str], str]) -> None:
        batch = author.batch(author.transaction(named("family"), script()))
        answer = api.post(batch, wait=1)
        assert answer.status_code == 200
        assert answer.json()["data"] == {batch.id: "PENDING"}
        assert answer.json()["link"].endswith(f"/batch_status?id={batch.id}")


@pytest.fixture(scope="module")
def impatient(module_networks: Networks) -> Network:
    """A node that waits 0.3 s for a missing dependency."""
    network = module_networks(DOVETAIL_LIMITS_DEPENDENCY_WAIT_MS="300")
    network.up()
    return network


class TestDependencies:
    """API.md: dependencies that are there, come later, never come, or are invalid."""

    def test_committed_earlier(self, api: Api, author: Author, named: Callable[[str], str]) -> None:
        first = author.intkey("set", named("n"), 1)
        api.commit(author.batch(first))
        api.commit(author.batch(author.intkey("inc", named("n"), 1, dependencies=[first.id])))
        assert api.intkey(named("n")) == 2

    def test_in_the_same_list_in_either_order(self, api: Api, author: Author, named: Callable[[str], str]) -> None:
        first, second = author.intkey("set", named("a"), 1), author.intkey("set", named("b"), 1)
        after_first = author.batch(author.intkey("set", named("c"), 1, dependencies=[first.id]))
        before_second = author.batch(author.intkey("set", named("d"), 1, dependencies=[second.id]))
        api.commit(author.batch(first), after_first, before_second, author.batch(second))

    def test_in_the_same_batch(self, api: Api, author: Author, named: Callable[[str], str]) -> None:
        first = author.intkey("set", named("n"), 1)
        api.commit(author.batch(first, author.intkey("inc", named("n"), 1, dependencies=[first.id])))

    def test_waits_with_its_reason_until_the_dependency_comes(
        self, api: Api, author: Author, named: Callable[[str], str], pool: ThreadPoolExecutor
    ) -> None:
        first = author.intkey("set", named("n"), 1)
        second = author.intkey("inc", named("n"), 1, dependencies=[first.id])
        third = author.intkey("inc", named("n"), 1, dependencies=[second.id])
        chain = [author.batch(third), author.batch(second)]
        api.accept(*chain)
        kept_open = pool.submit(api.post, *chain, wait=int(DEADLINE_S))
        api.commit(author.batch(author.intkey("set", named("other"), 1)))
        assert api.words(*chain) == ["PENDING", "PENDING"]
        assert api.details(chain[0]) == {"reason": "waiting_for_dependency", "dependency": second.id}
        assert api.details(chain[1]) == {"reason": "waiting_for_dependency", "dependency": first.id}
        api.commit(author.batch(first))
        assert kept_open.result(DEADLINE_S).status_code == 201
        assert api.intkey(named("n")) == 3

    def test_missing_for_too_long_is_invalid(self, impatient: Network, networks: Networks, author: Author) -> None:
        """API.md, details of INVALID: reason, transaction_id, message."""
        api = networks.api(impatient)
        absent = author.intkey("set", "absent", 1)
        dependent = author.intkey("set", "n", 1, dependencies=[absent.id])
        follower = author.batch(author.intkey("inc", "n", 1, dependencies=[dependent.id]))
        api.accept(follower)
        details = api.reject(author.batch(dependent))
        assert details["reason"] == "dependency_missing"
        assert details["transaction_id"] == dependent.id
        assert absent.id in details["message"]
        assert "0.3 s" in details["message"]
        assert api.settle(follower) == ["INVALID"]
        assert api.intkey("n") is None

    def test_dependency_that_waits_for_a_processor_is_not_missing(
        self, impatient: Network, networks: Networks, author: Author
    ) -> None:
        api = networks.api(impatient)
        waiting = author.transaction("e2e_late", script())
        dependent = author.batch(author.intkey("set", "other", 1, dependencies=[waiting.id]))
        api.accept(author.batch(waiting), dependent)
        # By the validator's clock, this wait is longer than the wait for a dependency that is never submitted.
        assert api.words(dependent, wait=1) == ["PENDING"]
        with BareProcessor(impatient.validator_url, "e2e_late", "1.0", [NAMESPACE], bare_apply):
            assert api.settle(dependent) == ["COMMITTED"]

    def test_invalid_dependency_is_invalid_at_once(self, api: Api, author: Author, named: Callable[[str], str]) -> None:
        """The dependency becomes INVALID earlier, in the same list, or while the dependent batch waits."""
        good, bad = author.intkey("set", named("a"), 1), author.intkey("inc", named("absent"), 1)
        early = author.batch(author.intkey("set", named("b"), 1, dependencies=[bad.id]))
        api.accept(early)
        same_list = author.batch(author.intkey("set", named("c"), 1, dependencies=[bad.id]))
        # Both transactions of the INVALID batch count as invalid dependencies.
        answer = api.post(author.batch(good, bad), same_list, wait=int(DEADLINE_S) * 10)
        assert set(answer.json()["data"].values()) == {"INVALID"}
        assert answer.json()["details"][same_list.id]["reason"] == "dependency_invalid"
        assert bad.id in answer.json()["details"][same_list.id]["message"]
        assert api.settle(early) == ["INVALID"]
        assert api.details(early)["reason"] == "dependency_invalid"
        for dependency in (good, bad):
            late = author.batch(author.intkey("set", named("d"), 1, dependencies=[dependency.id]))
            assert api.reject(late)["reason"] == "dependency_invalid"

    def test_details_name_the_dependent_transaction_of_the_same_list(
        self, api: Api, author: Author, named: Callable[[str], str]
    ) -> None:
        """API.md, details of INVALID: reason, transaction_id, message."""
        bad = author.intkey("inc", named("absent"), 1)
        dependent = author.intkey("set", named("n"), 1, dependencies=[bad.id])
        batches = author.batch(bad), author.batch(dependent)
        answer = api.post(*batches, wait=int(DEADLINE_S) * 10)
        assert answer.json()["details"][batches[1].id]["transaction_id"] == dependent.id


class TestFullQueue:
    """API.md: 429 code 31 with Retry-After, nothing of the list is accepted, and nothing is lost."""

    _FAMILY = "e2e_late"

    def test_full_queue(self, networks: Networks, author: Author) -> None:
        limits = {"BATCHES": "3", "TRANSACTIONS": "4", "BYTES": "6000"}
        limits |= {"UNSERVED_PERCENT": "100", "WAITING_PERCENT": "100"}
        network = networks(**{f"DOVETAIL_LIMITS_PENDING_{name}_MAX": value for name, value in limits.items()})
        network.up()
        api = networks.api(network)
        accepted = [self._batch(author), self._batch(author, 2), self._batch(author)]
        pair = [self._batch(author), self._batch(author)]
        api.accept(*accepted[:2])
        self._assert_full(api, "2 of at most 3 batches, 2 more", *pair)
        self._assert_full(api, "3 of at most 4 transactions, 2 more", self._batch(author, 2))
        self._assert_full(api, "of at most 6000 bytes", self._batch(author, payload_bytes=5000))
        api.accept(accepted[2])
        self._assert_full(api, "3 of at most 3 batches, 1 more", pair[0])
        # Batches that the queue already holds need no room.
        api.accept(*accepted)
        with BareProcessor(network.validator_url, self._FAMILY, "1.0", [NAMESPACE], _accept_all):
            assert api.settle(*accepted) == ["COMMITTED"] * 3
            api.commit(*pair)
        genesis = 1
        assert api.get("/batches")["paging"]["total_count"] == genesis + len(accepted) + len(pair)

    def _batch(self, author: Author, transactions: int = 1, payload_bytes: int = 0) -> Batch:
        payload = bytes(payload_bytes)
        return author.batch(*(author.transaction(self._FAMILY, payload) for _ in range(transactions)))

    def _assert_full(self, api: Api, said: str, *batches: Batch) -> None:
        answer = api.post(*batches, wait=1)
        assert answer.status_code == 429, answer.text
        assert error_of(answer)["code"] == 31
        assert int(answer.headers["Retry-After"]) > 0
        assert said in error_of(answer)["message"]
        assert set(api.words(*batches)) == {"UNKNOWN"}


def _accept_all(request: ProcessRequest, state: StateAccess) -> None:
    """An apply that changes nothing."""
