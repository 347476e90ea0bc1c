"""Runs a rehearsal with a progress bar and the exit code of the command. The rehearsal is in ``dovetail.rehearsal``."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import typer

from dovetail.cli.printing import print_json, progress_bar
from dovetail.cli.upgrades.rehearsal_report import document, print_findings, print_migration
from dovetail.common.errors import INTERRUPTED, WRONG_USAGE, Refused
from dovetail.common.home import shown
from dovetail.common.output import note, printable
from dovetail.ledger.errors import some_of
from dovetail.rehearsal.differences import Findings
from dovetail.rehearsal.history import Span
from dovetail.rehearsal.migrating import SliceFindings, prefixes_for, slices_of, state_after
from dovetail.rehearsal.progress import Progress, Question, default_file, load, save
from dovetail.rehearsal.run import Setup, rehearse, rehearse_migration
from dovetail.rehearsal.sources import sources_sha256
from dovetail.validator.store import StorageFailed, StoreReader
from processor_sdk.handler import TransactionHandler

_VERSIONS_SHOWN_MAX: Final = 10
_REFRESH_S: Final = 0.2
_SAVE_S: Final = 2.0
"""The seconds between two saves of the progress. After a kill, the work since the last save is repeated."""


def rehearse_history(
    setup: Setup,
    reader: StoreReader,
    span: Span,
    made: TransactionHandler[Any],
    blocks: str,
    workers: int,
    resume: bool,
    progress_file: Path | None,
    as_json: bool,
) -> int:
    """Execute the transactions again, print the findings, and return the exit code."""
    genesis = reader.block(0)
    question = Question(
        store=str(setup.store.absolute()),
        chain=genesis.id if genesis else "",
        handler=setup.handler,
        sources_sha256=sources_sha256(setup.handler),
        family=setup.family.name,
        version=setup.family.version,
        blocks=blocks,
        apply_timeout_ms=setup.apply_timeout_ms,
        differences_max=setup.differences_max,
        state_value_bytes_max=setup.limits.state_value_bytes_max,
        receipt_bytes_max=setup.limits.receipt_bytes_max,
    )
    file = progress_file or default_file(question)
    begun = load(file, question) if resume else Progress(question, span, span.first, Findings())
    notes = []
    if made.migrates and made.family_version != setup.family.version:
        notes.append(
            f"{made.family_name} {made.family_version} declares migrate, but the state here is the one before its"
            " migration, which its apply never sees: differences may mean nothing. Rehearse the migration with"
            " --migrate, and test apply after it with the test kit (docs/reference/sdk.md)"
        )
        note(printable(notes[0]))
    progress = _run(setup, reader, begun, workers, file)
    findings = progress.findings
    if not findings.transactions:
        notes.append(_no_transactions(setup, findings))
        note(printable(notes[-1]))
    if as_json:
        print_json(document(setup, progress, notes))
    else:
        print_findings(setup, progress)
    return WRONG_USAGE if not findings.transactions else 1 if findings.differing else 0


def _no_transactions(setup: Setup, findings: Findings) -> str:
    """A note that no transaction was rehearsed, so that an empty rehearsal does not look like a success."""
    others = some_of([f"{name} ({count:,})" for name, count in findings.other_versions.items()], _VERSIONS_SHOWN_MAX)
    has = (
        f"they have transactions of {setup.family.name} {others}" if others else "nor of another version of the family"
    )
    return f"no transaction of {setup.family} is in these blocks, {has}: check --family, --from and --blocks"


def _run(setup: Setup, reader: StoreReader, progress: Progress, workers: int, file: Path) -> Progress:
    """Execute the remaining transactions. Ctrl-C and errors leave the progress in ``file``."""
    began, before = time.monotonic(), progress.findings.transactions
    saved_at = began
    total = progress.span.transactions
    with _bar("rehearsing", total, "transactions") as advance:

        def on_piece(next_number: int, findings: Findings) -> None:
            nonlocal progress, saved_at
            progress = replace(progress, next=next_number, findings=findings)
            now = time.monotonic()
            if now - saved_at > _SAVE_S:
                save(file, progress)
                saved_at = now
            rate = (findings.transactions - before) / (now - began)
            advance(progress.done, f"{rate:,.0f}/s, {findings.differing:,} differ")

        try:
            rehearse(setup, reader, progress.span, progress.next, progress.findings, workers, on_piece)
        except (KeyboardInterrupt, Refused, StorageFailed) as error:
            save(file, progress)
            what = f"{progress.done:,} of {total:,} transactions are done"
            note(f"{what}; the same command with --resume goes on, as kept in {shown(file)}")
            if isinstance(error, KeyboardInterrupt):
                raise typer.Exit(INTERRUPTED) from None
            raise
    file.unlink(missing_ok=True)
    return progress


def rehearse_to_migrate(
    setup: Setup, reader: StoreReader, block_num: int, made: TransactionHandler[Any], workers: int, as_json: bool
) -> int:
    """Run the migration over the state after a block, print the findings, and return the exit code."""
    prefixes, planned = prefixes_for(reader, block_num, made)
    slices = slices_of(state_after(reader, block_num), prefixes)
    found: list[SliceFindings] = []
    shown_left = setup.differences_max
    with _bar("migrating", len(slices), "slices") as advance:

        def on_slice(of_slice: SliceFindings) -> None:
            nonlocal shown_left
            reader.refresh()
            found.append(replace(of_slice, changes=of_slice.changes[:shown_left]))
            shown_left -= len(found[-1].changes)
            advance(len(found), f"{sum(one.leaves for one in found):,} leaves")

        try:
            rehearse_migration(setup, block_num, slices, workers, on_slice)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
    why = "as the chain's setting says" if planned else "the handler's namespaces: no migration is planned on chain"
    what = f"migration to {made.family_name} {made.family_version} over {', '.join(prefixes)} ({why})"
    print_migration(f"{what}, after block {block_num}", found, setup.differences_max, as_json)
    return 1 if any(one.refused for one in found) else 0


@contextmanager
def _bar(title: str, total: int, unit: str) -> Iterator[Callable[[int, str], None]]:
    """A progress bar of ``total`` units. Yields a function that sets the units done and the text beside the bar."""
    with progress_bar(unit) as bar:
        task = bar.add_task(title, total=total, words="")
        bar.refresh()
        shown_at = time.monotonic()

        def advance(done: int, words: str) -> None:
            nonlocal shown_at
            bar.update(task, completed=done, words=words)
            if (now := time.monotonic()) - shown_at > _REFRESH_S:
                shown_at = now
                bar.refresh()

        yield advance
