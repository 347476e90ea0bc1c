"""Execution equals serial execution, for any number of processors, any protocol and any order of their answers."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.ledger.batch import VerifiedBatch
from dovetail.validator.core.execution.schedule import schedule
from tests.properties.serial import (
    Network,
    OtherHandler,
    Outcome,
    Script,
    ScriptHandler,
    address,
    make_batch,
    prefix_of,
    run_on,
    run_serially,
    transaction_id_of,
)

ADDRESSES = 16
OPERATIONS = (
    "get",
    "get",
    "set",
    "set",
    "set",
    "delete",
    "list70",
    "list8",
    "list6",
    "list0",
    "clear",
    "fail_if_even",
    "fail",
)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[dict[str, bytes], list[VerifiedBatch]]:
    """A state, and batches that read, write, delete, fail, omit addresses, declare prefixes, depend on each other."""
    state = {address(number): b"old" for number in draw(st.sets(st.integers(0, ADDRESSES - 1)))}
    batches = []
    for number in range(draw(st.integers(1, 12))):
        scripts = [draw(_scripts(number)) for _ in range(draw(st.integers(1, 3)))]
        batches.append(make_batch(number, scripts))
    return state, batches


@st.composite
def _scripts(draw: st.DrawFn, batch: int) -> Script:
    few = st.integers(0, ADDRESSES - 1)
    operations = draw(st.lists(st.tuples(st.sampled_from(OPERATIONS), few), max_size=5))
    # Unconditional failures in many scripts would make most batches invalid, so most are removed.
    operations = [step for step in operations if step[0] != "fail" or step[1] == 0]
    touched = [address(number) for _, number in operations]
    lengths = st.sampled_from((70, 70, 70, 10, 8, 6, 0))
    inputs = [
        name[: min(draw(lengths), _listed_characters(step))] for name, step in zip(touched, operations, strict=True)
    ]
    outputs = [
        name[: 8 if step[0] == "clear" else draw(lengths)] for name, step in zip(touched, operations, strict=True)
    ]
    if inputs and draw(st.integers(0, 9)) == 0:
        inputs.pop()
    if outputs and draw(st.integers(0, 9)) == 0:
        outputs.pop()
    dependencies = [
        transaction_id_of(other, 0)
        for other in draw(st.sets(st.integers(0, max(batch - 1, 0)), max_size=1))
        if other < batch
    ]
    return Script(operations, tuple(inputs), tuple(outputs), tuple(dependencies), draw(st.integers(0, 3)) // 3)


def _listed_characters(step: tuple[str, int]) -> int:
    """The length of the longest declared input that still permits a step."""
    operation, number = step
    return 8 if operation == "clear" else len(prefix_of(operation, number)) if operation.startswith("list") else 70


def _same(outcome: Outcome, expected: Outcome) -> None:
    assert outcome.batches == expected.batches
    assert outcome.state == expected.state


def _same_without_the_undecided(outcome: Outcome, state: dict[str, bytes], batches: Sequence[VerifiedBatch]) -> None:
    """The result equals serial execution of the batches that did not stay pending."""
    undecided = ("waiting_for_processor", "waiting_for_dependency", "processor_lost")
    decided = [number for number, verdict in enumerate(outcome.batches) if verdict not in undecided]
    expected = run_serially(state, [batches[number] for number in decided])
    assert outcome.state == expected.state
    assert [outcome.batches[number] for number in decided] == expected.batches


@pytest.mark.parametrize("protocols", ["p", "l", "ppp", "lll", "plp"])
@settings(max_examples=80, deadline=None)
@given(block=blocks(), seed=st.integers(0, 2**32), transactions_max=st.sampled_from((1, 3, 256)))
def test_equals_plain_serial_execution(
    protocols: str, block: tuple[dict[str, bytes], list[VerifiedBatch]], seed: int, transactions_max: int
) -> None:
    state, batches = block
    network = Network(random.Random(seed).randrange)
    for number, protocol in enumerate(protocols):
        network.connect(f"processor {number}".encode(), [ScriptHandler(), OtherHandler()], protocol == "p")
    _same(run_on(network, state, batches, transactions_max), run_serially(state, batches))


@settings(max_examples=120, deadline=None)
@given(block=blocks(), seed=st.integers(0, 2**32), transactions_max=st.sampled_from((1, 3, 256)))
def test_blocks_that_end_while_tasks_run_change_nothing(
    block: tuple[dict[str, bytes], list[VerifiedBatch]], seed: int, transactions_max: int
) -> None:
    state, batches = block
    chance = random.Random(seed)
    network = Network(chance.randrange)
    for number in range(3):
        network.connect(f"processor {number}".encode(), [ScriptHandler(), OtherHandler()], chance.random() < 0.7)
    outcome = run_on(network, state, batches, transactions_max, ends_early=lambda: chance.random() < 0.3)
    _same(outcome, run_serially(state, batches))


@settings(max_examples=80, deadline=None)
@given(block=blocks(), seed=st.integers(0, 2**32))
def test_processors_that_die_in_mid_task_change_nothing(
    block: tuple[dict[str, bytes], list[VerifiedBatch]], seed: int
) -> None:
    state, batches = block
    chance = random.Random(seed)
    network = Network(chance.randrange)
    names = [f"processor {number}".encode() for number in range(4)]
    for name in names:
        network.connect(name, [ScriptHandler(), OtherHandler()], chance.random() < 0.5)

    def kill_some() -> Sequence[Any]:
        return network.kill(names.pop()) if len(names) > 1 and chance.random() < 0.2 else []

    outcome = run_on(network, state, batches, 256, lambda: list(kill_some()))
    _same_without_the_undecided(outcome, state, batches)


@settings(max_examples=120, deadline=None)
@given(block=blocks(), seed=st.integers(0, 2**32))
def test_a_write_outside_the_outputs_leaves_nothing_and_changes_no_other_batch(
    block: tuple[dict[str, bytes], list[VerifiedBatch]], seed: int
) -> None:
    state, batches = block
    chance = random.Random(seed)
    lies = frozenset(transaction.id for batch in batches for transaction in batch.transactions if chance.random() < 0.2)
    network = Network(chance.randrange, lies)
    for name in (b"one", b"two"):
        network.connect(name, [ScriptHandler(), OtherHandler()], packed=True)
    _same(run_on(network, state, batches, 256), run_serially(state, batches, lies))


@settings(max_examples=120, deadline=None)
@given(block=blocks(), seed=st.integers(0, 2**32), transactions_max=st.sampled_from((1, 3, 256)))
def test_batches_without_a_processor_delay_no_others(
    block: tuple[dict[str, bytes], list[VerifiedBatch]], seed: int, transactions_max: int
) -> None:
    state, batches = block
    network = Network(random.Random(seed).randrange)
    for name in (b"one", b"two"):
        network.connect(name, [ScriptHandler()], packed=True)
    _same_without_the_undecided(run_on(network, state, batches, transactions_max), state, batches)


def test_a_batch_that_fails_before_its_turn_keeps_the_order_of_its_neighbours() -> None:
    place = address(0)

    def script(operation: str, *, dependency: int | None = None, padding: int = 0) -> list[Script]:
        dependencies = () if dependency is None else (transaction_id_of(dependency, 0),)
        touching = Script([(operation, 0)], (place,), (place,), dependencies, 0)
        return [touching] + [Script([], (), (), (), 0)] * padding

    # Batch 3 fails with batch 0 while batch 2 still runs; batch 4 waits for batch 2 only through batch 3.
    batches = [
        make_batch(0, [Script([("fail", 0)], (), (), (), 0)]),
        make_batch(1, script("set")),
        make_batch(2, script("get", padding=2)),
        make_batch(3, script("get", dependency=0)),
        make_batch(4, script("set")),
    ]
    for seed in range(20):
        network = Network(random.Random(seed).randrange)
        for name in (b"one", b"two"):
            network.connect(name, [ScriptHandler()], packed=True)
        _same(run_on(network, {}, batches, 1), run_serially({}, batches))


def test_a_hot_address_costs_no_more_messages_than_a_cold_one() -> None:
    def messages(hot: bool) -> int:
        network = Network(lambda _: 0)
        network.connect(b"one", [ScriptHandler()], packed=True)
        scripts = [
            Script([("get", number), ("set", number)], (address(number),), (address(number),), (), 0)
            for number in ([0] * 64 if hot else [index % ADDRESSES for index in range(64)])
        ]
        run_on(network, {}, [make_batch(index, [script]) for index, script in enumerate(scripts)], 256)
        return network.messages

    assert messages(hot=True) == messages(hot=False) == 1


def test_all_batches_that_depend_on_a_failed_batch_fail() -> None:
    network = Network(lambda _: 0)
    network.connect(b"one", [ScriptHandler()], packed=True)
    batches = [make_batch(0, [Script([("fail", 0)], (), (), (), 0)])]
    batches += [
        make_batch(number, [Script([], (), (), (transaction_id_of(number - 1, 0),), 0)]) for number in range(1, 3_000)
    ]
    verdicts = run_on(network, {}, batches, 256).batches
    assert verdicts == ["invalid_transaction"] + ["dependency_invalid"] * 2_999


def test_a_writer_waits_for_every_earlier_reader_of_its_address() -> None:
    place = address(0)
    reader = Script([("get", 0)], (place,), (), (), 0)
    writer = Script([("set", 0)], (), (place,), (), 0)
    batches = [make_batch(0, [reader]), make_batch(1, [reader]), make_batch(2, [writer])]
    assert schedule(batches).waits_for == [0, 0, 2]
