"""From signed transactions to a told outcome: what every submitting command does last. No command of its own."""

import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from dovetail.errors import Refused
from dovetail.output import print_json, printable

if TYPE_CHECKING:
    from dovetail.client import BatchStatus
    from ledger.building import SignedTransaction
    from ledger.signing import Signer

DEFAULT_URL: Final = "http://127.0.0.1:8080"


def signer_of(key: str | None) -> "Signer":
    """The key that ``--key`` names. Raises Refused."""
    from dovetail.keys import key_path, load_signer

    return load_signer(key_path(key, os.environ))


def nonce() -> str:
    """Text that no other transaction carries."""
    return secrets.token_hex(16)


def submit(
    signer: "Signer",
    transaction: "SignedTransaction",
    *,
    url: str,
    wait_s: int | None,
    as_json: bool,
    extra: dict[str, str] | None = None,
) -> None:
    """Post one transaction in one batch and tell what became of it. Raises Refused when it was waited for in vain.

    ``extra`` joins the JSON document and, as ``name: value`` lines, what people read.
    """
    from dovetail.client import DovetailClient
    from ledger.building import build_batch

    batch = build_batch(signer, [transaction])
    with DovetailClient(url) as client:
        status = client.post_batches([batch], wait_s=wait_s)[batch.id]
    if as_json:
        print_json({"batch_id": batch.id, "status": status.status, "details": status.details, **(extra or {})})
    else:
        for name, value in (extra or {}).items():
            typer.echo(f"{name.replace('_', ' ')}: {value}")
        if status.status == "COMMITTED":
            typer.echo(f"batch {batch.id} COMMITTED")
        elif not wait_s:
            typer.echo(f"batch {batch.id} accepted")
            typer.echo(f"follow it: {program()} batch status {batch.id} --wait 60{url_argument(url)}")
    refuse_uncommitted([status], wait_s)


def program() -> str:
    """How to start this program from another terminal: its bare name only where that finds it."""
    script = Path(sys.argv[0]).absolute()
    if script.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m dovetail"
    found = shutil.which(script.name)
    return script.name if found and Path(found).samefile(script) else shlex.quote(str(script))


def refuse_uncommitted(outcome: Sequence["BatchStatus"], wait_s: int | None) -> None:
    """Raise Refused with every batch that was waited for in vain, and why."""
    if not wait_s:
        failed = [status for status in outcome if status.status == "INVALID"]
    else:
        failed = [status for status in outcome if status.status != "COMMITTED"]
    if failed:
        raise Refused("\n".join(_verdict(status, wait_s) for status in failed))


def url_argument(url: str) -> str:
    """What a suggested command needs to reach the same place; empty for the default."""
    return "" if url == DEFAULT_URL else f" --url {shlex.quote(url)}"


def _verdict(status: "BatchStatus", wait_s: int | None) -> str:
    why = printable(status.why) or "the REST API gave no reason"
    if status.status == "PENDING":
        return f"batch {printable(status.id)} is still PENDING after {wait_s} s: {why}"
    return f"batch {printable(status.id)} is {printable(status.status)}: {why}"
