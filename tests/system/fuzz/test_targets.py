"""Every target runs its seeds, mutations of the seeds, and the whole corpus: no bug, no hang, bounded memory.

The long search by coverage: ``tox -e fuzz -- --seconds 30``.
"""

import gc
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.processor_sdk.mutations import mutated
from tests.system.fuzz.run import CORPUS, INPUT_BYTES_MAX
from tests.system.fuzz.target import Target
from tests.system.fuzz.targets import TARGETS

PEAK_BYTES_MAX = 16 * 1024 * 1024
"""The limit of memory for one input of at most INPUT_BYTES_MAX."""

GROWTH_BYTES_MAX = 512 * 1024
"""The limit of memory that remains after as many rounds of the same inputs: caches and accepted batches."""

ROUNDS = 2

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module", params=TARGETS)
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    made = TARGETS[request.param](tmp_path_factory.mktemp(request.param))
    yield made
    made.close()


def kept(name: str) -> list[Path]:
    return sorted((CORPUS / name).iterdir())


def test_every_target_has_a_corpus_of_small_files() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == TARGETS.keys()
    for name in TARGETS:
        sizes = [file.stat().st_size for file in kept(name)]
        assert sizes
        assert max(sizes) <= INPUT_BYTES_MAX


def test_the_corpus_of_all_targets_is_taken(target: Target) -> None:
    for name in TARGETS:
        for file in kept(name):
            try:
                target.run(file.read_bytes())
            except BaseException as error:
                error.add_note(f"the input is {file}")
                raise


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], max_examples=40)
@given(data=st.data())
def test_seeds_and_what_is_near_them_are_taken(target: Target, data: st.DataObject) -> None:
    seeds = list(target.seeds())
    target.run(data.draw(st.one_of(mutated(st.sampled_from(seeds)), st.binary(max_size=200))))


def test_memory_is_bounded_and_does_not_grow(target: Target) -> None:
    inputs = [*target.seeds(), *(file.read_bytes() for file in kept(target.name))]
    for data in inputs:
        target.run(data)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(ROUNDS):
            for data in inputs:
                tracemalloc.reset_peak()
                held = tracemalloc.get_traced_memory()[0]
                target.run(data)
                assert tracemalloc.get_traced_memory()[1] - held < PEAK_BYTES_MAX
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < GROWTH_BYTES_MAX
    finally:
        tracemalloc.stop()
