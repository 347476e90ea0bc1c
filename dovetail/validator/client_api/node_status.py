"""The state of the node as NodeStatusResponse and as Prometheus metrics. Reads everything, changes nothing."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from typing import Final

import psutil
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.version import installed_version
from dovetail.streams import LINES_DROPPED, lines_dropped
from dovetail.validator.client_api.conditions import Conditions, Kind
from dovetail.validator.client_api.families import Families, timestamp
from dovetail.validator.client_api.statuses import Statuses
from dovetail.validator.config import ValidatorConfig
from dovetail.validator.core.mempool.queue import PendingQueue, Reason
from dovetail.validator.metrics import NAMESPACE, OTHER, DropCause, Metrics, Totals
from dovetail.validator.processors.comparing import OUTCOMES, Comparisons
from dovetail.validator.processors.processor import STATES
from dovetail.validator.processors.registry import Processors
from dovetail.validator.store import Store
from protos import node_pb2

_FAMILY: Final = ("family", "version")
_TICKS_A_SAMPLE: Final = 4
"""Each sample of the CPU load is the average since the previous sample. Averages over a shorter time mean little."""


class NodeStatus(Collector):
    """Collects counts that other parts keep, at the time of the request."""

    def __init__(
        self,
        config: ValidatorConfig,
        metrics: Metrics,
        store: Store,
        queue: PendingQueue,
        processors: Processors,
        statuses: Statuses,
        families: Families,
        conditions: Conditions,
        comparisons: Comparisons,
    ) -> None:
        self._metrics = metrics
        self._store = store
        self._queue = queue
        self._processors = processors
        self._statuses = statuses
        self._families = families
        self._conditions = conditions
        self._comparisons = comparisons
        self._limits = config.limits
        self._config = _config_entries(config)
        self._host = _Host()
        metrics.registry.register(self)

    def status(self) -> node_pb2.NodeStatusResponse:
        """Totals, configuration and host. The status is NOT_READY until there is a genesis block."""
        head = self._store.head
        response = node_pb2.NodeStatusResponse(
            status="OK" if head else "NOT_READY",
            pending_batches=len(self._queue),
            totals=_totals(self._metrics.totals),
            config=self._config,
            system=self._host.read(),
            timestamp=timestamp(),
            warnings=[unready.warning for unready in self._families.unready()],
        )
        for condition in self._conditions.held:
            response.conditions.add(
                condition=condition.kind, seconds=self._conditions.seconds(condition), message=condition.message
            )
        if head is not None:
            response.head_id, response.head_num = head.id, head.num
        for (name, family_version), totals in self._shown_families():
            response.families.add(family_name=name, family_version=family_version, totals=_totals(totals))
        return response

    def processors(self) -> node_pb2.ProcessorsResponse:
        """The connected processors, with or without a genesis block.

        Omits the newest ones if the response would exceed half of ``message_bytes_max``.
        """
        response = node_pb2.ProcessorsResponse(timestamp=timestamp())
        room_bytes = self._limits.message_bytes_max // 2
        for status in self._processors.statuses():
            room_bytes -= status.ByteSize()
            if room_bytes < 0:
                break
            response.processors.append(status)
        return response

    def tick(self) -> None:
        """Sample the host's load. To be called at intervals."""
        self._host.tick()

    def text(self) -> bytes:
        """All metrics in Prometheus' text format, version 0.0.4."""
        return generate_latest(self._metrics.registry)

    def collect(self) -> Iterator[Metric]:
        yield from self._totals_metrics()
        yield from self._queue_metrics()
        # Families without a processor are included with 0, so that an alert can match them.
        connected = dict.fromkeys((family for family, _ in self._shown_families() if family != OTHER), 0)
        for family, count in self._processors.counts().items():
            label = self._metrics.label(family)
            connected[label] = connected.get(label, 0) + count
        yield _gauges("processors", "Processors that take work.", _FAMILY, connected.items())
        states = self._processors.states()
        counts = [((state,), states[state]) for state in STATES]
        yield _gauges("processor_connections", "Connections of processors.", ("state",), counts)
        compared = CounterMetricFamily(
            f"{NAMESPACE}_comparisons", "Samples that two processors of a family judged.", labels=("outcome",)
        )
        for outcome in OUTCOMES:
            compared.add_metric((outcome,), self._comparisons.counts[outcome])
        yield compared
        # These names come from the setting, at most ``WARNINGS_MAX``, so they need no other bound.
        unready = dict.fromkeys((found.family for found in self._families.unready()), 1)
        text = "1 for a permitted or coming version that would stall."
        yield _gauges("upgrade_unready", text, _FAMILY, unready.items())
        held = {condition.kind for condition in self._conditions.held}
        text = "1 while the node cannot work as it should, for this reason."
        yield _gauges("condition", text, ("condition",), [((kind,), kind in held) for kind in Kind])
        yield _gauge("store_bytes", "Bytes of the store that hold something.", self._store.used_bytes())
        yield CounterMetricFamily(
            f"{NAMESPACE}_damaged_reads",
            "Reads of the store that met what is not what was written.",
            value=self._store.damaged_reads,
        )
        yield CounterMetricFamily(f"{NAMESPACE}_log_lines_dropped", LINES_DROPPED, value=lines_dropped())
        free = self._store.free_bytes()
        if free is not None:
            yield _gauge("disk_free_bytes", "Bytes that are free on the disk of the store.", free)
        yield _gauge("waiters", "Clients that wait for the statuses of batches.", self._statuses.waiters)
        head = self._store.head
        # The metric is absent without a chain, because 0 is the number of block 0.
        if head is not None:
            yield _gauge("head_block_num", "Number of the newest block.", head.num)

    def _totals_metrics(self) -> Iterator[Metric]:
        totals = self._metrics.totals
        yield CounterMetricFamily(f"{NAMESPACE}_blocks", "Committed blocks.", value=totals.blocks_committed)
        batches = CounterMetricFamily(f"{NAMESPACE}_batches", "Settled batches.", labels=("outcome",))
        batches.add_metric(("committed",), totals.batches_committed)
        batches.add_metric(("invalid",), totals.batches_invalid)
        yield batches
        transactions = CounterMetricFamily(
            f"{NAMESPACE}_transactions", "Transactions of settled batches.", labels=(*_FAMILY, "outcome")
        )
        for family, counted in self._shown_families():
            transactions.add_metric((*family, "committed"), counted.transactions_committed)
            transactions.add_metric((*family, "invalid"), counted.transactions_invalid)
        yield transactions
        dropped = CounterMetricFamily(
            f"{NAMESPACE}_batches_dropped", "Pending batches that were removed without a verdict.", labels=("cause",)
        )
        for cause in DropCause:
            dropped.add_metric((cause,), self._metrics.dropped[cause])
        yield dropped
        requests = CounterMetricFamily(
            f"{NAMESPACE}_requests", "Messages from processors and clients.", labels=("type",)
        )
        for name, count in self._metrics.requests.items():
            requests.add_metric((name,), count)
        yield requests

    def _queue_metrics(self) -> Iterator[Metric]:
        counts = self._queue.reasons()
        reasons = [((reason,), counts[reason]) for reason in Reason]
        yield _gauges("pending_batches", "Pending batches.", ("reason",), reasons)
        limits = self._limits
        yield _gauge("pending_transactions", "Transactions of pending batches.", self._queue.quota.transactions)
        yield _gauge(
            "pending_bytes", "Bytes of pending batches, and of all that they declare.", self._queue.quota.data_bytes
        )
        yield _gauge("pending_batches_max", "The limit of pending batches.", limits.pending_batches_max)
        yield _gauge("pending_transactions_max", "The limit of their transactions.", limits.pending_transactions_max)

    def _shown_families(self) -> Iterator[tuple[FamilyVersion, Totals]]:
        for family, totals in self._metrics.families.items():
            if family != OTHER or totals != Totals():
                yield family, totals


