"""Submitted batches: forgeries, unusual encodings, atomic batches, duplicates, over HTTP at a whole node.

``tests/system/independent``, which shares no code with the project, builds the batches.
"""

from collections.abc import Callable

import pytest

from tests.system.e2e.clients import NO_RESOURCE, Api, Author, WireClient, error_of
from tests.system.e2e.process import DEADLINE_S
from tests.system.independent import client as ledger
from tests.system.independent import protobuf_wire as wire
from tests.system.independent.client import Batch, Mutation

_NOT_SIGNED = "did not make this signature over this header"
_SAYS = {
    ledger.RULE_TRANSACTION_SIGNATURE: _NOT_SIGNED,
    ledger.RULE_BATCH_SIGNATURE: _NOT_SIGNED,
    ledger.RULE_BATCHER_KEY: "is not the key that signed the batch",
    ledger.RULE_PAYLOAD_HASH: "the payload's SHA-512 is",
    ledger.RULE_TRANSACTION_IDS: "its header names",
    ledger.RULE_EMPTY_BATCH: "holds no transaction",
    ledger.RULE_DUPLICATE: "twice",
    ledger.RULE_ID_FORM: "is not a signature of 128 lower-case hex characters",
    ledger.RULE_KEY_FORM: "signer_pubkey: ",
    ledger.RULE_LOW_S: "high s",
    ledger.RULE_TRANSACTION_HEADER: "is no TransactionHeader",
    ledger.RULE_BATCH_HEADER: "is no BatchHeader",
}
_OF_A_TRANSACTION = (
    ledger.RULE_TRANSACTION_SIGNATURE,
    ledger.RULE_BATCHER_KEY,
    ledger.RULE_PAYLOAD_HASH,
    ledger.RULE_TRANSACTION_HEADER,
    ledger.RULE_DUPLICATE,
)


def _mutations(label: str = "a sample to forge") -> list[Mutation]:
    sample = ledger.make_sample(label)
    keys = {"batch_key": sample.batch_key, "transaction_keys": sample.transaction_keys}
    return list(ledger.mutations(sample.batch, **keys))  # type: ignore[arg-type]


def _variants() -> list[Mutation]:
    """Each variant has a sample of its own, because all variants of one sample set the same name."""
    names = [variant.name for variant in _variants_of("names")]
    return [_variants_of(name)[index] for index, name in enumerate(names)]


def _variants_of(label: str) -> list[Mutation]:
    sample = ledger.make_sample(f"a sample for {label}")
    return list(ledger.variants(sample.batch, batch_key=sample.batch_key, transaction_keys=sample.transaction_keys))


class TestBatchSignedByForeignCode:
    """A batch signed by independent code commits; with any changed bit it is refused."""

    def test_commits_and_its_link_leads_to_it(self, api: Api) -> None:
        sample = ledger.make_sample("a sample to commit")
        answer = api.post_list(sample.batch_list, wait=int(DEADLINE_S))
        assert answer.status_code == 201
        assert set(answer.json()) == {"link"}
        (found,) = api.get(answer.json()["link"])["data"]
        assert found["header_signature"] == sample.batch.id
        assert [entry["header_signature"] for entry in found["transactions"]] == [
            transaction.id for transaction in sample.batch.transactions
        ]
        assert api.words(sample.batch) == ["COMMITTED"]
        transaction_id = sample.batch.transactions[0].id
        assert api.get(f"/transactions/{transaction_id}")["data"]["header"]["family_name"] == "intkey"

    @pytest.mark.parametrize("mutation", _mutations(), ids=lambda mutation: mutation.name)
    def test_mutation_is_refused_with_the_rule_it_broke(self, api: Api, mutation: Mutation) -> None:
        answer = api.post_list(mutation.batch_list, wait=1)
        assert answer.status_code == 400, answer.text
        error = error_of(answer)
        assert error["code"] == 30
        assert _SAYS[mutation.rule] in error["message"]
        (batch,) = ledger.read_batch_list(mutation.batch_list)
        assert batch.id in error["message"]
        if mutation.rule in _OF_A_TRANSACTION:
            assert any(transaction.id in error["message"] for transaction in batch.transactions)

    def test_no_mutation_leaves_a_status_and_the_good_original_commits(self, api: Api) -> None:
        original = ledger.make_sample("a sample to forge").batch
        mutations = _mutations()
        for mutation in mutations:
            assert api.post_list(mutation.batch_list).status_code == 400
        bad = [batch.id for mutation in mutations for batch in ledger.read_batch_list(mutation.batch_list)]
        ids = [original.id, *filter(None, bad)]
        assert set(api.statuses(ids)["data"].values()) == {"UNKNOWN"}
        api.commit(original)

    def test_list_with_one_bad_batch_is_refused_whole(self, api: Api, author: Author) -> None:
        good = author.batch(author.intkey("set", "never set", 1))
        (bad,) = ledger.read_batch_list(_mutations("a sample beside a good one")[0].batch_list)
        answer = api.post(good, bad)
        assert (answer.status_code, error_of(answer)["code"]) == (400, 30)
        assert bad.id in error_of(answer)["message"]
        assert api.words(good, bad) == ["UNKNOWN", "UNKNOWN"]
        assert api.intkey("never set") is None

    @pytest.mark.parametrize("variant", _variants(), ids=lambda variant: variant.name)
    def test_unusual_but_good_encoding_commits_with_its_bytes_kept(
        self, api: Api, wire_to: WireClient, variant: Mutation
    ) -> None:
        answer = api.post_list(variant.batch_list, wait=int(DEADLINE_S))
        assert answer.status_code == 201, answer.text
        (batch,) = ledger.read_batch_list(variant.batch_list)
        # CLIENT_BATCH_GET_REQUEST: field 1 of the request is the id, field 2 of the answer the batch.
        fields = wire_to.ask(108, wire.encode([(1, batch.id)]))
        (stored,) = wire.get_all_bytes(fields, 2)
        assert Batch.from_bytes(stored).header_bytes == batch.header_bytes
        assert Batch.from_bytes(stored).transactions == batch.transactions


