"""Samples of /metrics as numbers.

This module reads samples and waits for values. The values that a test wants do not belong here.
"""

import time

from prometheus_client.parser import text_string_to_metric_families

from tests.system.e2e.clients import Api
from tests.system.e2e.process import DEADLINE_S, ProcessFailed


def metric(api: Api, sample: str, **labels: str) -> float:
    """The value of a sample; the sum over other labels, 0 if there is none."""
    answer = api.http.get("/metrics")
    assert answer.status_code == 200, answer.text
    return sum(
        found.value
        for family in text_string_to_metric_families(answer.text)
        for found in family.samples
        if found.name == sample and labels.items() <= found.labels.items()
    )


def wait_for_metric(api: Api, sample: str, value: float) -> None:
    """Ask until the sample has the value.

    Each request is a round trip through both processes, so the loop needs no pause.
    """
    deadline = time.monotonic() + DEADLINE_S
    while (found := metric(api, sample)) != value:
        if time.monotonic() > deadline:
            raise ProcessFailed(f"{sample} is {found:g}, not {value:g}, after {DEADLINE_S:g} s")
