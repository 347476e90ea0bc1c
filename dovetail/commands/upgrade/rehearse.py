"""``upgrade rehearse``: the next handler on what the chain holds already. How it is judged: ``dovetail.rehearsal``."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dovetail.commands.options import DataDir, Json, examples, not_empty, some_path
from dovetail.commands.parts import INTERRUPTED
from dovetail.commands.upgrade.findings import document, tell, tell_migration
from dovetail.errors import Refused
from dovetail.home import shown
from dovetail.output import note, print_json

if TYPE_CHECKING:
    from dovetail.rehearsal.differences import Findings
    from dovetail.rehearsal.migrating import SliceFindings
    from dovetail.rehearsal.progress import Progress
    from dovetail.rehearsal.run import Setup, Span
    from processor_sdk.handler import TransactionHandler
    from validator.store import StoreReader

_DIFFERENCES_MAX: Final = 10_000
_WORKERS_MAX: Final = 64
_SAVE_S: Final = 2.0
"""How much at most is judged again when the program is killed, not asked to end."""


def rehearse(
    handler: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:HANDLER",
            callback=not_empty,
            help="The new handler, as dovetail processor takes it; the current folder is looked in as well.",
        ),
    ],
    family: Annotated[
        str, typer.Option("--family", metavar="NAME", callback=not_empty, help="The family that is to be upgraded.")
    ],
    version: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="VERSION", callback=not_empty, help="The version whose transactions are judged again."
        ),
    ] = None,
    blocks: Annotated[
        str | None,
        typer.Option(
            "--blocks", metavar="A..B", callback=not_empty, help="Only blocks A to B, one of which may be left out."
        ),
    ] = None,
    migrate: Annotated[
        bool,
        typer.Option(
            "--migrate", help="Show what the handler's migrate would write, over the state after block B or the newest."
        ),
    ] = False,
    data_dir: DataDir = None,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=_WORKERS_MAX, metavar="N", help="Processes that judge.")
    ] = 1,
    differences_max: Annotated[
        int,
        typer.Option(
            "--differences-max", min=0, max=_DIFFERENCES_MAX, metavar="N", help="Show so many in full; all are counted."
        ),
    ] = 100,
    apply_timeout_ms: Annotated[
        int,
        typer.Option(
            "--apply-timeout-ms", min=1, max=3_600_000, metavar="MS", help="What takes longer is an internal error."
        ),
    ] = 10_000,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Go on where Ctrl-C ended this rehearsal, or begin anew.")
    ] = False,
    progress_file: Annotated[
        Path | None,
        typer.Option(
            "--progress-file",
            metavar="FILE",
            parser=some_path,
            help="Keep what --resume needs there. Default: a file under ~/.dovetail/rehearsals.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Judge a family's past transactions by its next handler, and show what would end otherwise.

    Each transaction runs against the state that it saw, read from the ledger's store: no old processor and no running
    node is needed, and the ledger is not touched. A node may go on running meanwhile. Compared are the verdict, what is
    written, the events and the receipt data.

    Only committed transactions are in the store: that the new handler would accept what the old one refused does not
    show. The exit code is 0 where nothing differs, and 1 where something does (or the migration is refused).
    """
    from dovetail.config import Flag, load
    from dovetail.rehearsal.run import Setup, handler_for
    from ledger.settings import FamilyVersion
    from validator.node import STORE_FOLDER
    from validator.store import StorageFailed, StoreReader

    if not version and not migrate:
        raise typer.BadParameter("which version's transactions are meant? Say --from VERSION")
    flags = {"validator.data_dir": Flag("--data-dir", data_dir and str(data_dir))}
    store = load(config_file=None, environ=os.environ, flags=flags).validator.data_dir / STORE_FOLDER
    made = handler_for(handler, family)
    if migrate and not made.migrates:
        raise Refused(f"{handler} declares no migrate(self, context): there is nothing for --migrate to show")
    judged = FamilyVersion(family, version or made.family_version)
    setup = Setup(store, handler, judged, apply_timeout_ms, differences_max)
    try:
        reader = StoreReader.open(store)
        try:
            span = _span(reader, blocks)
            if migrate:
                run = _migration(setup, reader, span.last, made, workers, as_json)
            else:
                run = _history(setup, reader, span, made, blocks or "", workers, resume, progress_file, as_json)
        finally:
            # A process may have a store open once only, and from now on it is read piece by piece.
            reader.close()
        found = run()
    except StorageFailed as error:
        raise Refused(str(error)) from None
    if found:
        raise typer.Exit(1)


def add_to(app: typer.Typer) -> None:
    """Put this command into the command line."""
    app.command(
        epilog=examples(
            "dovetail upgrade rehearse families.intkey.v2.handler:IntkeyHandler --family intkey --from 1.0",
            "dovetail upgrade rehearse my_family:NewHandler --family my_family --from 1.0 --blocks 100.. --json",
            "dovetail upgrade rehearse my_family:NewHandler --family my_family --migrate",
        )
    )(rehearse)


