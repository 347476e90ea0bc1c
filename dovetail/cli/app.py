"""The command line as a whole: which commands there are. What they do lives in ``dovetail.cli.commands``."""

from typing import Annotated

import typer

from dovetail.cli.commands import (
    bench,
    chain,
    intkey,
    new_family,
    parts,
    processor,
    processors,
    resources,
    settings,
    status,
    store,
    up,
    upgrade,
)

app = typer.Typer(
    name="dovetail",
    help="A ledger node: run it, write to it, read it. Start with: dovetail up",
    epilog="Exit codes: 0 done, or a node or part of one ended by SIGTERM or SIGHUP; 1 refused with the reason on"
    " stderr; 2 wrong usage; 130 ended by Ctrl-C; 128 and its number where another signal ended a benchmark.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from dovetail.ledger.version import installed_version

        typer.echo(f"dovetail {installed_version()}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version and end.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the stack trace of an unexpected error instead of logging it.")
    ] = False,
) -> None:
    pass


up.add_to(app)
new_family.add_to(app)
parts.add_to(app)
processor.add_to(app)
processors.add_to(app)
status.add_to(app)
bench.add_to(app)
app.add_typer(intkey.app, name="intkey")
app.add_typer(settings.app, name="settings")
app.add_typer(upgrade.app, name="upgrade")
app.add_typer(chain.app, name="chain")
app.add_typer(store.app, name="store")
app.add_typer(resources.block, name="block")
app.add_typer(resources.batch, name="batch")
app.add_typer(resources.transaction, name="transaction")
app.add_typer(resources.state, name="state")
