"""Asks a validator to count or drop pending batches, and shows the answers."""

from pathlib import Path
from typing import Final

import typer

from dovetail.cli.printing import print_json, print_table
from dovetail.cli.upgrades.proposing import confirm
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


def upstream(
    config_file: Path | None, validator: str | None, validator_key: Path | None, connection_key: Path | None
) -> RestConfig:
    """The validator's address and the keys. Raises Refused."""
    flags = {
        "rest_api.validator": Flag("--validator", validator),
        "rest_api.validator_key": Flag("--validator-key", validator_key),
        "rest_api.connection_key": Flag("--connection-key", connection_key),
    }
    return load(config_file=config_file, flags=flags).rest_api


def drop(settings: RestConfig, request: PendingDropRequest, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Count, ask, and drop. Raises Refused if no such batch is pending, or if some stay."""
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


def request_for(ids: list[str], family: str | None, key: str | None, reason: str) -> PendingDropRequest:
    """The request that selects these batches. Raises BadParameter."""
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