def _span(reader: "StoreReader", blocks: str | None) -> "Span":
    """The first and the last block that are meant. Raises Refused where the chain has not all of them."""
    from dovetail.rehearsal.run import Span

    if reader.head is None:
        raise Refused("the store holds no block yet: there is no history to rehearse")
    head = reader.head.num
    if blocks is None:
        return Span(0, head)
    low, dots, high = blocks.partition("..")
    if not all(part == "" or (part.isascii() and part.isdigit()) for part in (low, high)) or not (low or high):
        raise typer.BadParameter(f"--blocks is {blocks!r}, not A..B, A.., ..B or a number")
    first = int(low or 0)
    last = int(high or head) if dots else first
    if first > last:
        raise typer.BadParameter(f"--blocks is {blocks!r}: the first comes after the last")
    if last > head:
        raise Refused(f"--blocks is {blocks!r}, the newest block is {head}")
    return Span(first, last)


def _history(
    setup: "Setup",
    reader: "StoreReader",
    span: "Span",
    made: "TransactionHandler[Any]",
    blocks: str,
    workers: int,
    resume: bool,
    progress_file: Path | None,
    as_json: bool,
) -> Callable[[], bool]:
    """What judges the transactions again and tells of it; true where something differs."""
    from dovetail.rehearsal.differences import Findings
    from dovetail.rehearsal.progress import Progress, Question, default_file, load, source_sha256

    genesis = reader.block(0)
    question = Question(
        store=str(setup.store.absolute()),
        chain=genesis.id if genesis else "",
        handler=setup.handler,
        source_sha256=source_sha256(made),
        family=setup.family.name,
        version=setup.family.version,
        blocks=blocks,
        differences_max=setup.differences_max,
    )
    file = progress_file or default_file(question)
    begun = load(file, question) if resume else Progress(question, span.first, span.last, span.first, Findings())

    def run() -> bool:
        progress = _judge(setup, begun, workers, file)
        if as_json:
            print_json(document(setup, progress))
        else:
            tell(setup, progress)
        return progress.findings.differing > 0

    return run


def _judge(setup: "Setup", progress: "Progress", workers: int, file: Path) -> "Progress":
    """Judge what is left, under a progress bar. Ctrl-C, and what goes wrong, leave in ``file`` what is done."""
    from dataclasses import replace

    from dovetail.rehearsal.progress import save
    from dovetail.rehearsal.run import Span, rehearse
    from validator.store import StorageFailed

    began, before = time.monotonic(), progress.findings.transactions
    saved_at = began
    with _bar(progress.last_block - progress.first_block + 1, "blocks") as advance:

        def on_piece(next_block: int, findings: "Findings") -> None:
            nonlocal progress, saved_at
            progress = replace(progress, next_block=next_block, findings=findings)
            now = time.monotonic()
            if now - saved_at > _SAVE_S:
                save(file, progress)
                saved_at = now
            rate = (findings.transactions - before) / (now - began)
            done = f"{findings.transactions:,} transactions, {rate:,.0f}/s, {findings.differing:,} differ"
            advance(next_block - progress.first_block, done)

        try:
            rehearse(setup, Span(progress.next_block, progress.last_block), progress.findings, workers, on_piece)
        except (KeyboardInterrupt, Refused, StorageFailed) as error:
            save(file, progress)
            what = f"{progress.next_block - progress.first_block} of {progress.last_block - progress.first_block + 1}"
            note(f"{what} blocks are done; the same command with --resume goes on, as kept in {shown(file)}")
            if isinstance(error, KeyboardInterrupt):
                raise typer.Exit(INTERRUPTED) from None
            raise
    file.unlink(missing_ok=True)
    return progress


def _migration(
    setup: "Setup",
    reader: "StoreReader",
    block_num: int,
    made: "TransactionHandler[Any]",
    workers: int,
    as_json: bool,
) -> Callable[[], bool]:
    """What runs the migration and tells of it; true where it is refused."""
    from dovetail.rehearsal.migrating import prefixes_for, root_after, slices_of
    from dovetail.rehearsal.run import rehearse_migration

    root = root_after(reader, block_num)
    prefixes, planned = prefixes_for(reader, root, made)
    slices = slices_of(reader, root, prefixes)

    def run() -> bool:
        found: list[SliceFindings] = []
        with _bar(len(slices), "slices") as advance:

            def on_slice(of_slice: "SliceFindings") -> None:
                found.append(of_slice)
                advance(len(found), f"{sum(one.leaves for one in found):,} leaves")

            try:
                rehearse_migration(setup, block_num, slices, workers, on_slice)
            except KeyboardInterrupt:
                raise typer.Exit(INTERRUPTED) from None
        why = "as the chain's setting says" if planned else "the handler's namespaces: no migration is planned on chain"
        what = f"migration to {made.family_name} {made.family_version} over {', '.join(prefixes)} ({why})"
        tell_migration(f"{what}, after block {block_num}", found, setup.differences_max, as_json)
        return any(one.refused for one in found)

    return run


@contextmanager
def _bar(total: int, unit: str) -> Iterator[Callable[[int, str], None]]:
    """A progress bar of ``total`` units on stderr, where that is a terminal; gives what moves it on."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False)
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{unit}  {{task.description}}  left:", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, text: bar.update(task, completed=done, description=text)
