"""The commands by name, and the exit codes of the program. Each command is in ``dovetail.cli.commands``."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from dovetail.cli.lazy import lazy_group
from dovetail.common.errors import FAILED, INTERRUPTED, WRONG_USAGE, Refused
from dovetail.common.home import shown
from dovetail.common.output import note, printable_lines
from dovetail.ledger.version import installed_version
from dovetail.node.log_files import write_trace

_COMMANDS: Final = {
    "up": "Run a whole node: validator, REST API, the bundled processor of intkey and those of --family.",
    "genesis": "Make a node's first files without starting it: keys where they are missing, and the genesis.",
    "keygen": "Make a key pair: the private key readable by you alone, the public key beside it.",
    "new-family": "Write a new transaction family: handler, payload, client, tests and unit file, as a project that"
    " works.",
    "validator": "Run a validator: it orders, executes, stores and answers.",
    "rest-api": "Run a REST API in front of a validator. It keeps no state: any number may run.",
    "processor": "Run a transaction processor with one or more handlers.",
    "processors": "List the processors: which family, version and build each is, its state, what it holds and"
    " has done.",
    "status": "Show whether a node is ready, its head, its queue, its processors, and what it has committed since it"
    " started.",
    "bench": "Measure a node on this machine: a load, requests, or single steps. More: docs/explanation/performance.md",
    "intkey": "Named integers: set, inc, dec, show, list.",
    "settings": "The ledger's settings: propose, vote, list.",
    "upgrade": "A family's next version: plan, rehearse, status, retire, cancel.",
    "chain": "The chain as a whole: verify.",
    "store": "The ledger's file: check, backup, restore, compact, prune, repair. More: docs/how-to/operations.md",
    "block": "Blocks of the chain: list, show.",
    "batch": "Batches: list, show, the status of submitted ones, and drop.",
    "transaction": "Transactions: list, show.",
    "state": "The state that the chain has arrived at: list, show.",
}
"""The line of each command in the help of ``dovetail``, by the command's name."""
_MODULES: Final = dict.fromkeys(("block", "batch", "transaction", "state"), "resources")

app = lazy_group(
    "dovetail.cli.commands",
    _COMMANDS,
    _MODULES,
    name="dovetail",
    help="A ledger node: run it, write to it, read it. Start with: dovetail up",
    epilog="Exit codes: 0 done, or a node or part of one ended by SIGTERM or SIGHUP; 1 refused with the reason on"
    " stderr; 2 wrong usage; 130 ended by Ctrl-C; 128 and its number where another signal ended a benchmark.",
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"dovetail {installed_version()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and end.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the stack trace of an unexpected error instead of logging it.")
    ] = False,
) -> None:
    pass


def run(arguments: Sequence[str]) -> int:
    """Run a command line, which lacks the program's name. Returns the exit code, or raises SystemExit with it."""
    for argument in arguments:
        # Python represents invalid UTF-8 by surrogates, which fail at the first place that encodes them.
        if any("\ud800" <= character <= "\udfff" for character in argument):
            _report(f"the argument {argument!a} is no valid text (UTF-8)")
            return WRONG_USAGE
    try:
        app(args=list(arguments), prog_name="dovetail")
    except Refused as error:
        _report(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if "--debug" in arguments:
            raise
        file = write_trace(error)
        trace = f"is in {shown(file)}" if file else "could not be written; --debug shows it"
        _report(f"unexpected {type(error).__name__}: {error}; the stack trace {trace}")
        return FAILED
    return 0


def _report(text: str) -> None:
    # The text may quote a server's answer or a file.
    note(f"dovetail: {printable_lines(text)}")