class TestAtomicBatch:
    """A batch whose second transaction fails leaves no trace of its first; of two batches, the valid one commits."""

    def test_second_fails_and_no_trace_of_the_first_is_left(
        self, api: Api, wire_to: WireClient, author: Author, named: Callable[[str], str]
    ) -> None:
        first = author.intkey("set", named("first"), 1)
        second = author.intkey("inc", named("absent"), 1)
        batch = author.batch(first, second)
        details = api.reject(batch)
        assert details["reason"] == "invalid_transaction"
        assert details["transaction_id"] == second.id
        assert named("absent") in details["message"]
        assert api.intkey(named("first")) is None
        assert wire_to.receipts(first.id) == NO_RESOURCE
        assert api.http.get(f"/transactions/{first.id}").status_code == 404
        assert api.http.get(f"/batches/{batch.id}").status_code == 404

    def test_transactions_of_a_batch_see_each_other_in_order(
        self, api: Api, author: Author, named: Callable[[str], str]
    ) -> None:
        name = named("n")
        steps = (("set", 5), ("inc", 10), ("dec", 3))
        api.commit(author.batch(*(author.intkey(verb, name, value) for verb, value in steps)))
        assert api.intkey(name) == 12

    def test_of_two_batches_the_good_one_commits_and_the_wait_ends_at_once(
        self, api: Api, author: Author, named: Callable[[str], str]
    ) -> None:
        good = author.batch(author.intkey("set", named("good"), 1))
        bad = author.batch(author.intkey("inc", named("absent"), 1))
        # The wait is longer than the client's timeout.
        answer = api.post(bad, good, wait=int(DEADLINE_S) * 10)
        assert answer.status_code == 200
        assert answer.json()["data"] == {bad.id: "INVALID", good.id: "COMMITTED"}
        assert set(answer.json()["details"]) == {bad.id}
        assert api.intkey(named("good")) == 1

    def test_invalid_batch_is_judged_again_when_it_comes_again(
        self, api: Api, author: Author, named: Callable[[str], str]
    ) -> None:
        early = author.batch(author.intkey("inc", named("n"), 1))
        api.reject(early)
        api.commit(author.batch(author.intkey("set", named("n"), 1)))
        api.commit(early)
        assert api.intkey(named("n")) == 2


class TestDuplicates:
    """API.md: a committed or pending batch is accepted again without a second effect."""

    def test_batch_posted_twice_has_one_effect(self, api: Api, author: Author, named: Callable[[str], str]) -> None:
        api.commit(author.batch(author.intkey("set", named("n"), 0)))
        (inc,) = author.incs(named("n"), 1)
        api.accept(inc)
        api.accept(inc)
        api.commit(inc)
        api.commit(inc)
        assert api.intkey(named("n")) == 1
        assert api.get("/batches", id=inc.id)["paging"]["total_count"] == 1

    def test_batch_twice_in_one_list_has_one_effect(
        self, api: Api, author: Author, named: Callable[[str], str]
    ) -> None:
        api.commit(author.batch(author.intkey("set", named("n"), 0)))
        (inc,) = author.incs(named("n"), 1)
        api.commit(inc, inc)
        assert api.intkey(named("n")) == 1

    def test_transaction_in_a_second_batch_is_a_duplicate(
        self, api: Api, author: Author, named: Callable[[str], str]
    ) -> None:
        shared = author.intkey("set", named("n"), 1)
        api.commit(author.batch(shared))
        details = api.reject(author.batch(shared, author.intkey("inc", named("n"), 1)))
        assert details["reason"] == "duplicate_transaction"
        assert details["transaction_id"] == shared.id
        assert api.intkey(named("n")) == 1

    def test_transaction_in_two_batches_of_one_list_is_committed_once(
        self, api: Api, author: Author, named: Callable[[str], str]
    ) -> None:
        shared = author.intkey("set", named("n"), 1)
        first = author.batch(shared)
        second = author.batch(shared, author.intkey("inc", named("n"), 1))
        answer = api.post(first, second, wait=int(DEADLINE_S) * 10)
        assert answer.json()["data"] == {first.id: "COMMITTED", second.id: "INVALID"}
        assert answer.json()["details"][second.id]["reason"] == "duplicate_transaction"
        assert api.intkey(named("n")) == 1

    def test_second_batch_gets_the_transaction_when_the_first_is_invalid(
        self, api: Api, author: Author, named: Callable[[str], str]
    ) -> None:
        shared = author.intkey("set", named("n"), 1)
        first = author.batch(shared, author.intkey("inc", named("absent"), 1))
        second = author.batch(shared)
        answer = api.post(first, second, wait=int(DEADLINE_S) * 10)
        assert answer.json()["data"] == {first.id: "INVALID", second.id: "COMMITTED"}
        assert api.intkey(named("n")) == 1
