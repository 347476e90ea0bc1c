"""The metrics of this process in Prometheus' text format. ``handlers.health`` serves them.

Names begin with ``dovetail_rest_``, and those of the validator with ``dovetail_validator_``, so that the two sets can
be joined. Nothing that a client sends becomes a label value.
"""

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from dovetail.rest_api.upstream.validator import ValidatorConnection
from dovetail.streams import LINES_DROPPED, lines_dropped

_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "POST"})
_OTHER_METHOD: Final = "other"
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 300)


class Metrics:
    def __init__(self, validator: ValidatorConnection) -> None:
        self._registry = CollectorRegistry()
        self.in_flight = 0
        """The number of requests that are being answered; the middleware counts them."""
        self._requests = Counter(
            "dovetail_rest_requests",
            "Requests answered; status 499: the client left first; without a route: an unknown path, or no request.",
            ["route", "method", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "dovetail_rest_request_seconds",
            "Time from a request's head to the end of its answer, waits included.",
            ["route", "method"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._gauge("requests_in_flight", "Requests that are being answered.", lambda: self.in_flight)
        self._gauge("validator_connected", "1 with a connection to the validator.", lambda: validator.connected)
        self._gauge("validator_questions_in_flight", "Questions to the validator.", lambda: validator.in_flight)
        self._registry.register(_LinesDropped())
        ProcessCollector("dovetail_rest", registry=self._registry)

    def _gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        Gauge(f"dovetail_rest_{name}", text, registry=self._registry).set_function(read)

    def count_answer(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a finished request. ``route``: its template, or empty; ``status`` may be ``errors.CLIENT_GONE``."""
        method = method if method in _METHODS else _OTHER_METHOD
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route, method).observe(seconds)

    def count_refusal(self, status: int) -> None:
        """Count a refused connection, or an answer to input that is not a complete HTTP request."""
        self._requests.labels("", _OTHER_METHOD, str(status)).inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _LinesDropped(Collector):
    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily("dovetail_rest_log_lines_dropped", LINES_DROPPED, value=lines_dropped())
