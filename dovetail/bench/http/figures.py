"""The figures of ``bench http``, as JSON and as tables. Measures nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console

from dovetail.bench.process_costs import ProcessFigures
from dovetail.bench.report import (
    PERCENTILES,
    Latency,
    Machine,
    Spread,
    percentiles,
    show_disturbances,
    spread,
    table,
    taken_by_others,
)

_ROLES: Final = (
    ("load generator", "LOADER"),
    ("rest-api", "REST API"),
    ("validator", "VALIDATOR"),
    ("verifier", "VERIFIERS"),
    ("processor", "PROCESSORS"),
)
"""The beginning of process names, and the table column for their cost."""


@dataclass(frozen=True)
class RequestFigures:
    """One kind of request in one run. All answers had the expected status, and all batches were found COMMITTED."""

    name: str
    requests: int
    seconds: float
    settled_s: float
    """For POSTs, the seconds until the last commit; otherwise ``seconds``. ``processes`` covers the same time."""

    requests_per_s: float
    ratio: float
    """``requests_per_s`` divided by the same figure of GET /healthz in the same run."""

    latency: Latency
    bytes_an_answer: float
    refusals: int
    held_s: float
    """How long requests were held back because the ledger was ``pending`` transactions behind."""

    processes: tuple[ProcessFigures, ...]
    others_cpu_s: float | None
    """Processor time of everything else on the machine; None for a node that was running already."""

    def cpu_us(self, role: str) -> float | None:
        """Processor time per request, in microseconds, of the processes whose names begin with ``role``.

        None if there is no such process.
        """
        own = [process.cpu_s for process in self.processes if process.name.startswith(role)]
        return sum(own) / self.requests * 1e6 if own else None

    def disturbance(self, cores: int) -> str:
        """Why the figures mean little; empty if nothing disturbed the run."""
        taken = taken_by_others(self.others_cpu_s, self.settled_s, cores)
        return f"{taken} during {self.name}" if taken else ""


@dataclass(frozen=True)
class RequestSpread:
    """One kind of request over all runs."""

    name: str
    requests_per_s: Spread
    ratio: Spread


@dataclass(frozen=True)
class HttpReport:
    """A whole benchmark. ``options`` are enough to repeat it."""

    machine: Machine
    options: dict[str, object]
    runs: tuple[tuple[RequestFigures, ...], ...]
    requests: tuple[RequestSpread, ...]
    disturbances: tuple[str, ...]
    """For each run, why its figures mean little; empty if nothing disturbed it."""


def report(machine: Machine, options: dict[str, object], runs: Sequence[tuple[RequestFigures, ...]]) -> HttpReport:
    """Median and spread of each kind over at least one run. All runs have the same kinds in the same order."""
    kinds = tuple(
        RequestSpread(kind[0].name, spread([one.requests_per_s for one in kind]), spread([one.ratio for one in kind]))
        for kind in zip(*runs, strict=True)
    )
    disturbances = ("; ".join(filter(None, (kind.disturbance(machine.cores) for kind in run))) for run in runs)
    return HttpReport(machine, options, tuple(runs), kinds, tuple(disturbances))


def show(result: HttpReport, console: Console) -> None:
    """Print rates over all runs, and what the median run of each kind of request cost."""
    result.machine.show(result.options, console)
    rate_columns = ("REQ/S", "LOWEST", "HIGHEST", "OF HEALTHZ", *PERCENTILES, "429", "HELD %")
    rates = table("REQUEST", *rate_columns, no_wrap=True)
    cost_columns = ("BYTES", *(heading for _, heading in _ROLES), "REST API %", "OTHERS %")
    costs = table("REQUEST", *cost_columns, no_wrap=True)
    for kind, *runs in zip(result.requests, *result.runs, strict=True):
        chosen = sorted(runs, key=lambda run: run.requests_per_s)[(len(runs) - 1) // 2]
        rate = kind.requests_per_s
        rates.add_row(
            kind.name,
            *(f"{value:,.0f}" for value in (rate.median, rate.lowest, rate.highest)),
            f"{kind.ratio.median:.3f}",
            *percentiles(chosen.latency),
            str(chosen.refusals),
            f"{chosen.held_s / chosen.seconds:.0%}",
        )
        costs_us = [chosen.cpu_us(role) for role, _ in _ROLES]
        api_us = chosen.cpu_us("rest-api")
        costs.add_row(
            kind.name,
            f"{chosen.bytes_an_answer:,.0f}",
            *("" if cost is None else f"{cost:,.0f}" for cost in costs_us),
            "" if api_us is None else f"{api_us * chosen.requests / 1e6 / chosen.settled_s:.0%}",
            "" if chosen.others_cpu_s is None else f"{chosen.others_cpu_s / chosen.settled_s:.0%}",
        )
    console.print(rates)
    console.print("µs of processor time a request; the last two: part of one core", style="dim")
    console.print(costs)
    show_disturbances(result.disturbances, console)
