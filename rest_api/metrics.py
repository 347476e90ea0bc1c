"""What this process counts, and /metrics: its own figures and the validator's as one text in Prometheus' format.

The names begin with ``dovetail_rest_`` here and with ``dovetail_validator_`` there, so no family can come twice.
Nothing that a client sends becomes a label value.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.responses import Response

from protos import node_pb2
from rest_api.errors import ApiError
from rest_api.validator import MessageType, Validator

if TYPE_CHECKING:
    from rest_api.call import Call

log = structlog.get_logger(__name__)

_VALIDATOR_TIMEOUT_S: Final = 2
_MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "POST"})
_CLIENT_GONE: Final = "499"
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 300)


class Metrics:
    """The figures of one REST API, in a registry of their own."""

    def __init__(self, validator: Validator) -> None:
        self._registry = CollectorRegistry()
        self._in_flight = 0
        self._requests = Counter(
            "dovetail_rest_requests",
            "Requests answered; status 499: the client left before its answer.",
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

    def ended(self, route: str, method: str, status: int, seconds: float) -> None:
        """It was answered. ``route`` is its template, empty for an unknown path; ``status`` 0: the client left."""
        self._in_flight -= 1
        method = method if method in _METHODS else "other"
        self._requests.labels(route, method, str(status) if status else _CLIENT_GONE).inc()
        self._seconds.labels(route, method).observe(seconds)

    def text(self) -> bytes:
        """All figures in Prometheus' text format, version 0.0.4."""
        return generate_latest(self._registry)


async def get_metrics(call: "Call") -> Response:
    """This process's figures and, when the validator answers soon, the validator's."""
    try:
        theirs = await call.ask(
            MessageType.METRICS_REQUEST,
            node_pb2.MetricsRequest(),
            MessageType.METRICS_RESPONSE,
            node_pb2.MetricsResponse,
            timeout_s=_VALIDATOR_TIMEOUT_S,
        )
        text = theirs.text
    except ApiError as error:
        log.info("metrics without the validator's", request_id=call.request_id, reason=error.message)
        text = b""
    return Response(call.metrics.text() + text, media_type=_MEDIA_TYPE)
