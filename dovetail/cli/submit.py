"""Submits a signed transaction and prints its outcome, for every submitting command."""

import contextlib
import os
import secrets
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import typer

from dovetail.cli.printing import print_json
from dovetail.client import BatchStatus, DovetailClient
from dovetail.common.errors import Refused
from dovetail.common.files import write_whole
from dovetail.common.keys import key_path, load_signer
from dovetail.common.output import note, printable, program
from dovetail.common.urls import DEFAULT_URL, shown_url
from dovetail.ledger.building import SignedBatch, SignedTransaction, build_batch, encode_batch_list
from dovetail.ledger.signing import Signer


def signer_of(key: str | None) -> Signer:
    """The signing key that ``--key`` names. Raises Refused."""
    return load_signer(key_path(key, os.environ))


def nonce() -> str:
    """A random nonce for a transaction."""
    return secrets.token_hex(16)


def submit(
    signer: Signer,
    transaction: SignedTransaction,
    *,
    url: str,
    wait_s: int | None,
    output: Path | None,
    as_json: bool,
    extra: Mapping[str, object] | None = None,
    outcome: Callable[[BatchStatus], Mapping[str, object]] | None = None,
) -> None:
    """Post one transaction in one batch and print its outcome. Raises Refused if it does not commit within ``wait_s``.

    ``output``: write the batch to this file instead, and print only its id. ``extra`` and the result of ``outcome``
    join the JSON document, or are printed as ``name: value`` lines. ``outcome`` is called before anything is printed.
    """
    if output is not None and wait_s:
        raise typer.BadParameter("--wait is for a batch that is submitted, --output for one that is not")
    batch = build_batch(signer, [transaction])
    if output is not None:
        _write(batch, output, as_json=as_json, extra=extra or {})
        return
    with DovetailClient(url) as client:
        # Post without waiting first: Ctrl-C or a lost connection while waiting must not lose the id.
        status = client.post_batches([batch])[batch.id]
        if wait_s:
            status = _wait(client, batch.id, wait_s, url)
    more = {**(extra or {}), **(outcome(status) if outcome else {})}
    if as_json:
        print_json({"batch_id": batch.id, "status": status.status, "details": status.details, **more})
    else:
        for name, value in more.items():
            typer.echo(f"{name.replace('_', ' ')}: {value}")
        if status.status == "COMMITTED":
            typer.echo(f"batch {batch.id} COMMITTED")
        elif not wait_s:
            typer.echo(f"batch {batch.id} accepted")
            typer.echo(_follow([batch.id], url))
    refuse_uncommitted([status], wait_s, url)


@contextlib.contextmanager
def followed(ids: Sequence[str], url: str) -> Iterator[None]:
    """Within the block, Ctrl-C prints how to go on waiting for the batches, and then ends the program."""
    try:
        yield
    except KeyboardInterrupt:
        note(_follow(ids, url))
        raise


def refuse_uncommitted(outcome: Sequence[BatchStatus], wait_s: int | None, url: str) -> None:
    """Raise Refused with each batch that is not committed, the reason, and how to go on waiting for PENDING ones."""
    if not wait_s:
        failed = [status for status in outcome if status.status == "INVALID"]
    else:
        failed = [status for status in outcome if status.status != "COMMITTED"]
    if failed:
        lines = [_verdict(status, wait_s) for status in failed]
        pending = [status.id for status in failed if status.status == "PENDING"]
        raise Refused("\n".join([*lines, _follow(pending, url)] if pending else lines))


def url_argument(url: str) -> str:
    """The --url option for a suggested command, without a password; empty for the default URL."""
    return "" if url == DEFAULT_URL else f" --url {shlex.quote(shown_url(url))}"


def _write(batch: SignedBatch, output: Path, *, as_json: bool, extra: Mapping[str, object]) -> None:
    """Write a BatchList of one batch. Scripts find the id on stdout, or on stderr if the batch goes to stdout.

    An existing file is replaced, with a note. Raises Refused.
    """
    content, to_stdout = encode_batch_list([batch]), str(output) == "-"
    if to_stdout:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        replaced = output.exists()
        # Replacing a device would remove it.
        if replaced and not output.is_file():
            raise Refused(f"cannot write {printable(output)}: it exists and is no file; - writes to stdout")
        write_whole(output, content, mode=0o644, overwrite=True)
        if replaced:
            note(f"replaced {printable(output)}, which existed")
    if as_json:
        print_json({"batch_id": batch.id, "file": str(output), **extra}, err=to_stdout)
    else:
        for name, value in extra.items():
            note(f"{name.replace('_', ' ')}: {value}")
        note(f"wrote a BatchList with this batch to {'stdout' if to_stdout else printable(output)}:")
        typer.echo(batch.id, err=to_stdout)


def _wait(client: DovetailClient, batch_id: str, wait_s: int, url: str) -> BatchStatus:
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


def _verdict(status: BatchStatus, wait_s: int | None) -> str:
    if status.status == "UNKNOWN" and not status.why:
        return f"batch {printable(status.id)} is UNKNOWN: the node dropped it or never had it; submit it again"
    why = printable(status.why) or "the REST API gave no reason"
    if status.status == "PENDING":
        return f"batch {printable(status.id)} is still PENDING after {wait_s} s: {why}"
    return f"batch {printable(status.id)} is {printable(status.status)}: {why}"
