"""``chain verify``: whether a ledger's store is sound, and whether running its history again comes to the same."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dovetail.commands.options import WAIT_S_MAX, ConfigFile, DataDir, Insecure, Json, examples, not_empty
from dovetail.errors import Refused
from dovetail.home import shown
from dovetail.output import print_json, printable, progress_bar

if TYPE_CHECKING:
    from dovetail.config import Config
    from validator.store import StoreReader
    from validator.verification.chain import Verification
    from validator.verification.findings import Findings

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
    from validator.store import StorageFailed, StoreReader
    from validator.verification.findings import Findings
    from validator.verification.workers import CheckerDied, Checkers

    if not reexecute and (family or insecure or bind != _BIND_DEFAULT):
        raise typer.BadParameter("--family, --bind and --insecure go with --reexecute")
    if last is not None and first > last:
        raise typer.BadParameter(f"--from {first} comes after --to {last}")
    settings = _settings(config, data_dir, insecure)
    path = settings.validator.data_dir / "store"
    findings = Findings()
    try:
        reader = StoreReader.open(path)
    except StorageFailed as failure:
        raise Refused(str(failure)) from None
    try:
        with Checkers(processes) as checkers, progress_bar("blocks") as bar:
            tally = Tally(bar)
            verification = _begin(reader, checkers, findings, first, last, path)
            if reexecute:
                from dovetail.commands.reexecution import reexecute as run_again

                run_again(reader, verification, findings, tally, settings, family or [], bind, wait_s)
            else:
                tally.start("verifying", verification)
                for block in verification.blocks():
                    tally.add(block.transactions)
    except (StorageFailed, CheckerDied) as failure:
        raise Refused(str(failure)) from None
    finally:
        reader.close()
    _report(verification, findings, tally, path, most, as_json)


def _settings(config: Path | None, data_dir: Path | None, insecure: bool | None) -> "Config":
    from dovetail.commands.parts import load_config
    from dovetail.config import Flag

    flags = {
        "validator.data_dir": Flag("--data-dir", data_dir and str(data_dir)),
        "validator.insecure": Flag("--insecure", insecure),
    }
    return load_config(config, flags)


def _begin(
    reader: "StoreReader", checkers: Any, findings: "Findings", first: int, last: int | None, path: Path
) -> "Verification":
    """The verification, with what is beside the chain checked already. Raises Refused for blocks that are not there."""
    from validator.verification.chain import Verification
    from validator.verification.pages import check_pages
    from validator.verification.tables import check_tables

    verification = Verification(reader, checkers, findings, first, last)
    head = verification.head
    if head < 0:
        raise Refused(f"the store at {shown(path)} holds no block yet")
    if first > head or (last is not None and last > head):
        raise Refused(f"--from {first} --to {head if last is None else last}: the chain has blocks 0 to {head}")
    check_tables(reader, checkers, findings)
    verification.pages_walked = check_pages(reader, path, findings)
    return verification


class Tally:
    """What has been done so far, and the bar that shows it."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._task: Any = None
        self.blocks = self.transactions = self.reexecuted_blocks = self.reexecuted_transactions = self.skipped = (
            self.pruned
        ) = 0
        self.started_s = self._shown_s = time.monotonic()

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self.started_s, 1e-9)

    def start(self, title: str, verification: "Verification") -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(title, total=verification.last - verification.first + 1, words="")
        self.started_s = time.monotonic()
        self._bar.refresh()

    def add(self, transactions: int) -> None:
        """One block was verified."""
        self.blocks += 1
        self.transactions += transactions
        self.step(self.transactions)

    def step(self, transactions: int) -> None:
        self._bar.advance(self._task)
        # By hand: a thread that did it would take turns with the work.
        if (now_s := time.monotonic()) - self._shown_s > _REFRESH_S:
            self._shown_s = now_s
            self._bar.update(self._task, words=f"{transactions / self.seconds:,.0f} transactions/s")
            self._bar.refresh()


# Telling


def _report(
    verification: "Verification", findings: "Findings", tally: Tally, path: Path, most: int, as_json: bool
) -> None:
    """Print what was found. Raises Refused where that is anything."""
    seconds, total = tally.seconds, len(findings)
    advice = list(dict.fromkeys(finding.advice for finding in findings.kept))
    if as_json:
        print_json(
            {
                "sound": not total,
                "first_block": verification.first,
                "last_block": verification.last,
                "blocks": tally.blocks,
                "transactions": tally.transactions,
                "reexecuted_blocks": tally.reexecuted_blocks,
                "reexecuted_transactions": tally.reexecuted_transactions,
                "last_block_id": verification.last_id,
                "pages_walked": verification.pages_walked,
                "states_from_block": verification.states_from,
                "pruned_blocks_not_reexecuted": tally.pruned,
                "sealed_by": dict(verification.sealed_by.most_common(_KEYS_SHOWN_MAX)),
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
            f"blocks {verification.first} to {verification.last}: {tally.blocks} blocks, {tally.transactions}"
            f" transactions verified in {seconds:.1f} s ({tally.blocks / seconds:,.0f} blocks/s,"
            f" {tally.transactions / seconds:,.0f} transactions/s)"
        )
        for public_key, blocks in verification.sealed_by.most_common(_KEYS_SHOWN_MAX):
            typer.echo(f"blocks sealed by {printable(public_key)}: {blocks}")
        typer.echo(f"block {verification.last}: {verification.last_id}")
        if not verification.pages_walked:
            typer.echo("the pages of the file were not walked: a validator wrote to it meanwhile")
        if verification.states_from:
            typer.echo(_pruned_words(verification))
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


def _pruned_words(verification: "Verification") -> str:
    first, begin = verification.states_from, verification.first
    words = f"states before block {first} are pruned"
    if 0 < begin <= first:
        return f"{words}: not checked were the states of blocks {begin} to {min(first, verification.last + 1) - 1}"
    return f"{words}: they were made again from the receipts of block 0 on" if begin == 0 else words
