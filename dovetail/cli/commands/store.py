"""``store``: the ledger's file as a whole: looked at, backed up, put back, compacted, pruned, repaired.

What is done is in ``dovetail.validator.maintenance``; here is what is said about it.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dovetail.cli.options import ConfigFile, DataDir, Json, examples, some_path
from dovetail.cli.store_report import mib, per_million, show
from dovetail.common.errors import Refused
from dovetail.common.home import shown
from dovetail.common.output import note, print_json, printable, progress_bar

if TYPE_CHECKING:
    from dovetail.node.config import Config
    from dovetail.validator.maintenance.child import OnStep, Step

app = typer.Typer(
    help="The ledger's file: check, backup, restore, compact, prune, repair. More: docs/how-to/operations.md",
    no_args_is_help=True,
)

_NOTES_SHOWN_MAX: Final = 20
_PATH_SHOWN_MAX: Final = 400

Processes = Annotated[
    int,
    typer.Option("--processes", min=0, max=256, metavar="N", help="Processes that check signatures; 0: one a core."),
]


@app.command(epilog=examples("dovetail store check", "dovetail store check --data-dir ./ledger --json"))
def check(config: ConfigFile = None, data_dir: DataDir = None, as_json: Json = False) -> None:
    """Show what each table holds and takes, what is free in the file, and whether every record is what was written.

    Reads only, beside a running validator too. Exit code 1 where a record or a page is damaged. It compares nothing
    with anything else: dovetail chain verify does.
    """
    from dovetail.validator.maintenance.child import run_in_child
    from dovetail.validator.maintenance.inspection import inspect_store

    path = _store(_settings(config, data_dir))
    with _working() as tell:
        seen = run_in_child(tell, inspect_store, path)
    if as_json:
        tables = {name: table._asdict() for name, table in seen.tables.items()}
        print_json({"sound": seen.sound, **seen._asdict(), "tables": tables, "bytes_per_million": per_million(seen)})
    else:
        show(seen, path)
    if not seen.sound:
        damaged = sum(table.damaged for table in seen.tables.values())
        raise Refused(
            f"the store at {shown(path)} is damaged: {damaged} records, {len(seen.faults)} faults of pages."
            " `dovetail chain verify` names them; stop the validator, then `dovetail store repair`, or restore a backup"
        )


@app.command(epilog=examples("dovetail store backup /backups/ledger-2", "dovetail store backup ./b --json"))
def backup(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="TARGET", parser=some_path, help="The folder to make; nothing may be there yet.", show_default=False
        ),
    ],
    config: ConfigFile = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Copy the ledger as of its newest block, beside a running validator too.

    The copy is consistent and holds no free pages. It gets its name when it is whole and on disk. Exit code 1 where a
    record is damaged: then the copy is kept as TARGET.damaged. The node's key is no part of it: keep that by itself.
    """
    from dovetail.validator.maintenance.copies import backup as back_up

    path = _store(_settings(config, data_dir))
    removed: list[Path] = []
    with _working() as tell:
        held, made = back_up(path, target.absolute(), tell, _finish, removed)
    _tell_removed(removed)
    if as_json:
        print_json({"target": str(made), **_fields(held)})
    else:
        typer.echo(f"backed up blocks 0 to {held.block_num}, {held.transactions} transactions, {mib(held.data_bytes)}")
        typer.echo(f"block {held.block_num}: {held.block_id}")
    if held.damage:
        raise Refused(
            f"the store at {shown(path)} is damaged, and so is the copy: {held.damage}. The copy is kept as"
            f" {shown(made)}; rely on earlier backups. `dovetail chain verify` names what is damaged; stop the"
            " validator, then `dovetail store repair`, or restore a backup"
        )


