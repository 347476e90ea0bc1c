"""``batch drop``: removes pending batches from the queue of a node, for its operator."""

from typing import Annotated, Final

import typer

from dovetail.cli.options import (
    ConfigFile,
    ConnectionKey,
    Json,
    ValidatorKey,
    examples,
    not_empty,
    text_argument,
    text_option,
)
from dovetail.cli.printing import print_json, print_table
from dovetail.cli.upgrades.proposing import Yes, confirm
from dovetail.cli.validator_port import ask
from dovetail.common.errors import Refused
from dovetail.common.output import printable
from dovetail.ledger.ids import is_id, is_public_key
from dovetail.node.config import Flag, load
from dovetail.rest_api.config import RestConfig
from protos.node_pb2 import PendingDropRequest, PendingDropResponse
from protos.validator_pb2 import Message as Envelope

_IDS_MAX: Final = 1_000
"""The most ids on a command line."""

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
    request = _request(ids or [], family, key, reason)
    settings = load(
        config_file=config,
        flags={
            "rest_api.validator": Flag("--validator", validator),
            "rest_api.validator_key": Flag("--validator-key", validator_key),
            "rest_api.connection_key": Flag("--connection-key", connection_key),
        },
    ).rest_api
    if dry_run or not yes:
        found = _ask(settings, request, count_only=True)
        print_json(_counts(found)) if as_json else _show(found)
        if dry_run:
            return
        if found.batches:
            confirm(f"drop {found.batches} pending batches", must_ask=True)
    dropped = executing = 0
    left = True
    while left:
        answer = _ask(settings, request)
        dropped, executing, left = dropped + answer.batches, answer.executing, answer.left > 0
    print_json({"dropped": dropped, "executing": executing}) if as_json else typer.echo(f"dropped {dropped} batches")
    if executing:
        raise Refused(f"{executing} batches stay, because a block with them is being made: look again in a moment")
    if not dropped:
        raise Refused("no such batch is pending")


def _request(ids: list[str], family: str | None, key: str | None, reason: str) -> PendingDropRequest:
    if len(ids) > _IDS_MAX:
        raise typer.BadParameter(f"{len(ids)} ids are given, at most {_IDS_MAX} are allowed")
    for text in ids:
        if not is_id(text):
            raise typer.BadParameter(f"{printable(text)} is no batch id of 128 lower-case hex characters")
    if key is not None and not is_public_key(key):
        raise typer.BadParameter(f"{printable(key)} is no public key of 66 lower-case hex characters")
    # A name may hold the separator too, so the last one counts.
    name, separator, version = (family or "").rpartition("@")
    if not separator:
        name, version = version, ""
    return PendingDropRequest(
        batch_ids=ids, family_name=name, family_version=version, signer_pubkey=key or "", reason=reason
    )


def _ask(settings: RestConfig, request: PendingDropRequest, *, count_only: bool = False) -> PendingDropResponse:
    request.count_only = count_only
    answer = ask(settings, Envelope.PENDING_DROP_REQUEST, request, PendingDropResponse)
    if answer.status != PendingDropResponse.OK:
        raise Refused(f"the validator refused: {printable(answer.message)}")
    return answer


def _counts(found: PendingDropResponse) -> dict[str, object]:
    return {
        "batches": found.batches,
        "executing": found.executing,
        "families": [
            {"family_name": each.family_name, "family_version": each.family_version, "batches": each.batches}
            for each in found.families
        ],
        "signers": [{"signer_pubkey": each.signer_pubkey, "batches": each.batches} for each in found.signers],
    }


def _show(found: PendingDropResponse) -> None:
    typer.echo(f"{found.batches} batches are pending, {found.executing} more are in a block that is being made")
    if found.batches:
        typer.echo()
        print_table(
            ("BATCHES", "FAMILY OR KEY"),
            [(each.batches, f"{each.family_name}@{each.family_version}") for each in found.families]
            + [(each.batches, each.signer_pubkey) for each in found.signers],
        )
