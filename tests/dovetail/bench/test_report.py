"""The statistics that several reports share."""

from dovetail.bench.report import Latency, latency


def test_percentiles_are_by_nearest_rank() -> None:
    assert latency([number / 1000 for number in range(100, 0, -1)]) == Latency(100, 50.0, 95.0, 99.0)
    assert latency([0.25]) == Latency(1, 250.0, 250.0, 250.0)