@app.command(epilog=examples("dovetail store restore /backups/ledger-2 --data-dir ./ledger"))
def restore(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", parser=some_path, help="The folder of a backup.", show_default=False),
    ],
    config: ConfigFile = None,
    data_dir: DataDir = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Verify the whole chain before it is put in place.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Put a backup into a data folder that has no store, verified as dovetail chain verify does.

    Whatever came after the backup's block is not in it. The node's key is not either.
    """
    from dovetail.common.files import make_private_dir
    from dovetail.validator.maintenance.copies import restore as put_back

    settings = _settings(config, data_dir)
    make_private_dir(settings.validator.data_dir)
    removed: list[Path] = []
    with _working() as tell:
        held = put_back(source.absolute(), _store(settings), tell, _finish, removed, verify=verify)
    _tell_removed(removed)
    if not verify:
        note("NOT verified, as --no-verify says: `dovetail chain verify` tells whether it is sound")
    if as_json:
        print_json({"verified": verify, **_fields(held)})
    else:
        typer.echo(f"restored blocks 0 to {held.block_num}, {held.transactions} transactions, {mib(held.data_bytes)}")
        typer.echo(f"block {held.block_num}: {held.block_id}")
        if not settings.validator.key_file.exists():
            note(f"a validator needs its key, which is in no backup: {shown(settings.validator.key_file)}")


@app.command(epilog=examples("dovetail store compact", "dovetail store compact --data-dir ./ledger"))
def compact(config: ConfigFile = None, data_dir: DataDir = None, as_json: Json = False) -> None:
    """Write the ledger's file anew without its free pages, compare it with the old one, and let it take its place.

    While no validator runs. Needs as much free space as the ledger itself. A kill leaves the old file or the new one,
    never none. A damaged ledger is refused.
    """
    from dovetail.validator.maintenance.copies import compact as make_smaller

    removed: list[Path] = []
    path = _store(_settings(config, data_dir))
    with _working() as tell:
        done = make_smaller(path, tell, _finish, removed)
    _tell_removed(removed)
    if as_json:
        print_json(done._asdict())
    else:
        typer.echo(f"from {mib(done.before_bytes)} to {mib(done.after_bytes)}")


@app.command(
    epilog=examples("dovetail store prune --depth 1000", "dovetail store prune --depth 2 && dovetail store compact")
)
def prune(
    depth: Annotated[int, typer.Option("--depth", min=2, metavar="BLOCKS", help="How many of the newest states stay.")],
    config: ConfigFile = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Remove old states: blocks, batches, transactions and receipts stay, and so does the newest state.

    While no validator runs; a running one prunes by itself with state_depth_blocks in its configuration. The space is
    used again; dovetail store compact gives it back to the disk. Killed, it has pruned a part. Exit code 1 where a
    record of what is left is damaged.
    """
    from dovetail.validator.maintenance.child import run_in_child
    from dovetail.validator.maintenance.pruning import prune as remove_states

    settings = _settings(config, data_dir)
    path = _store(settings)
    with _working() as tell:
        done = run_in_child(tell, remove_states, path, settings.validator.limits, depth)
    if as_json:
        print_json({**done._asdict(), "damage": done.damage._asdict()})
    else:
        typer.echo(
            f"{done.nodes} nodes removed; the states after blocks {done.states_from} to {done.head_num} are there"
        )
    if done.damage.records:
        raise Refused(
            f"pruned, but the store at {shown(path)} is damaged: {done.damage}. `dovetail chain verify` names what is"
            " damaged; `dovetail store repair`, or restore a backup"
        )


