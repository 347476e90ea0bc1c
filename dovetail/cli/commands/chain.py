"""``chain verify``: checks a ledger's store, and on request executes its history again."""

from contextlib import closing
from pathlib import Path
from typing import Annotated, Final

import typer

from dovetail.cli.maintenance import store_work
from dovetail.cli.options import (
    WAIT_S_MAX,
    ConfigFile,
    DataDir,
    Insecure,
    Json,
    Processes,
    examples,
    number_option,
    text_option,
)
from dovetail.cli.printing import print_json, progress_bar
from dovetail.cli.reexecution import Tally
from dovetail.cli.reexecution import reexecute as run_again
from dovetail.common.errors import Refused
from dovetail.common.home import shown
from dovetail.common.output import printable
from dovetail.node.config import Config, Flag, load
from dovetail.node.genesis import STORE_NAME
from dovetail.validator.history.verification.findings import Findings
from dovetail.validator.history.verification.workers import CheckerDied, Checkers
from dovetail.validator.maintenance.child import run_in_child
from dovetail.validator.maintenance.verification import VerifiedRange, begin
from dovetail.validator.maintenance.verification import verify as verify_store
from dovetail.validator.store import StorageFailed, StoreReader

app = typer.Typer(help="The chain as a whole: verify.", no_args_is_help=True)

_BIND_DEFAULT: Final = "tcp://127.0.0.1:*"
_BOUND_WAIT_S: Final = 10
"""The default wait for processors at a given ``--bind``. They may be running already, and reconnect within it."""

_KEYS_SHOWN_MAX: Final = 100


@app.command(
    epilog=examples(
        "dovetail chain verify",
        "dovetail chain verify --data-dir ./ledger --json",
        "dovetail chain verify --from 1000 --to 2000",
        "dovetail chain verify --reexecute --family tickets.handler:Handler",
    )
)
def verify(
    config: ConfigFile = None,
    data_dir: DataDir = None,
    first: Annotated[int, number_option("--from", 0, None, "The first block to verify.", "BLOCK")] = 0,
    last: Annotated[
        int | None, number_option("--to", 0, None, "The last block to verify. Default: the head.", "BLOCK")
    ] = None,
    reexecute: Annotated[
        bool,
        typer.Option(
            "--reexecute", help="Also run every batch again through processors, and compare verdicts, receipts, roots."
        ),
    ] = False,
    family: Annotated[
        list[str] | None,
        text_option(
            "--family",
            "MODULE:HANDLER",
            "With --reexecute: start a processor of this handler, before a bundled one of its family and version; "
            "may be repeated.",
        ),
    ] = None,
    bind: Annotated[
        str, text_option("--bind", "ENDPOINT", "With --reexecute: where processors connect that are not started here.")
    ] = _BIND_DEFAULT,
    insecure: Insecure = None,
    wait_s: Annotated[
        int | None,
        number_option(
            "--wait-s",
            0,
            WAIT_S_MAX,
            "With --reexecute: how long to wait for those processors. Default: 10 with --bind, else 0.",
            "SECONDS",
        ),
    ] = None,
    processes: Processes = 0,
    most: Annotated[int, number_option("--show", 1, None, "Show at most N findings.")] = 20,
    as_json: Json = False,
) -> None:
    """Verify a ledger's store: signatures, links, rules, receipts, every node of the state, every index.

    Reads only, even beside a running validator. Exit code 0 when the store is sound, else 1 with findings: the block,
    what was expected and what was found. With --reexecute the bundled processors and those of --family are started, and
    others may connect; families that no processor serves are listed before anything runs, and end the command at once,
    or after --wait-s.
    """
    if not reexecute and (family or insecure or bind != _BIND_DEFAULT):
        raise typer.BadParameter("--family, --bind and --insecure go with --reexecute")
    if last is not None and first > last:
        raise typer.BadParameter(f"--from {first} comes after --to {last}")
    flags = {"validator.data_dir": Flag("--data-dir", data_dir), "validator.insecure": Flag("--insecure", insecure)}
    settings = load(config_file=config, flags=flags)
    if wait_s is None:
        # Nobody knows a free port before it is printed, so nobody is on the way there.
        wait_s = 0 if bind == _BIND_DEFAULT else _BOUND_WAIT_S
    path = settings.validator.data_dir / STORE_NAME
    if reexecute:
        with progress_bar("blocks") as bar:
            tally = Tally(bar)
            seen, findings = _reexecuted(path, first, last, processes, tally, settings, family or [], bind, wait_s)
    else:
        with store_work(path) as tell:
            done = run_in_child(tell, verify_store, path, first, last, processes)
        seen, findings, tally = done.seen, done.findings, Tally(None)
        tally.blocks, tally.transactions, tally.seconds = done.blocks, done.transactions, done.seconds
    _report(seen, findings, tally, path, most, as_json)


