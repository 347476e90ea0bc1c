"""Serves the counts of a transaction processor as Prometheus metrics. The SDK does the counting.

Labels are ``family``, ``version`` and ``worker``, a number from 0. A replacement continues its predecessor's number and
counters.

- ``dovetail_processor_transactions_total``: counter; ``verdict`` is ok, invalid or error (worker, family, version)
- ``dovetail_processor_apply_seconds``: histogram of applies without waits for the validator (worker, family, version)
- ``dovetail_processor_tasks_in_flight``: gauge of unanswered messages from the validator (worker)
- ``dovetail_processor_connected``: gauge, 1 while the validator has accepted all families of a worker (worker)
- ``dovetail_processor_restarts_total``: counter of replaced workers (worker)
- ``dovetail_processor_log_lines_dropped_total``: counter of lines that nobody read, of all processes of this processor
"""

from collections.abc import Iterator
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, disable_created_metrics, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from dovetail.common.errors import Refused
from dovetail.streams import LINES_DROPPED, lines_dropped
from processor_sdk.apply.progress import APPLY_BUCKETS_S, FamilyCounts
from processor_sdk.runtime import Report

_FAMILY_LABELS = ("worker", "family", "version")


class ProcessorMetrics(Collector):
    """Serves the metrics of the last report."""

    def __init__(self) -> None:
        self._report = Report((), False)

    def __call__(self, report: Report) -> None:
        self._report = report

    def serve(self, address: str) -> "ProcessorMetrics":
        """Answer at HOST:PORT from now on, in separate threads. Raises Refused if it cannot listen there."""
        disable_created_metrics()  # type: ignore[no-untyped-call]
        parts = urlsplit(f"//{address}")
        registry = CollectorRegistry()
        registry.register(self)
        try:
            start_http_server(parts.port or 0, parts.hostname or "", registry)
        except OSError as error:
            raise Refused(f"cannot serve metrics at {address}: {error.strerror or error}") from None
        return self

    def collect(self) -> Iterator[Metric]:
        """The current metrics; prometheus_client calls this in any thread."""
        transactions = CounterMetricFamily(
            "dovetail_processor_transactions", "Transactions by verdict.", labels=(*_FAMILY_LABELS, "verdict")
        )
        seconds = HistogramMetricFamily(
            "dovetail_processor_apply_seconds", "Duration of applies.", labels=_FAMILY_LABELS
        )
        in_flight = GaugeMetricFamily("dovetail_processor_tasks_in_flight", "Messages to answer.", labels=("worker",))
        connected = GaugeMetricFamily("dovetail_processor_connected", "Registered, 1 or 0.", labels=("worker",))
        restarts = CounterMetricFamily("dovetail_processor_restarts", "Workers that were replaced.", labels=("worker",))
        for entry in self._report.workers:
            worker = str(entry.number)
            in_flight.add_metric((worker,), entry.in_flight)
            connected.add_metric((worker,), entry.registered)
            restarts.add_metric((worker,), entry.restarts)
            for family, counts in entry.counts.items():
                for verdict in ("ok", "invalid", "error"):
                    transactions.add_metric((worker, *family, verdict), getattr(counts, verdict))
                seconds.add_metric((worker, *family), _cumulated(counts), counts.seconds)
        dropped = CounterMetricFamily(
            "dovetail_processor_log_lines_dropped",
            LINES_DROPPED,
            value=lines_dropped() + sum(entry.lines_dropped for entry in self._report.workers),
        )
        yield from (transactions, seconds, in_flight, connected, restarts, dropped)


def _cumulated(counts: FamilyCounts) -> list[tuple[str, float]]:
    bounds = [*map(str, APPLY_BUCKETS_S), "+Inf"]
    return [(bound, sum(counts.buckets[: place + 1])) for place, bound in enumerate(bounds)]
