"""The lower bound for an idle node's latency: one synced LMDB commit and two ZeroMQ round trips, without a node.

A batch makes one round trip from the REST API to the validator, and one from there to a processor.
"""

import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import lmdb
import zmq

from dovetail.common.errors import Refused
from dovetail.common.workers import Workers

_LOOPBACK: Final = "tcp://127.0.0.1"
_COMMIT_BYTES: Final = 2_400
"""About the size of a committed block of one transaction."""

_MESSAGE_BYTES: Final = 800
"""About the size of a batch of one transaction."""

_SAMPLES_MIN: Final = 20
_SAMPLES_MAX: Final = 1_000
_MAP_BYTES: Final = 64 * 1024 * 1024
_ANSWER_MS_MAX: Final = 30_000


@dataclass(frozen=True)
class Baseline:
    """Medians, in milliseconds."""

    commit_ms: float
    round_trip_ms: float
    sum_ms: float
    """One commit and two round trips."""


async def measure_baseline(workers: Workers, within: Path | None, seconds: float) -> Baseline:
    """Measure each half for ``seconds``, but 20 to 1000 times. Commits go to the disk of ``within``. Raises Refused."""
    commit_s = await asyncio.wrap_future(workers.submit(_commits, within, seconds))
    round_trip_s = await asyncio.to_thread(_round_trips, workers, seconds)
    return Baseline(commit_s * 1e3, round_trip_s * 1e3, (commit_s + 2 * round_trip_s) * 1e3)


def _commits(within: Path | None, seconds: float) -> float:
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-baseline-", dir=within) as folder:
        env = lmdb.open(folder, map_size=_MAP_BYTES)
        try:
            times: list[float] = []
            while _lacks_samples(times, seconds):
                start = time.perf_counter()
                with env.begin(write=True) as transaction:
                    transaction.put(len(times).to_bytes(8, "big"), bytes(_COMMIT_BYTES), append=True)
                times.append(time.perf_counter() - start)
        finally:
            env.close()
    return median(times)


def _round_trips(workers: Workers, seconds: float) -> float:
    """Between two processes over loopback: a ROUTER here and a DEALER in a worker, as in the node."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.linger = 0
        router.rcvtimeo = _ANSWER_MS_MAX
        echo = workers.submit(_echo, f"{_LOOPBACK}:{router.bind_to_random_port(_LOOPBACK)}")
        try:
            identity, _ = router.recv_multipart()
            times: list[float] = []
            while _lacks_samples(times, seconds):
                start = time.perf_counter()
                router.send_multipart((identity, bytes(_MESSAGE_BYTES)))
                router.recv_multipart()
                times.append(time.perf_counter() - start)
            router.send_multipart((identity, b""))
            echo.result()
        except zmq.Again:
            raise Refused(f"a worker of the benchmark did not answer within {_ANSWER_MS_MAX} ms") from None
    return median(times)


def _echo(endpoint: str) -> None:
    """Send every message back until an empty one."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.rcvtimeo = _ANSWER_MS_MAX
        dealer.connect(endpoint)
        dealer.send(b"ready")
        while message := dealer.recv():
            dealer.send(message)


def _lacks_samples(times: list[float], seconds: float) -> bool:
    return len(times) < _SAMPLES_MIN or (sum(times) < seconds and len(times) < _SAMPLES_MAX)
