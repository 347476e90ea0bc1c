"""Counts of blocks, batches, tasks and messages, and the bound on the number of labels."""

from dataclasses import replace

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dovetail.ledger.ids import BatchId
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.execution.model import Task, Unit
from dovetail.validator.metrics import OTHER, Metrics, Totals, type_name
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.support import make_batch, make_id, make_transaction

INTKEY = FamilyVersion("intkey", "1.0")
BATCH = BatchId(make_id("batch"))
SETTINGS = FamilyVersion("sawtooth_settings", "1.0")


def samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every sample by its name and label values, in the order of their names."""
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
    }


@pytest.fixture
def metrics() -> Metrics:
    made = Metrics(Limits(), lambda: 0)
    for family in (INTKEY, SETTINGS):
        made.family_registered(family)
    return made


def test_a_block_counts_for_each_family_that_it_holds(metrics: Metrics) -> None:
    mixed = make_batch("mixed", make_transaction(1), make_transaction(2), make_transaction(3, family=SETTINGS))
    metrics.block_committed([mixed, make_batch("plain")], 0.25, 0.125)
    metrics.block_committed([make_batch("later")], 0.25, 0.125)
    assert metrics.totals == Totals(2, 3, 0, 5, 0)
    assert metrics.families[INTKEY] == Totals(2, 3, 0, 4, 0)
    assert metrics.families[SETTINGS] == Totals(1, 1, 0, 1, 0)
    assert metrics.families[OTHER] == Totals()
    found = samples(metrics)
    assert found["dovetail_validator_block_transactions_sum", ()] == 5
    assert found["dovetail_validator_block_transactions_count", ()] == 2
    assert found["dovetail_validator_block_seconds_sum", ()] == 0.5
    assert found["dovetail_validator_commit_seconds_sum", ()] == 0.25
    assert found["dovetail_validator_block_seconds_bucket", ("0.1",)] == 0
    assert found["dovetail_validator_block_seconds_bucket", ("0.25",)] == 2


def test_all_transactions_of_an_invalid_batch_are_invalid(metrics: Metrics) -> None:
    metrics.judged_invalid([make_batch("a", make_transaction(1), make_transaction(2)), make_batch("b")])
    assert metrics.totals == metrics.families[INTKEY] == Totals(0, 0, 2, 0, 3)


def test_families_that_nobody_registered_share_one_place(metrics: Metrics) -> None:
    strangers = [make_batch(n, make_transaction(n, family=(f"stranger {n}", "1.0"))) for n in range(50)]
    both = make_batch("both", make_transaction("x", family=("x", "1")), make_transaction("y", family=("y", "1")))
    metrics.judged_invalid([*strangers, both])
    assert metrics.families.keys() == {OTHER, INTKEY, SETTINGS}
    assert metrics.families[OTHER] == Totals(0, 0, 51, 0, 52)


def test_registered_families_have_places_up_to_the_limit() -> None:
    metrics = Metrics(replace(Limits(), family_labels_max=2), lambda: 0)
    families = [FamilyVersion("family", str(number)) for number in range(4)]
    for family in families * 2:
        metrics.family_registered(family)
    assert list(metrics.families) == [OTHER, *families[:2]]
    for number, family in enumerate(families):
        metrics.task_given(task := Task(number, family, (Unit(0, BATCH, (make_transaction(number),)),)))
        metrics.task_ended(task, answered=True)
        metrics.block_committed([make_batch(number, make_transaction(number, family=family))], 0, 0)
    assert metrics.families[OTHER] == Totals(2, 2, 0, 2, 0)
    found = samples(metrics)
    counts = {labels: value for (name, labels), value in found.items() if name.endswith("apply_seconds_count")}
    assert counts == {("family", "0"): 1, ("family", "1"): 1, tuple(OTHER): 2}


def test_a_family_that_did_nothing_gives_its_place_back(metrics: Metrics) -> None:
    """A new family gets a label, however many idle families were registered before."""
    for number in range(300):
        family = FamilyVersion("junk", str(number))
        metrics.family_registered(family)
        metrics.task_given(task := Task(number, family, (Unit(0, BATCH, (make_transaction(1),)),)))
        metrics.task_ended(task, answered=True)
        metrics.family_left(family)
        metrics.family_left(family)
    metrics.judged_invalid([make_batch(1)])
    for family in (INTKEY, SETTINGS, OTHER):
        metrics.family_left(family)
    assert metrics.families == {OTHER: Totals(), INTKEY: Totals(0, 0, 1, 0, 1)}
    assert not [labels for name, labels in samples(metrics) if "junk" in labels]
    metrics.family_registered(SETTINGS)
    assert metrics.label(SETTINGS) == SETTINGS


def test_a_task_is_timed_from_its_start_to_its_answer_by_the_transaction() -> None:
    now_s = [100.0]
    metrics = Metrics(Limits(), lambda: now_s[0])
    metrics.family_registered(INTKEY)
    transactions = tuple(map(make_transaction, range(4)))
    answered = Task(1, INTKEY, (Unit(0, BATCH, transactions[:3]), Unit(1, BATCH, transactions[3:])))
    lost = Task(2, INTKEY, (Unit(2, BATCH, transactions),))
    metrics.task_given(lost)
    metrics.task_given(answered)
    now_s[0] += 2
    metrics.task_ended(lost, answered=False)
    metrics.task_ended(answered, answered=True)
    # A task is timed once, and the end of an unknown task changes nothing.
    metrics.task_ended(answered, answered=True)
    found = samples(metrics)
    assert found["dovetail_validator_apply_seconds_count", INTKEY] == 1
    assert found["dovetail_validator_apply_seconds_sum", INTKEY] == 0.5


def test_messages_count_by_the_names_of_their_types() -> None:
    metrics = Metrics(Limits(), lambda: 0)
    for number in (Envelope.LIST_REQUEST, Envelope.LIST_REQUEST, 77_777, -1, 2**31 - 1):
        metrics.message_arrived(number)
    assert metrics.requests == {"LIST_REQUEST": 2, "unknown": 3}
    assert type_name(Envelope.PING_REQUEST) == "PING_REQUEST"


def test_two_validators_in_one_process_count_apart() -> None:
    first, second = Metrics(Limits(), lambda: 0), Metrics(Limits(), lambda: 0)
    first.block_committed([], 0, 0)
    assert (first.totals.blocks_committed, second.totals.blocks_committed) == (1, 0)


def test_the_text_is_prometheus_format(metrics: Metrics) -> None:
    odd = FamilyVersion('new\nline "and" \\', "é")
    metrics.family_registered(odd)
    metrics.task_given(task := Task(1, odd, (Unit(0, BATCH, (make_transaction(1),)),)))
    metrics.task_ended(task, answered=True)
    parsed = list(text_string_to_metric_families(generate_latest(metrics.registry).decode()))
    labels = [sample.labels for family in parsed for sample in family.samples if sample.name.endswith("seconds_count")]
    assert {"family": odd.name, "version": odd.version} in labels
