"""The figures of ``bench http``."""

from io import StringIO

from rich.console import Console

from dovetail.bench.http import figures
from dovetail.bench.http.figures import RequestFigures
from dovetail.bench.process_costs import ProcessFigures
from dovetail.bench.report import Machine, Spread, latency


def _figures(name: str, rate: float, others_cpu_s: float | None = None) -> RequestFigures:
    costs = [("rest-api", 1.0), ("verifier 1", 0.25), ("verifier 2", 0.75)]
    return RequestFigures(
        name=name,
        requests=1000,
        seconds=1.0,
        settled_s=2.0,
        requests_per_s=rate,
        ratio=rate / 100,
        latency=latency([0.001]),
        bytes_an_answer=10.0,
        refusals=0,
        held_s=0.0,
        processes=tuple(ProcessFigures(role, cpu_s, 1.0, 1.0, None) for role, cpu_s in costs),
        others_cpu_s=others_cpu_s,
    )


def test_costs_are_summed_by_role() -> None:
    run = _figures("a", 1.0)
    assert (run.cpu_us("rest-api"), run.cpu_us("verifier"), run.cpu_us("validator")) == (1000.0, 1000.0, None)


def test_the_median_is_of_each_kind_of_request() -> None:
    machine = Machine(2, "3", "x", None)
    runs = [(_figures("a", rate), _figures("b", 10 - rate)) for rate in (1.0, 2.0, 9.0)]
    first, second = figures.report(machine, {}, runs).requests
    assert (first.name, first.requests_per_s) == ("a", Spread(2.0, 1.0, 9.0))
    assert (second.name, second.requests_per_s) == ("b", Spread(8.0, 1.0, 9.0))


def test_a_disturbed_run_is_reported() -> None:
    runs = [(_figures("a", 1.0), _figures("b", 1.0, 0.3)), (_figures("a", 1.0, 0.4), _figures("b", 1.0, 0.5))]
    reported = figures.report(Machine(2, "3", "x", None), {}, runs)
    assert reported.disturbances == ("", "other processes took 12% of the machine during b")
    shown = StringIO()
    figures.show(reported, Console(file=shown, width=200))
    assert "run 2: other processes took 12% of the machine during b; the run's figures" in shown.getvalue()
