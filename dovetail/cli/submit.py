"""From signed transactions to a told outcome: what every submitting command does last. No command of its own."""

import contextlib
import os
import secrets
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dovetail.common.errors import Refused
from dovetail.common.output import note, print_json, printable, program
from dovetail.common.urls import DEFAULT_URL, shown_url

if TYPE_CHECKING:
    from dovetail.client import BatchStatus, DovetailClient
    from dovetail.ledger.building import SignedBatch, SignedTransaction
    from dovetail.ledger.signing import Signer


def signer_of(key: str | None) -> "Signer":
    """The key that ``--key`` names. Raises Refused."""
    from dovetail.common.keys import key_path, load_signer

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
    output: Path | None,
    as_json: bool,
    extra: Mapping[str, object] | None = None,
    outcome: "Callable[[BatchStatus], Mapping[str, object]] | None" = None,
) -> None:
    """Post one transaction in one batch and tell what became of it. Raises Refused when it was waited for in vain.

    ``output``: write the batch there instead, and print nothing but its id. ``extra`` joins the JSON document and, as
    ``name: value`` lines, what people read; so does what ``outcome`` makes of the status, before anything is printed.
    """
    from dovetail.client import DovetailClient
    from dovetail.ledger.building import build_batch

    if output is not None and wait_s:
        raise typer.BadParameter("--wait is for a batch that is submitted, --output for one that is not")
    batch = build_batch(signer, [transaction])
    if output is not None:
        _write(batch, output, as_json=as_json, extra=extra or {})
        return
    with DovetailClient(url) as client:
        # Posted without waiting: what ends the waiting, Ctrl-C or a lost connection, must not take the id with it.
        status = client.post_batches([batch])[batch.id]
        if wait_s:
            status = _wait(client, batch.id, wait_s, url)
    told = {**(extra or {}), **(outcome(status) if outcome else {})}
    if as_json:
        print_json({"batch_id": batch.id, "status": status.status, "details": status.details, **told})
    else:
        for name, value in told.items():
            typer.echo(f"{name.replace('_', ' ')}: {value}")
        if status.status == "COMMITTED":
            typer.echo(f"batch {batch.id} COMMITTED")
        elif not wait_s:
            typer.echo(f"batch {batch.id} accepted")
            typer.echo(_follow([batch.id], url))
    refuse_uncommitted([status], wait_s, url)


@contextlib.contextmanager
def followed(ids: Sequence[str], url: str) -> Iterator[None]:
    """Wait for the batches in here: Ctrl-C says how to go on waiting before it ends the program."""
    try:
        yield
    except KeyboardInterrupt:
        note(_follow(ids, url))
        raise


def refuse_uncommitted(outcome: Sequence["BatchStatus"], wait_s: int | None, url: str) -> None:
    """Raise Refused with every batch that was waited for in vain, and why; and how to go on waiting for the PENDING."""
    if not wait_s:
        failed = [status for status in outcome if status.status == "INVALID"]
    else:
        failed = [status for status in outcome if status.status != "COMMITTED"]
    if failed:
        lines = [_verdict(status, wait_s) for status in failed]
        pending = [status.id for status in failed if status.status == "PENDING"]
        raise Refused("\n".join([*lines, _follow(pending, url)] if pending else lines))


def url_argument(url: str) -> str:
    """What a suggested command needs to reach the same place, but for a password; empty for the default."""
    return "" if url == DEFAULT_URL else f" --url {shlex.quote(shown_url(url))}"


def _write(batch: "SignedBatch", output: Path, *, as_json: bool, extra: Mapping[str, object]) -> None:
    """A BatchList of one; what a script needs on stdout, unless the batch goes there, the rest on stderr.

    A file that is there is replaced, which is told. Raises Refused.
    """
    from dovetail.common.files import write_whole
    from dovetail.ledger.building import encode_batch_list

    content, to_stdout = encode_batch_list([batch]), str(output) == "-"
    if to_stdout:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        replaced = output.exists()
        # Whoever may write to a folder of devices would lose one.
        if replaced and not output.is_file():
            raise Refused(f"cannot write {printable(output)}: it is there and no file; - writes to stdout")
        write_whole(output, content, mode=0o644, overwrite=True)
        if replaced:
            note(f"replaced {printable(output)}, which was there")
    if as_json:
        print_json({"batch_id": batch.id, "file": str(output), **extra}, err=to_stdout)
    else:
        for name, value in extra.items():
            note(f"{name.replace('_', ' ')}: {value}")
        note(f"wrote a BatchList with this batch to {'stdout' if to_stdout else printable(output)}:")
        typer.echo(batch.id, err=to_stdout)


def _wait(client: "DovetailClient", batch_id: str, wait_s: int, url: str) -> "BatchStatus":
    with followed([batch_id], url):
        note(f"batch {batch_id} accepted; waiting up to {wait_s} s")
        try:
            outcome = client.batch_status([batch_id], wait_s=wait_s)
        except Refused as error:
            raise Refused(f"{error}\n{_follow([batch_id], url)}") from None
    if batch_id not in outcome:
        raise Refused(f"the REST API gave no status of the batch\n{_follow([batch_id], url)}")
    return outcome[batch_id]


def _follow(ids: Sequence[str], url: str) -> str:
    named = " ".join(shlex.quote(printable(batch_id)) for batch_id in ids)
    return f"follow it: {program()} batch status {named} --wait 60{url_argument(url)}"


def _verdict(status: "BatchStatus", wait_s: int | None) -> str:
    why = printable(status.why) or "the REST API gave no reason"
    if status.status == "PENDING":
        return f"batch {printable(status.id)} is still PENDING after {wait_s} s: {why}"
    return f"batch {printable(status.id)} is {printable(status.status)}: {why}"
