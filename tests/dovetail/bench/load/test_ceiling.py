"""The rates at which a load's signatures are verified."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dovetail.bench.load.ceiling import SignatureRate, measure_ceiling, measure_verify_batch
from dovetail.bench.signed_load import Load, Post, sign_post
from tests.dovetail.bench.inline_workers import InlineWorkers

_LOAD = Load(seed=7, mark="ab12cd34", kind="create", names=0, transactions=6, shape=3, per_post=2)


@pytest.mark.parametrize(("measure", "signatures"), [(measure_ceiling, 1), (measure_verify_batch, 4)])
def test_a_rate_counts_the_signatures_of_all_workers(
    monkeypatch: pytest.MonkeyPatch, measure: Callable[..., Coroutine[Any, Any, SignatureRate]], signatures: int
) -> None:
    """Each reading of the clock shows 1 s more. A worker ends at the first reading that is 3 s after its start."""
    seconds = iter(range(100))
    monkeypatch.setattr(time, "perf_counter", lambda: next(seconds))
    cpu_seconds = iter(range(0, 100, 2))
    monkeypatch.setattr(time, "process_time", lambda: next(cpu_seconds))
    posts = [sign_post(_LOAD, 0)]
    rate = asyncio.run(measure(InlineWorkers(2), posts, 3.0))
    assert rate.signatures_per_s == 2 * signatures
    assert rate.cpu_us == pytest.approx(2 / (3 * signatures) * 1e6)
    assert rate.core_share == pytest.approx(2 / 3)


def test_a_wrong_signature_ends_the_measurement() -> None:
    body = sign_post(_LOAD, 0).body
    id_ = sign_post(_LOAD, 0).batch_ids[0].encode()
    wrong = Post(body.replace(id_, sign_post(_LOAD, 0).batch_ids[1].encode()), (), 6)
    with pytest.raises(AssertionError, match="wrong signature"):
        asyncio.run(measure_ceiling(InlineWorkers(), [wrong], 0.5))
