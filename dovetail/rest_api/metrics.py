"""What this process counts, in Prometheus' format. The path that shows it is in ``health``.

The names begin with ``dovetail_rest_`` here and with ``dovetail_validator_`` in the validator, so no family can come
twice. Nothing that a client sends becomes a label value.
"""

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from dovetail.rest_api.upstream.validator import Validator

_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "POST"})
_OTHER_METHOD: Final = "other"
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 300)


class Metrics:
    """The figures of one REST API, in a registry of their own."""

    def __init__(self, validator: Validator) -> None:
        self._registry = CollectorRegistry()
        self._in_flight = 0
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
        self._gauge("requests_in_flight", "Requests that are being answered.", lambda: self._in_flight)
        self._gauge("validator_connected", "1 with a connection to the validator.", lambda: validator.connected)
        self._gauge("validator_questions_in_flight", "Questions to the validator.", lambda: validator.in_flight)
        ProcessCollector("dovetail_rest", registry=self._registry)

    def _gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        Gauge(f"dovetail_rest_{name}", text, registry=self._registry).set_function(read)

    def began(self) -> None:
        """A request came."""
        self._in_flight += 1

    def ended(self) -> None:
        """It holds nothing any more, whatever it was told."""
        self._in_flight -= 1

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request was. ``route`` is its template, empty for an unknown path; ``status`` 499: the client left."""
        method = method if method in _METHODS else _OTHER_METHOD
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route, method).observe(seconds)

    def refused(self, status: int) -> None:
        """Something came that is no request, or no whole one, or a connection too many, and was told so."""
        self._requests.labels("", _OTHER_METHOD, str(status)).inc()

    def text(self) -> bytes:
        """All figures in Prometheus' text format, version 0.0.4."""
        return generate_latest(self._registry)
