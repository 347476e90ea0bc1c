"""``bench``: how fast a node is on this machine, and what each of its processes costs."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from dovetail.cli.options import Json, examples
from dovetail.common.errors import Refused

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from dovetail.bench.budget import Budget
    from dovetail.bench.http.figures import HttpReport
    from dovetail.bench.load.figures import Report

    ReportT = TypeVar("ReportT", Report, HttpReport, Budget)

_COLUMNS: Final = 120
_UNIFORM_NAMES: Final = 10_000
_PER_POST_BATCHES_MAX: Final = 100
_PER_POST_TRANSACTIONS: Final = 1_000
_OF_HTTP: Final = frozenset({"requests", "connections"})
_OF_BUDGET: Final = frozenset({"budget", "block", "transactions", "shape", "keys", "seed", "folder", "as_json"})
_OF_LOADS: Final = frozenset(
    {
        "transactions", "shape", "per_post", "keys", "conflict", "families", "leaves", "parked", "legacy",
        "in_flight", "ceiling", "plot",
    }
)  # fmt: skip
_PROCESSORS_MAX: Final = 64


def bench(
    context: typer.Context,
    http: Annotated[
        bool, typer.Option("--http", help="Measure requests a second by kind of request, instead of a load.")
    ] = False,
    requests: Annotated[
        int,
        typer.Option("--requests", min=1, max=1_000_000, metavar="N", help="With --http: of each kind of request."),
    ] = 5_000,
    connections: Annotated[
        int,
        typer.Option("--connections", min=1, max=1_000, metavar="N", help="With --http: kept open, each in a loop."),
    ] = 8,
    budget: Annotated[
        bool, typer.Option("--budget", help="Measure what each step of a transaction's way costs, in one process.")
    ] = False,
    block: Annotated[
        int, typer.Option("--block", min=1, max=100_000, metavar="N", help="With --budget: transactions a block.")
    ] = 1_500,
    transactions: Annotated[
        int, typer.Option("--transactions", min=1, max=2_000_000, metavar="N", help="How many to send and measure.")
    ] = 50_000,
    shape: Annotated[int, typer.Option("--shape", min=1, max=5_000, metavar="N", help="Transactions a batch.")] = 1,
    per_post: Annotated[
        int | None,
        typer.Option(
            "--per-post",
            min=1,
            max=10_000,
            metavar="N",
            help="Batches a POST. Default: 100, fewer where that is over 1000 transactions.",
        ),
    ] = None,
    keys: Annotated[
        str,
        typer.Option(
            "--keys",
            metavar="hot|uniform|N",
            help="Names that they share: one (of each family), 10000, or N; drawn uniformly.",
        ),
    ] = "uniform",
    conflict: Annotated[
        int,
        typer.Option(
            "--conflict", min=0, max=100, metavar="PERCENT", help="Part of them that goes to one name (of each family)."
        ),
    ] = 0,
    families: Annotated[
        int,
        typer.Option(
            "--families",
            min=1,
            max=16,
            metavar="N",
            help="Families side by side, each with processors and names of its own.",
        ),
    ] = 1,
    leaves: Annotated[
        int,
        typer.Option(
            "--leaves",
            min=0,
            max=10_000_000,
            metavar="N",
            help="Names that are in state before the node starts, those of --keys first.",
        ),
    ] = 0,
    parked: Annotated[
        int,
        typer.Option(
            "--parked",
            min=0,
            max=2_000_000,
            metavar="N",
            help="Transactions that fill the node's queue meanwhile: no processor serves them.",
        ),
    ] = 0,
    legacy: Annotated[
        bool, typer.Option("--legacy", help="Processors that speak the 1.x conversation, without packed execution.")
    ] = False,
    pending: Annotated[
        int,
        typer.Option(
            "--pending",
            min=0,
            metavar="N",
            help="Transactions sent and not yet seen to commit, at least one POST's; 0: until the node answers 429.",
        ),
    ] = 10_000,
    in_flight: Annotated[
        int, typer.Option("--in-flight", min=1, max=1_000, metavar="N", help="POSTs without an answer at one time.")
    ] = 16,
    processors: Annotated[
        int | None,
        typer.Option(
            "--processors", min=1, max=_PROCESSORS_MAX, metavar="N", help="Processors of each family. Default: 1."
        ),
    ] = None,
    repeat: Annotated[
        int,
        typer.Option("--repeat", min=1, max=100, metavar="N", help="Runs, each on a fresh node; the median is told."),
    ] = 1,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Decides keys, names and their order.")] = 1,
    ceiling: Annotated[
        float,
        typer.Option("--ceiling", min=0.01, max=60, metavar="SECONDS", help="How long to measure bare verification."),
    ] = 2.0,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="Measure the node that runs there instead of starting one."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Where the node's temporary data goes: a real disk, for real syncs."),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            "--profile-validator", metavar="FILE", help="Write the validator's cProfile there (and run slower)."
        ),
    ] = None,
    profile_rest: Annotated[
        Path | None,
        typer.Option("--profile-rest-api", metavar="FILE", help="The same of the REST API."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE.png",
            help="Draw throughput and latency against load: runs from one POST at a time up to --pending.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure committed transactions a second, latency, and what each process costs.

    Starts a node on temporary data, sends it a load that is signed beforehand, and sets the rate against what this
    machine can verify at most; with --http, requests of each kind against what the server answers without a validator.
    docs/explanation/performance.md says what each figure means.
    """
    _check_kind(context, http, budget)
    profiles = {
        part: file.absolute() for part, file in (("validator", profile), ("rest-api", profile_rest)) if file is not None
    }
    if url and (processors or folder or profiles or families > 1 or leaves or parked or legacy):
        raise typer.BadParameter(
            "--processors, --families, --leaves, --parked, --legacy, --dir and --profile-… are for a node that bench"
            " starts itself"
        )
    for path in (folder, *(file.parent for file in (*profiles.values(), *([plot] if plot else ())))):
        if path is not None and not path.is_dir():
            raise Refused(f"{path} is no folder")
    if http:
        from dovetail.bench.http.figures import show as show_http
        from dovetail.bench.http.run import HttpOptions, bench_http

        asked = HttpOptions(requests, connections, pending, processors or 1, repeat, seed, url, folder, profiles)
        _tell(lambda progress: bench_http(asked, progress), show_http, as_json)
        return
    from dovetail.bench.load.figures import show
    from dovetail.bench.load.run import Options
    from dovetail.bench.load.run import bench as run_bench

    names = _names(keys, families)
    if budget:
        from dovetail.bench.budget import BudgetOptions, measure_budget
        from dovetail.bench.budget import show as show_budget

        steps = BudgetOptions(transactions, shape, names, block, seed, folder)
        _tell(lambda progress: measure_budget(steps, progress), show_budget, as_json)
        return
    if conflict and names == families:
        raise typer.BadParameter("--conflict means nothing where each family has one name: raise --keys")
    if families * (processors or 1) > _PROCESSORS_MAX:
        raise typer.BadParameter(
            f"--families {families} with --processors {processors} are {families * (processors or 1)} processors,"
            f" over {_PROCESSORS_MAX}"
        )
    per_post = per_post or max(1, min(_PER_POST_BATCHES_MAX, _PER_POST_TRANSACTIONS // shape))
    if plot:
        _check_plot(plot, pending, shape * per_post)
    options = Options(
        transactions=transactions,
        shape=shape,
        per_post=per_post,
        names=names,
        conflict=conflict,
        families=families,
        leaves=leaves,
        parked=parked,
        legacy=legacy,
        pending=pending,
        in_flight=in_flight,
        processors=processors or 1,
        repeat=repeat,
        seed=seed,
        ceiling_s=ceiling,
        url=url,
        folder=folder,
        profiles=profiles,
        plot=plot,
    )
    _tell(lambda progress: run_bench(options, progress), show, as_json)


def _check_kind(context: typer.Context, http: bool, budget: bool) -> None:
    """Refuse options of another kind of measurement than the one that is asked for."""
    if http and budget:
        raise typer.BadParameter("--http and --budget are two measurements: ask for one")
    of_others = dict.fromkeys(_OF_HTTP, "for --http") | {"block": "for --budget"}
    if http:
        of_others = dict.fromkeys([*_OF_LOADS, "block"], "not for --http")
    elif budget:
        of_others = {name: "not for --budget" for name in context.params if name not in _OF_BUDGET}
    for name, why in of_others.items():
        source = context.get_parameter_source(name)
        # By its name: the type's home is another package in each release of typer.
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(f"--{name.replace('_', '-')} is {why}")


def _tell(
    run: "Callable[[Progress], Coroutine[Any, Any, ReportT]]",
    show: "Callable[[ReportT, Console], None]",
    as_json: bool,
) -> None:
    """Run a benchmark under a progress bar and print its report."""
    import os

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from dovetail.bench.node import Interrupted
    from dovetail.node.config import load as load_config
    from dovetail.node.signals import ending_signals_interrupt

    # The node reads the same environment, and would refuse it with its data and logs kept.
    load_config(config_file=None, environ=os.environ, flags={})
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True, auto_refresh=False, disable=not console.is_terminal)
    try:
        with ending_signals_interrupt(), progress:
            report = asyncio.run(run(progress))
    except Interrupted as interrupted:
        raise typer.Exit(128 + interrupted.number) from None
    if as_json:
        from dataclasses import asdict

        from dovetail.cli.printing import print_json

        print_json(asdict(report))
    else:
        show(report, Console(width=_COLUMNS, highlight=False, markup=False))


def add_to(app: typer.Typer) -> None:
    """Put this command into the command line."""
    app.command(
        epilog=examples(
            "dovetail bench",
            "dovetail bench --shape 100 --keys hot --repeat 5",
            "dovetail bench --transactions 200 --per-post 1 --pending 1",
            "dovetail bench --leaves 1000000 --conflict 20 --families 2",
            "dovetail bench --legacy --transactions 10000",
            "dovetail bench --repeat 3 --plot load.png",
            "dovetail bench --http --requests 2000",
            "dovetail bench --budget --shape 100",
            "dovetail bench --url http://127.0.0.1:8080 --json",
        )
    )(bench)


def _names(keys: str, families: int) -> int:
    from dovetail.bench.signed_load import NAMES_MAX

    if keys in ("hot", "uniform"):
        return families if keys == "hot" else _UNIFORM_NAMES
    if keys.isascii() and keys.isdigit() and families <= int(keys) <= NAMES_MAX:
        return int(keys)
    least = f"{families} (--families)" if families > 1 else "1"
    raise typer.BadParameter(f"--keys is {keys!r}, not hot, uniform or a number from {least} to {NAMES_MAX}")


def _check_plot(file: Path, pending: int, a_post: int) -> None:
    """Before anything runs: whether there will be a curve, and what can draw it."""
    from dovetail.bench.load.plot import ENDINGS, load_matplotlib

    if file.suffix not in ENDINGS:
        raise typer.BadParameter(f"--plot is {str(file)!r}; it must end in {', '.join(ENDINGS)}")
    if pending <= a_post:
        raise typer.BadParameter(
            f"--plot rises from one POST ({a_post} transactions) to --pending, which is {pending}: raise it"
        )
    load_matplotlib()


app = typer.Typer()
add_to(app)
