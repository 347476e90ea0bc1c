"""``bench``: measures how fast a node is on this machine, and what each of its processes costs."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dovetail.bench.families import FAMILIES_MAX
from dovetail.bench.http import figures as http_figures
from dovetail.bench.http.figures import HttpReport
from dovetail.bench.http.run import HttpOptions, measure_http
from dovetail.bench.load import figures as load_figures
from dovetail.bench.load import plot as load_plot
from dovetail.bench.load.figures import Report
from dovetail.bench.load.run import LoadOptions, measure_load
from dovetail.bench.node import Interrupted
from dovetail.bench.signed_load import NAMES_MAX
from dovetail.bench.steps import run as steps_run
from dovetail.bench.steps.run import StepsOptions, StepsReport
from dovetail.cli.options import Json, examples, number_option
from dovetail.cli.printing import print_json
from dovetail.common.errors import Refused
from dovetail.node.config import load as load_config
from dovetail.node.signals import ending_signals_interrupt

app = typer.Typer(
    help="Measure a node on this machine: a load, requests, or single steps. More: docs/explanation/performance.md",
    no_args_is_help=True,
)

_COLUMNS: Final = 120
_UNIFORM_NAMES: Final = 10_000
_PER_POST_BATCHES_MAX: Final = 100
_PER_POST_TRANSACTIONS: Final = 1_000
_PROCESSORS_MAX: Final = 64

ReportT = TypeVar("ReportT", Report, HttpReport, StepsReport)


_Transactions = Annotated[int, number_option("--transactions", 1, 2_000_000, "How many to send and measure.")]
_Shape = Annotated[int, number_option("--shape", 1, 5_000, "Transactions a batch.")]
_Keys = Annotated[
    str,
    typer.Option(
        "--keys",
        metavar="new|hot|uniform|N",
        help="new: each transaction sets a new name. Else names that exist, drawn uniformly: hot is one (of each"
        " family), uniform 10000.",
    ),
]
_Pending = Annotated[
    int,
    number_option(
        "--pending",
        0,
        None,
        "Transactions sent and not yet seen to commit, at least one POST's; 0: until the node answers 429.",
    ),
]
_Processors = Annotated[
    int | None, number_option("--processors", 1, _PROCESSORS_MAX, "Processors of each family. Default: 1.")
]
_Repeat = Annotated[int, number_option("--repeat", 1, 100, "Runs, each on a fresh node; shows the median.")]
_Seed = Annotated[int, number_option("--seed", 0, None, "Decides keys, names and their order.")]
_NodeUrl = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="Measure the node that runs there instead of starting one.")
]
_Folder = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="The folder for the node's temporary data. Choose a real disk."),
]
_ProfileValidator = Annotated[
    Path | None,
    typer.Option("--profile-validator", metavar="FILE", help="Write the validator's cProfile there; slows the node."),
]
_ProfileRestApi = Annotated[
    Path | None,
    typer.Option("--profile-rest-api", metavar="FILE", help="Write the REST API's cProfile there; slows the node."),
]


@app.command(
    epilog=examples(
        "dovetail bench load",
        "dovetail bench load --shape 100 --keys hot --repeat 5",
        "dovetail bench load --transactions 200 --per-post 1 --pending 1",
        "dovetail bench load --leaves 1000000 --keys uniform --conflict 20 --families 2",
        "dovetail bench load --legacy --transactions 10000",
        "dovetail bench load --repeat 3 --plot load.png",
        "dovetail bench load --url http://127.0.0.1:8080 --json",
    )
)
def load(
    transactions: _Transactions = 50_000,
    shape: _Shape = 1,
    per_post: Annotated[
        int | None,
        number_option(
            "--per-post", 1, 10_000, "Batches a POST. Default: 100, or fewer if 100 hold over 1000 transactions."
        ),
    ] = None,
    keys: _Keys = "new",
    conflict: Annotated[
        int,
        number_option(
            "--conflict", 0, 100, "The part of the transactions that changes one name (of each family).", "PERCENT"
        ),
    ] = 0,
    families: Annotated[
        int, number_option("--families", 1, FAMILIES_MAX, "Families, each with its own processors and names.")
    ] = 1,
    leaves: Annotated[
        int, number_option("--leaves", 0, 10_000_000, "Names in state before the node starts, those of --keys first.")
    ] = 0,
    parked: Annotated[
        int,
        number_option("--parked", 0, 2_000_000, "Transactions that stay in the node's queue, for want of a processor."),
    ] = 0,
    legacy: Annotated[
        bool, typer.Option("--legacy", help="Processors that speak the 1.x conversation, without packed execution.")
    ] = False,
    pending: _Pending = 10_000,
    in_flight: Annotated[int, number_option("--in-flight", 1, 1_000, "POSTs without an answer at one time.")] = 4,
    processors: _Processors = None,
    repeat: _Repeat = 1,
    seed: _Seed = 1,
    ceiling: Annotated[
        float, number_option("--ceiling", 0.01, 60, "How long each measurement of the ceiling takes.", "SECONDS")
    ] = 2.0,
    url: _NodeUrl = None,
    folder: _Folder = None,
    profile_validator: _ProfileValidator = None,
    profile_rest_api: _ProfileRestApi = None,
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

    Starts a node on temporary data, sends it a load that was signed in advance, and compares the rate with the number
    of signatures that this machine can verify a second.
    """
    profiles = _profiles(profile_validator, profile_rest_api)
    _check_places(url, folder, profiles, plot)
    if url and (processors or families > 1 or leaves or parked or legacy):
        raise typer.BadParameter(
            "--processors, --families, --leaves, --parked and --legacy are for a node that bench starts itself"
        )
    names = _names(keys, families)
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
    options = LoadOptions(
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
    _run(lambda progress: measure_load(options, progress), load_figures.show, as_json)


@app.command(epilog=examples("dovetail bench http", "dovetail bench http --requests 2000 --connections 4 --json"))
def http(
    requests: Annotated[int, number_option("--requests", 1, 1_000_000, "Requests of each kind.")] = 5_000,
    connections: Annotated[
        int, number_option("--connections", 1, 1_000, "Each sends its next when it has its answer.")
    ] = 8,
    pending: _Pending = 10_000,
    processors: _Processors = None,
    repeat: _Repeat = 1,
    seed: _Seed = 1,
    url: _NodeUrl = None,
    folder: _Folder = None,
    profile_validator: _ProfileValidator = None,
    profile_rest_api: _ProfileRestApi = None,
    as_json: Json = False,
) -> None:
    """Measure requests a second by kind of request, and what each costs.

    Compares each kind with GET /healthz, which the REST API answers without the validator.
    """
    profiles = _profiles(profile_validator, profile_rest_api)
    _check_places(url, folder, profiles)
    if url and processors:
        raise typer.BadParameter("--processors is for a node that bench starts itself")
    options = HttpOptions(requests, connections, pending, processors or 1, repeat, seed, url, folder, profiles)
    _run(lambda progress: measure_http(options, progress), http_figures.show, as_json)


@app.command(epilog=examples("dovetail bench steps", "dovetail bench steps --shape 100 --keys hot --json"))
def steps(
    transactions: _Transactions = 50_000,
    shape: _Shape = 1,
    keys: _Keys = "new",
    block: Annotated[int, number_option("--block", 1, 100_000, "Transactions a block.")] = 1_500,
    seed: _Seed = 1,
    folder: _Folder = None,
    as_json: Json = False,
) -> None:
    """Measure the processor time of each step that a transaction passes, in one process.

    Takes a signed load through the parts of a node, from verification to the committed block, without its sockets.
    """
    _check_places(None, folder, {})
    options = StepsOptions(transactions, shape, _names(keys, 1), block, seed, folder)
    _run(lambda progress: steps_run.measure_steps(options, progress), steps_run.show, as_json)


def _run(
    measure: Callable[[Progress], Coroutine[Any, Any, ReportT]], show: Callable[[ReportT, Console], None], as_json: bool
) -> None:
    """Run a benchmark under a progress bar and print its report."""
    # Refuse a wrong setting here. The node reads the same environment, and its refusal would leave data and logs.
    load_config(config_file=None, environ=os.environ, flags={})
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True, auto_refresh=False, disable=not console.is_terminal)
    try:
        with ending_signals_interrupt(), progress:
            report = asyncio.run(measure(progress))
    except Interrupted as interrupted:
        raise typer.Exit(128 + interrupted.number) from None
    if as_json:
        print_json(asdict(report))
    else:
        show(report, Console(width=_COLUMNS, highlight=False, markup=False))


