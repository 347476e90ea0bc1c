"""``upgrade rehearse``: runs the next handler on committed transactions, with ``dovetail.rehearsal``."""

from contextlib import closing
from pathlib import Path
from typing import Annotated, Final

import typer

from dovetail.cli.options import (
    ConfigFile,
    DataDir,
    Json,
    examples,
    number_option,
    path_option,
    text_argument,
    text_option,
)
from dovetail.cli.upgrades.rehearsal import rehearse_history, rehearse_to_migrate
from dovetail.common.errors import Refused
from dovetail.ledger.settings import FamilyVersion
from dovetail.node.config import Flag, load
from dovetail.rehearsal.history import Span, span_of
from dovetail.rehearsal.run import Setup, handler_for
from dovetail.validator.node import STORE_FOLDER
from dovetail.validator.store import StorageFailed, StoreReader
from processor_sdk.migration import INHERITED_MIGRATE

app = typer.Typer()

_DIFFERENCES_MAX: Final = 10_000
WORKERS_MAX: Final = 64
"""Each worker takes one of the store's reader slots, which a running validator needs too."""


@app.command(
    epilog=examples(
        "dovetail upgrade rehearse families.intkey.v2.handler:IntkeyHandler --family intkey --from 1.0",
        "dovetail upgrade rehearse my_family:NewHandler --family my_family --from 1.0 --blocks 100.. --json",
        "dovetail upgrade rehearse my_family:NewHandler --family my_family --migrate",
    )
)
def rehearse(
    handler: Annotated[
        str,
        text_argument(
            "MODULE:HANDLER", "The new handler, as for dovetail processor; the current folder is searched as well."
        ),
    ],
    family: Annotated[str, text_option("--family", "NAME", "The family to upgrade.")],
    version: Annotated[
        str | None, text_option("--from", "VERSION", "The version whose transactions are executed again.")
    ] = None,
    blocks: Annotated[
        str | None, text_option("--blocks", "A..B", "Only blocks A to B; A or B may be left out.")
    ] = None,
    migrate: Annotated[
        bool,
        typer.Option(
            "--migrate", help="Show what the handler's migrate would write, over the state after block B or the newest."
        ),
    ] = False,
    config: ConfigFile = None,
    data_dir: DataDir = None,
    workers: Annotated[int, number_option("--workers", 1, WORKERS_MAX, "Processes that execute transactions.")] = 1,
    differences_max: Annotated[
        int, number_option("--differences-max", 0, _DIFFERENCES_MAX, "Show at most N in full; all are counted.")
    ] = 100,
    apply_timeout_ms: Annotated[
        int, number_option("--apply-timeout-ms", 1, 3_600_000, "A longer apply is an internal error.", "MS")
    ] = 10_000,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Go on where Ctrl-C ended this rehearsal, or start again.")
    ] = False,
    progress_file: Annotated[
        Path | None,
        path_option(
            "--progress-file",
            "File for the progress that --resume needs. Default: a file under ~/.dovetail/rehearsals.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Execute a family's past transactions with its next handler, and show different outcomes.

    Each transaction runs against the state that it saw, read from the ledger's store. No old processor and no running
    node is needed, the ledger is not changed, and a node may run meanwhile. Verdicts, writes, events and receipt data
    are compared; --config sets the allowed sizes.

    A damaged store ends the rehearsal where damage shows. A value that was changed on the disk and is still readable
    does not show here: run `dovetail chain verify` first.

    Only committed transactions are in the store, so the rehearsal does not show that the new handler would accept a
    transaction that the old one refused. Exit code 0 if nothing differs, 1 if something does or the migration is
    refused, 2 if there was no transaction to execute.
    """
    if not version and not migrate:
        raise typer.BadParameter("name the version of the transactions with --from VERSION")
    settings = load(config_file=config, flags={"validator.data_dir": Flag("--data-dir", data_dir)}).validator
    made = handler_for(handler, family)
    if migrate and not made.migrates:
        raise Refused(
            f"{handler} declares no migrate(self, context): there is nothing for --migrate to show; {INHERITED_MIGRATE}"
        )
    wanted = FamilyVersion(family, version or made.family_version)
    store = settings.data_dir / STORE_FOLDER
    setup = Setup(store, handler, wanted, apply_timeout_ms, differences_max, settings.limits)
    try:
        with closing(StoreReader.open(store)) as reader:
            span = _span(reader, blocks)
            if migrate:
                code = rehearse_to_migrate(setup, reader, span.last_block, made, workers, as_json)
            else:
                code = rehearse_history(
                    setup, reader, span, made, blocks or "", workers, resume, progress_file, as_json
                )
    except StorageFailed as error:
        raise Refused(str(error)) from None
    raise typer.Exit(code)


def _span(reader: StoreReader, blocks: str | None) -> Span:
    """The blocks that ``--blocks`` names, with their transactions. Raises Refused if the chain lacks one."""
    if reader.head is None:
        raise Refused("the store holds no block yet: there is no history to rehearse")
    head = reader.head.num
    low, dots, high = (blocks or "0..").partition("..")
    if not all(part == "" or (part.isascii() and part.isdigit()) for part in (low, high)) or not (low or high):
        raise typer.BadParameter(f"--blocks is {blocks!r}, not A..B, A.., ..B or a number")
    first = int(low or 0)
    last = int(high or head) if dots else first
    if first > last:
        raise typer.BadParameter(f"--blocks is {blocks!r}: the first comes after the last")
    if last > head:
        raise Refused(f"--blocks is {blocks!r}, the newest block is {head}")
    return span_of(reader, first, last)
