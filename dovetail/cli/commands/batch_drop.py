"""``batch drop``: removes pending batches from the queue of a node, for its operator."""

from typing import Annotated, Final

import typer

from dovetail.cli.options import (
    ConfigFile,
    ConnectionKey,
    Json,
    ValidatorKey,
    Yes,
    examples,
    not_empty,
    text_argument,
    text_option,
)

EPILOG: Final = examples(
    "dovetail batch drop --dry-run",
    "dovetail batch drop BATCH_ID OTHER_ID",
    "dovetail batch drop --family intkey@3.0 --reason 'nobody will serve it'",
    "dovetail batch drop --key PUBLIC_KEY --yes --json",
)


def batch_drop(
    ids: Annotated[list[str] | None, text_argument("ID", "Batch ids.")] = None,
    family: Annotated[
        str | None,
        text_option(
            "--family",
            "NAME[@VERSION]",
            "Every pending batch with a transaction of this family; without a version, of each of its versions.",
        ),
    ] = None,
    key: Annotated[
        str | None, text_option("--key", "PUBLIC_KEY", "Every pending batch that this key has signed.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the log of the validator.")] = "",
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Drop nothing: count, also by family and key. Alone, count all that is pending."
        ),
    ] = False,
    yes: Yes = False,
    config: ConfigFile = None,
    validator: Annotated[
        str | None,
        typer.Option(
            "--validator", metavar="ENDPOINT", callback=not_empty, help="The validator. Default: tcp://127.0.0.1:4004."
        ),
    ] = None,
    validator_key: ValidatorKey = None,
    connection_key: ConnectionKey = None,
    as_json: Json = False,
) -> None:
    """Drop pending batches of a node: by ids, by family or by key. They get no verdict.

    The node forgets them, also after a restart. Their status is UNKNOWN, waiting clients get that answer, and everybody
    may submit them again. Nothing of this is on the chain. A batch in a block that is being made stays.

    The command asks the validator's own port, not the REST API. If the port asks for keys, this needs a key that is
    listed under clients. Addresses and keys are those of the table rest_api in --config and in the environment; flags
    win.

    Exit code 1 if no such batch is pending, or if some stay.
    """
    given = [selector for selector in (ids, family, key) if selector]
    if len(given) > 1 or not (given or dry_run):
        raise typer.BadParameter("give batch ids, or --family, or --key: one of the three")
    if as_json and not (yes or dry_run):
        raise typer.BadParameter("--json asks nothing: give --yes or --dry-run too")
    # Imported here, because the other commands of the group start faster without ZeroMQ and the configuration.
    from dovetail.cli.dropping import drop, request_for, upstream

    request = request_for(ids or [], family, key, reason)
    drop(upstream(config, validator, validator_key, connection_key), request, dry_run=dry_run, yes=yes, as_json=as_json)
