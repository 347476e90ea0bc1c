"""``chain verify``: whether a ledger's store is sound, and whether running its history again comes to the same."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dovetail.cli.options import WAIT_S_MAX, ConfigFile, DataDir, Insecure, Json, examples, not_empty
from dovetail.common.errors import Refused
from dovetail.common.home import shown
from dovetail.common.output import print_json, printable, progress_bar

if TYPE_CHECKING:
    from dovetail.node.config import Config
    from dovetail.validator.history.verification.findings import Findings
    from dovetail.validator.maintenance.child import Step
    from dovetail.validator.maintenance.verification import VerifiedRange

app = typer.Typer(help="The chain as a whole: verify.", no_args_is_help=True)

_BIND_DEFAULT: Final = "tcp://127.0.0.1:*"
_REFRESH_S: Final = 0.2
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
    first: Annotated[int, typer.Option("--from", min=0, metavar="BLOCK", help="The first block to verify.")] = 0,
    last: Annotated[
        int | None,
        typer.Option("--to", min=0, metavar="BLOCK", help="The last block to verify. Default: the head."),
    ] = None,
    reexecute: Annotated[
        bool,
        typer.Option(
            "--reexecute", help="Also run every batch again through processors, and compare verdicts, receipts, roots."
        ),
    ] = False,
    family: Annotated[
        list[str] | None,
        typer.Option(
            "--family",
            metavar="MODULE:HANDLER",
            callback=not_empty,
            help="With --reexecute: start a processor of this handler, before a bundled one of its family and version; "
            "may be repeated.",
        ),
    ] = None,
    bind: Annotated[
        str,
        typer.Option(
            "--bind",
            metavar="ENDPOINT",
            callback=not_empty,
            help="With --reexecute: where other processors connect, which are not started here.",
        ),
    ] = _BIND_DEFAULT,
    insecure: Insecure = None,
    wait_s: Annotated[
        int,
        typer.Option(
            "--wait-s", min=0, max=WAIT_S_MAX, metavar="SECONDS", help="With --reexecute: how long to wait for them."
        ),
    ] = 60,
    processes: Annotated[
        int,
        typer.Option(
            "--processes", min=0, max=256, metavar="N", help="Processes that check signatures; 0: one a core."
        ),
    ] = 0,
    most: Annotated[int, typer.Option("--show", min=1, metavar="N", help="Show at most N findings.")] = 20,
    as_json: Json = False,
) -> None:
    """Verify a ledger's store: signatures, links, rules, receipts, every node of the state, every index.

    Reads only, beside a running validator too. Exit code 0 when the store is sound; 1 with findings, each with its
    block, what was expected and what was found. With --reexecute the bundled processors and those of --family are
    started, others may connect; which ones history needs and nobody serves is said before anything runs.
    """
    if not reexecute and (family or insecure or bind != _BIND_DEFAULT):
        raise typer.BadParameter("--family, --bind and --insecure go with --reexecute")
    if last is not None and first > last:
        raise typer.BadParameter(f"--from {first} comes after --to {last}")
    settings = _settings(config, data_dir, insecure)
    path = settings.validator.data_dir / "store"
    with progress_bar("blocks") as bar:
        tally = Tally(bar)
        if reexecute:
            seen, findings = _reexecuted(path, first, last, processes, tally, settings, family or [], bind, wait_s)
        else:
            seen, findings = _verified(path, first, last, processes, tally)
    _report(seen, findings, tally, path, most, as_json)


def _verified(
    path: Path, first: int, last: int | None, processes: int, tally: "Tally"
) -> "tuple[VerifiedRange, Findings]":
    """Verify in a process of its own. Raises Refused, also where a damaged page ends that."""
    from dovetail.validator.maintenance.child import Ended, run_in_child
    from dovetail.validator.maintenance.verification import verify as verify_store
    from dovetail.validator.store import StorageFailed

    try:
        done = run_in_child(tally.tell, verify_store, path, first, last, processes)
    except StorageFailed as failure:
        raise Refused(str(failure)) from None
    except Ended as ended:
        raise Refused(
            f"the process that read the store at {shown(path)} was ended ({ended}): where nobody did that, pages of its"
            " file are damaged. Stop the validator, then `dovetail store repair`, or restore a backup"
        ) from None
    tally.blocks, tally.transactions, tally.seconds = done.blocks, done.transactions, done.seconds
    return done.seen, done.findings


def _reexecuted(
    path: Path,
    first: int,
    last: int | None,
    processes: int,
    tally: "Tally",
    settings: "Config",
    named: list[str],
    bind: str,
    wait_s: int,
) -> "tuple[VerifiedRange, Findings]":
    """Verify and run again. In this process, whose processors must end with it: a damaged page may end it."""
    from dovetail.cli.reexecution import reexecute as run_again
    from dovetail.validator.history.verification.findings import Findings
    from dovetail.validator.history.verification.workers import CheckerDied, Checkers
    from dovetail.validator.maintenance.verification import VerifiedRange, begin
    from dovetail.validator.store import StorageFailed, StoreReader

    findings = Findings()
    try:
        reader = StoreReader.open(path)
        try:
            with Checkers(processes) as checkers:
                verification = begin(reader, checkers, findings, first, last, path)
                run_again(reader, verification, findings, tally, settings, named, bind, wait_s)
        finally:
            reader.close()
    except (StorageFailed, CheckerDied) as failure:
        raise Refused(str(failure)) from None
    tally.end()
    return VerifiedRange.of(verification), findings


def _settings(config: Path | None, data_dir: Path | None, insecure: bool | None) -> "Config":
    from dovetail.cli.commands.parts import load_config
    from dovetail.node.config import Flag

    flags = {
        "validator.data_dir": Flag("--data-dir", data_dir and str(data_dir)),
        "validator.insecure": Flag("--insecure", insecure),
    }
    return load_config(config, flags)


class Tally:
    """What has been done so far, and the bar that shows it."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._task: Any = None
        self.blocks = self.transactions = self.reexecuted_blocks = self.reexecuted_transactions = self.skipped = (
            self.pruned
        ) = 0
        self.seconds = 0.0
        self._started_s = self._shown_s = time.monotonic()

    def start(self, title: str, blocks: int) -> None:
        """Something is done with so many blocks."""
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(title, total=blocks, words="")
        self._started_s = time.monotonic()
        self._bar.refresh()

    def end(self) -> None:
        """All is done that was started."""
        self.seconds = max(time.monotonic() - self._started_s, 1e-9)

    def tell(self, step: "Step") -> None:
        """How far another process has come."""
        if self._task is None:
            self.start("verifying", step.total)
        self._bar.update(self._task, completed=step.done, words=step.title)
        self._bar.refresh()

    def step(self, transactions: int) -> None:
        self._bar.advance(self._task)
        # By hand: a thread that did it would take turns with the work.
        if (now_s := time.monotonic()) - self._shown_s > _REFRESH_S:
            self._shown_s = now_s
            self._bar.update(self._task, words=f"{transactions / (now_s - self._started_s):,.0f} transactions/s")
            self._bar.refresh()


# Telling


def _report(seen: "VerifiedRange", findings: "Findings", tally: Tally, path: Path, most: int, as_json: bool) -> None:
    """Print what was found. Raises Refused where that is anything."""
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
            typer.echo(_pruned_words(seen))
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


def _pruned_words(seen: "VerifiedRange") -> str:
    first, begin = seen.states_from, seen.first
    words = f"states before block {first} are pruned"
    if 0 < begin <= first:
        return f"{words}: not checked were the states of blocks {begin} to {min(first, seen.last + 1) - 1}"
    return f"{words}: they were made again from the receipts of block 0 on" if begin == 0 else words
