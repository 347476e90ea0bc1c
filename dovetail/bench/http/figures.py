"""The figures of ``bench --http`` and how they read: one type that JSON and the table both come from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dovetail.bench.load.figures import (
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
from dovetail.bench.process_costs import ProcessFigures

if TYPE_CHECKING:
    from rich.console import Console

_ROLES: Final = (
    ("load generator", "LOADER"),
    ("rest-api", "REST API"),
    ("validator", "VALIDATOR"),
    ("verifier", "VERIFIERS"),
    ("processor", "PROCESSORS"),
)
"""The processes of a table's columns, by how their names begin."""


@dataclass(frozen=True)
class RequestFigures:
    """One kind of request in one run: every one was answered as it should be, every batch found COMMITTED."""

    name: str
    requests: int
    seconds: float
    settled_s: float
    """Until the last batch was committed; as ``seconds`` where none was handed in. ``processes`` count until then."""

    requests_per_s: float
    ratio: float
    """By the requests a second of GET /healthz in the same run."""

    latency: Latency
    bytes_an_answer: float
    refusals: int
    held_s: float
    """How long requests were held back because the ledger was ``pending`` transactions behind."""

    processes: tuple[ProcessFigures, ...]
    others_cpu_s: float | None
    """What everything else on the machine took meanwhile; None for a node that was running already."""

    def cpu_us(self, role: str) -> float | None:
        """Microseconds of processor time a request, of the processes whose names begin so; None without any."""
        own = [process.cpu_s for process in self.processes if process.name.startswith(role)]
        return sum(own) / self.requests * 1e6 if own else None

    def disturbance(self, cores: int) -> str:
        """What took so much of the machine that the figures mean little; empty where nothing did."""
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
    """A whole benchmark. ``options`` are what it was asked for, enough to repeat it."""

    machine: Machine
    options: dict[str, object]
    runs: tuple[tuple[RequestFigures, ...], ...]
    requests: tuple[RequestSpread, ...]
    disturbances: tuple[str, ...]
    """Of each run: what took so much of the machine that figures of it mean little; empty where nothing did."""


def report(machine: Machine, options: dict[str, object], runs: Sequence[tuple[RequestFigures, ...]]) -> HttpReport:
    """Median and spread of each kind over the runs, at least one, which have the same kinds in the same order."""
    kinds = tuple(
        RequestSpread(kind[0].name, spread([one.requests_per_s for one in kind]), spread([one.ratio for one in kind]))
        for kind in zip(*runs, strict=True)
    )
    disturbances = ("; ".join(filter(None, (kind.disturbance(machine.cores) for kind in run))) for run in runs)
    return HttpReport(machine, options, tuple(runs), kinds, tuple(disturbances))


def show(result: HttpReport, console: "Console") -> None:
    """The report for people: rates over all runs, and what the median run of each kind of request cost."""
    result.machine.show(result.options, console)
    of_rates = ("REQUEST", "REQ/S", "LOWEST", "HIGHEST", "OF HEALTHZ", *PERCENTILES, "429", "HELD %")
    rates = table(*of_rates, no_wrap=True)
    of_costs = ("REQUEST", "BYTES", *(heading for _, heading in _ROLES), "REST API %", "OTHERS %")
    costs = table(*of_costs, no_wrap=True)
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