@app.command(epilog=examples("dovetail store repair", "dovetail store repair --truncate-to 1200"))
def repair(
    config: ConfigFile = None,
    data_dir: DataDir = None,
    truncate_to: Annotated[
        int | None,
        typer.Option(
            "--truncate-to", min=0, metavar="BLOCK", help="Keep blocks 0 to BLOCK alone; later ones are gone then."
        ),
    ] = None,
    processes: Processes = 0,
    as_json: Json = False,
) -> None:
    """Make a damaged ledger's state, indexes and statuses anew from its blocks, batches and receipts.

    While no validator runs. Single wrong bits are mended, whatever else proves itself is taken, and the whole is
    verified before it takes the place of the damaged file, which is kept. What is lost is said, with the block.
    """
    from dovetail.validator.maintenance.repair import BehindHead
    from dovetail.validator.maintenance.repair import repair as make_anew

    settings = _settings(config, data_dir)
    path = _store(settings)
    removed: list[Path] = []
    try:
        with _working() as tell:
            done = make_anew(path, settings.validator.limits, truncate_to, processes, tell, _finish, removed)
    except BehindHead as refused:
        raise typer.BadParameter(str(refused), param_hint="--truncate-to") from None
    _tell_removed(removed)
    rebuilt = done.rebuilt
    if rebuilt.dropped:
        note(
            f"{rebuilt.dropped} blocks after block {rebuilt.blocks - 1} are gone, as --truncate-to says: clients were"
            " told that what is in them is committed"
        )
    if as_json:
        ended = [str(at) for at in done.ended_at]
        print_json(
            {**rebuilt._asdict(), "ended_at": ended, "was_sound": done.was_sound, "damaged_file": str(done.kept)}
        )
        return
    for title, lines in (
        ("mended", rebuilt.mended),
        ("let go", rebuilt.let_go),
        ("not read, it ends the process", [str(at) for at in done.ended_at]),
    ):
        for line in lines[:_NOTES_SHOWN_MAX]:
            typer.echo(f"{title}: {printable(line)}")
        if len(lines) > _NOTES_SHOWN_MAX:
            typer.echo(f"{title}: {len(lines) - _NOTES_SHOWN_MAX} more")
    typer.echo(f"blocks 0 to {rebuilt.blocks - 1}, {rebuilt.transactions} transactions rebuilt and verified")
    typer.echo(f"state root {rebuilt.state_root_hash}")
    if done.was_sound:
        typer.echo(
            "no damage was found: each record of the former file fits its checksum, each page its place; its state and"
            " indexes were made anew and not compared: dovetail chain verify does"
        )
    kind = "former" if done.was_sound else "damaged"
    typer.echo(f"the {kind} file is {shown(done.kept)}: remove it when you need it no more")


def _settings(config: Path | None, data_dir: Path | None) -> "Config":
    from dovetail.cli.commands.parts import load_config
    from dovetail.node.config import Flag

    return load_config(config, {"validator.data_dir": Flag("--data-dir", data_dir and str(data_dir))})


def _store(settings: "Config") -> Path:
    from dovetail.node.genesis import STORE_NAME

    return settings.validator.data_dir.absolute() / STORE_NAME


def _finish() -> None:
    """Ctrl-C comes too late up to the process's end: what was made has its name in a moment, and it must say so."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _working() -> "Iterator[OnStep]":
    """A bar for each part of the work. What fails is raised as Refused."""
    from dovetail.validator.maintenance.child import Ended
    from dovetail.validator.maintenance.repair import CannotRepair
    from dovetail.validator.store import StorageFailed

    try:
        with progress_bar("") as bar:
            yield _Bars(bar).tell
    except (StorageFailed, CannotRepair) as failure:
        raise Refused(str(failure)) from None
    except OSError as error:
        # A path that no system takes, or that nobody may look into.
        raise Refused(f"{str(error.filename or '')[:_PATH_SHOWN_MAX]}: {error.strerror}") from None
    except Ended as ended:
        raise Refused(
            f"the process that read the store was ended ({ended}): where nobody did that, pages of its file are"
            " damaged. Stop the validator, then `dovetail store repair`, or restore a backup"
        ) from None


class _Bars:
    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._title = ""
        self._task: Any = None

    def tell(self, step: "Step") -> None:
        if step.title != self._title:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._title = step.title
            self._task = self._bar.add_task(step.title, total=step.total, words="")
        self._bar.update(self._task, completed=step.done, total=step.total)
        self._bar.refresh()


def _fields(held: Any) -> dict[str, Any]:
    return {name: getattr(held, name) for name in held.__struct_fields__}


def _tell_removed(removed: list[Path]) -> None:
    for path in removed:
        note(f"removed {shown(path)}, which a run that was killed had left")