def _reexecuted(
    path: Path,
    first: int,
    last: int | None,
    processes: int,
    tally: Tally,
    settings: Config,
    named: list[str],
    bind: str,
    wait_s: int,
) -> tuple[VerifiedRange, Findings]:
    """Verify, and execute again. Runs in a process of its own, because a damaged page of the store may kill it."""
    findings = Findings()
    try:
        with closing(StoreReader.open(path)) as reader, Checkers(processes) as checkers:
            verification = begin(reader, checkers, findings, first, last, path)
            run_again(reader, verification, findings, tally, settings, named, bind, wait_s)
    except (StorageFailed, CheckerDied) as failure:
        raise Refused(str(failure)) from None
    tally.end()
    return VerifiedRange.of(verification), findings


def _report(seen: VerifiedRange, findings: Findings, tally: Tally, path: Path, most: int, as_json: bool) -> None:
    """Print the result. Raises Refused if there are findings."""
    seconds, total = tally.seconds, len(findings)
    advice = list(dict.fromkeys(finding.advice for finding in findings.kept))
    if as_json:
        print_json(
            {
                "sound": not total,
                "first_block": seen.first,
                "last_block": seen.last,
                "blocks": tally.blocks,
                "transactions": tally.transactions,
                "reexecuted_blocks": tally.reexecuted_blocks,
                "reexecuted_transactions": tally.reexecuted_transactions,
                "last_block_id": seen.last_id,
                "pages_walked": seen.pages_walked,
                "states_from_block": seen.states_from,
                "pruned_blocks_not_reexecuted": tally.pruned,
                "sealed_by": dict(seen.sealed_by.most_common(_KEYS_SHOWN_MAX)),
                "seconds": round(seconds, 3),
                "findings_total": total,
                "findings_by_kind": dict(findings.counts),
                "findings": [finding._asdict() for finding in findings.kept],
            }
        )
    else:
        for finding in findings.kept[:most]:
            typer.echo(printable(finding))
        if total > most:
            typer.echo(f"… and {total - most} more: {', '.join(f'{n} {what}' for what, n in findings.counts.items())}")
        typer.echo(
            f"blocks {seen.first} to {seen.last}: {tally.blocks} blocks, {tally.transactions}"
            f" transactions verified in {seconds:.1f} s ({tally.blocks / seconds:,.0f} blocks/s,"
            f" {tally.transactions / seconds:,.0f} transactions/s)"
        )
        for public_key, blocks in seen.sealed_by.most_common(_KEYS_SHOWN_MAX):
            typer.echo(f"blocks sealed by {printable(public_key)}: {blocks}")
        typer.echo(f"block {seen.last}: {seen.last_id or 'cannot be read'}")
        if not seen.pages_walked:
            typer.echo("the pages of the file were not walked: a validator wrote to it meanwhile")
        if seen.states_from:
            typer.echo(_pruned_text(seen))
        if tally.reexecuted_blocks:
            typer.echo(f"{tally.reexecuted_blocks} blocks, {tally.reexecuted_transactions} transactions run again")
        if tally.skipped:
            typer.echo(f"{tally.skipped} blocks not run again: they are not sound")
        if tally.pruned:
            typer.echo(f"{tally.pruned} blocks not run again: the states before them are pruned")
        if not total:
            typer.echo("sound")
    if total:
        found = f"{total} finding{'s' * (total > 1)}"
        raise Refused(f"the ledger at {shown(path)} is not sound, {found}. What to do: {'; or '.join(advice)}")


def _pruned_text(seen: VerifiedRange) -> str:
    first, begin = seen.states_from, seen.first
    words = f"states before block {first} are pruned"
    if 0 < begin <= first:
        return f"{words}: not checked were the states of blocks {begin} to {min(first, seen.last + 1) - 1}"
    return f"{words}: they were made again from the receipts of block 0 on" if begin == 0 else words
