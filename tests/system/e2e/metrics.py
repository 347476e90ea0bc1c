"""What /metrics says, as numbers.

What lives here: reading it, and asking until a figure is as it must become. What must not: which figures a test wants.
"""

import time

from prometheus_client.parser import text_string_to_metric_families

from tests.system.e2e.clients import Api
from tests.system.e2e.process import DEADLINE_S, ProcessFailed


def metric(api: Api, sample: str, **labels: str) -> float:
    """The value of a sample; those that differ in other labels are added up, none at all is 0."""
    answer = api.http.get("/metrics")
    assert answer.status_code == 200, answer.text
    return sum(
        found.value
        for family in text_string_to_metric_families(answer.text)
        for found in family.samples
        if found.name == sample and labels.items() <= found.labels.items()
    )


def wait_for_metric(api: Api, sample: str, value: float) -> None:
    """Ask until the sample has the value. Each answer takes a round trip through both processes, so nothing spins."""
    deadline = time.monotonic() + DEADLINE_S
    while (found := metric(api, sample)) != value:
        if time.monotonic() > deadline:
            raise ProcessFailed(f"{sample} is {found:g}, not {value:g}, after {DEADLINE_S:g} s")