class _Host:
    """The load of the machine, from psutil. Create it when the validator starts."""

    def __init__(self) -> None:
        self._network_start = self._network()
        self._ticks = 0
        # The first call has nothing to compare with and starts the first interval.
        self._percent_cpu = psutil.cpu_percent(interval=None)

    def tick(self) -> None:
        """Sample the CPU load at fixed intervals, which requests must not shorten."""
        self._ticks += 1
        if self._ticks % _TICKS_A_SAMPLE == 0:
            self._percent_cpu = psutil.cpu_percent(interval=None)

    def read(self) -> node_pb2.System:
        """The current values. Never blocks."""
        received, sent = self._network()
        return node_pb2.System(
            percent_cpu=self._percent_cpu / 100,
            percent_memory=psutil.virtual_memory().percent / 100,
            # Counts fall when a network interface disappears.
            network_rx=max(0, received - self._network_start[0]),
            network_tx=max(0, sent - self._network_start[1]),
        )

    def _network(self) -> tuple[int, int]:
        counters = psutil.net_io_counters()
        return (counters.bytes_recv, counters.bytes_sent) if counters else (0, 0)


def _gauge(name: str, documentation: str, value: int) -> Metric:
    return GaugeMetricFamily(f"{NAMESPACE}_{name}", documentation, value=value)


def _gauges(
    name: str, documentation: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    metric = GaugeMetricFamily(f"{NAMESPACE}_{name}", documentation, labels=labels)
    for values, sample in samples:
        metric.add_metric(values, sample)
    return metric


def _totals(totals: Totals) -> node_pb2.Totals:
    # The solo engine proposes every block that it commits.
    return node_pb2.Totals(**asdict(totals), blocks_claimed=totals.blocks_committed)


def _config_entries(config: ValidatorConfig) -> list[node_pb2.ConfigEntry]:
    """The operator's configuration without keys and paths."""
    numbers = {f"limits.{field.name}": getattr(config.limits, field.name) for field in fields(config.limits)}
    numbers["validator.verifier_processes"] = config.verifier_processes
    numbers["validator.state_depth_blocks"] = config.state_depth_blocks
    # The address of an ipc endpoint is a path.
    bind = "ipc://…" if config.bind.startswith("ipc://") else config.bind
    texts = {"validator.bind": bind, "validator.version": installed_version()}
    return [
        *(node_pb2.ConfigEntry(key=key, number=number) for key, number in numbers.items()),
        *(node_pb2.ConfigEntry(key=key, text=text) for key, text in texts.items()),
    ]
