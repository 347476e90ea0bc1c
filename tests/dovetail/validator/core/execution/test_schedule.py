"""The schedule: conflicting batches keep their order, directly or through others, with few edges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.ledger.batch import VerifiedBatch
from dovetail.validator.core.execution.schedule import Schedule, schedule
from tests.dovetail.validator.support import address, make_batch, make_transaction

_places = st.builds(
    lambda name, length: name.ljust(70, "0")[:length],
    st.text("01", min_size=3, max_size=3),
    st.sampled_from((0, 2, 4, 6, 70)),
)
_few = st.lists(_places, max_size=2).map(tuple)


@st.composite
def blocks(draw: st.DrawFn) -> list[VerifiedBatch]:
    batches: list[VerifiedBatch] = []
    for number in range(draw(st.integers(0, 14))):
        transactions = []
        for position in range(draw(st.integers(1, 2))):
            known = [transaction.id for batch in batches for transaction in batch.transactions]
            dependencies = draw(st.lists(st.sampled_from(known), max_size=1)) if known else []
            name = (number, position)
            transactions.append(
                make_transaction(name, inputs=draw(_few), outputs=draw(_few), dependencies=dependencies)
            )
        batches.append(make_batch(number, *transactions))
    return batches


def meets(left: str, right: str) -> bool:
    return left.startswith(right) or right.startswith(left)


def conflict(earlier: VerifiedBatch, later: VerifiedBatch) -> bool:
    """Whether the order of two batches may matter, by their declarations alone."""
    known = {transaction.id for transaction in earlier.transactions}
    for one in earlier.transactions:
        for two in later.transactions:
            if known.intersection(two.dependencies):
                return True
            written = any(meets(output, entry) for output in one.outputs for entry in (*two.inputs, *two.outputs))
            if written or any(meets(output, entry) for output in two.outputs for entry in one.inputs):
                return True
    return False


def followers(order: Schedule) -> list[int]:
    """For each batch, the later batches that wait for it, directly or through others, as the bits of a number."""
    after = [0] * len(order.frees)
    for index in range(len(order.frees) - 1, -1, -1):
        for follower in order.frees[index]:
            after[index] |= after[follower] | 1 << follower
    return after


def check_shape(order: Schedule, count: int) -> None:
    assert len(order.frees) == len(order.waits_for) == len(order.dependents) == count
    waits = [0] * count
    for index, freed in enumerate(order.frees):
        assert len(freed) == len(set(freed))
        for follower in freed:
            assert index < follower
            waits[follower] += 1
    assert order.waits_for == waits


@given(blocks())
def test_conflicting_batches_keep_their_order(batches: list[VerifiedBatch]) -> None:
    order = schedule(batches)
    check_shape(order, len(batches))
    after = followers(order)
    for later in range(len(batches)):
        for earlier in range(later):
            if conflict(batches[earlier], batches[later]):
                assert after[earlier] >> later & 1


@given(blocks())
def test_dependents_are_those_that_name_a_transaction(batches: list[VerifiedBatch]) -> None:
    order = schedule(batches)
    for earlier, dependents in enumerate(order.dependents):
        held = {transaction.id for transaction in batches[earlier].transactions}
        expected = [
            (later, transaction.id, dependency)
            for later, batch in enumerate(batches)
            if later > earlier
            for transaction in batch.transactions
            for dependency in transaction.dependencies
            if dependency in held
        ]
        assert sorted(dependents) == sorted(expected)


def test_batches_without_a_conflict_do_not_wait() -> None:
    batches = [make_batch(n, make_transaction(n, inputs=[address(n)], outputs=[address(n)])) for n in range(200)]
    order = schedule(batches)
    assert order.waits_for == [0] * 200


def test_a_few_readers_of_one_address_do_not_wait() -> None:
    batches = [make_batch(n, make_transaction(n, inputs=["1cf126", address(0)])) for n in range(50)]
    assert schedule(batches).waits_for == [0] * 50


def test_a_batch_does_not_wait_for_itself() -> None:
    first = make_transaction("a", outputs=["", "1cf1", address(0)])
    second = make_transaction("b", inputs=["", address(0)], outputs=[address(0)], dependencies=[first.id])
    order = schedule([make_batch("batch", first, second)])
    assert order == Schedule([0], [[]], [[]])


def reader(number: int) -> VerifiedBatch:
    return make_batch(("reads", number), make_transaction(("reads", number), inputs=["1cf126"]))


def writer(number: int) -> VerifiedBatch:
    return make_batch(("writes", number), make_transaction(("writes", number), outputs=[address(number)]))


@pytest.mark.parametrize("mixed", [False, True])
def test_many_readers_of_a_prefix_and_writers_under_it_need_few_edges(mixed: bool) -> None:
    def edges(count: int) -> int:
        readers, writers = [*map(reader, range(count))], [*map(writer, range(count))]
        batches = (
            [batch for pair in zip(readers, writers, strict=True) for batch in pair] if mixed else readers + writers
        )
        order = schedule(batches)
        check_shape(order, 2 * count)
        after = followers(order)
        places = {batch.id: index for index, batch in enumerate(batches)}
        for number in range(0, count, count // 10):
            read, written = places[readers[number].id], places[writers[number].id]
            assert after[min(read, written)] >> max(read, written) & 1
        return sum(order.waits_for)

    few, many = edges(500), edges(2_000)
    assert many <= 2 * 2_000 * 65
    assert many <= 4 * few * 1.2


def test_a_writer_waits_only_for_the_readers_since_the_last_writer() -> None:
    place = [address(0)]
    batches = []
    for number in range(300):
        batches.append(make_batch(("reads", number), make_transaction(("reads", number), inputs=place)))
        batches.append(make_batch(("writes", number), make_transaction(("writes", number), outputs=place)))
    order = schedule(batches)
    check_shape(order, 600)
    assert max(order.waits_for) <= 2


@pytest.mark.parametrize("outputs", [["1cf126"], [address(0)], [""]])
def test_writers_of_one_address_form_a_chain(outputs: list[str]) -> None:
    batches = [make_batch(n, make_transaction(n, inputs=outputs, outputs=outputs)) for n in range(1_000)]
    order = schedule(batches)
    assert order.waits_for == [0] + [1] * 999
    assert order.frees == [[n + 1] for n in range(999)] + [[]]