def _profiles(validator: Path | None, rest_api: Path | None) -> dict[str, Path]:
    files = {"validator": validator, "rest-api": rest_api}
    return {part: file.absolute() for part, file in files.items() if file is not None}


def _check_places(url: str | None, folder: Path | None, profiles: dict[str, Path], plot: Path | None = None) -> None:
    """Refuse folders that do not exist, and options for data or profiles if the node runs already."""
    if url and (folder or profiles):
        raise typer.BadParameter("--dir and --profile-… are for a node that bench starts itself")
    for path in (folder, *(file.parent for file in (*profiles.values(), plot) if file)):
        if path is not None and not path.is_dir():
            raise Refused(f"{path} is no folder")


def _names(keys: str, families: int) -> int | Literal["new"]:
    if keys == "new":
        return "new"
    if keys in ("hot", "uniform"):
        return families if keys == "hot" else _UNIFORM_NAMES
    if keys.isascii() and keys.isdigit() and families <= int(keys) <= NAMES_MAX:
        return int(keys)
    least = f"{families} (--families)" if families > 1 else "1"
    raise typer.BadParameter(f"--keys is {keys!r}, not new, hot, uniform or a number from {least} to {NAMES_MAX}")


def _check_plot(file: Path, pending: int, a_post: int) -> None:
    """Refuse a plot of only one load, a file of another format, or a plot without matplotlib."""
    if file.suffix not in load_plot.ENDINGS:
        raise typer.BadParameter(f"--plot is {str(file)!r}; it must end in {', '.join(load_plot.ENDINGS)}")
    if pending <= a_post:
        raise typer.BadParameter(
            f"--plot rises from one POST ({a_post} transactions) to --pending, which is {pending}: raise it"
        )
    load_plot.load_matplotlib()
