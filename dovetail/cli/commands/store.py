"""``store``: commands for the ledger's file as a whole. ``dovetail.validator.maintenance`` does the work."""

import signal
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dovetail.cli.maintenance import store_work
from dovetail.cli.options import ConfigFile, DataDir, Json, Processes, examples, number_option, some_path
from dovetail.cli.printing import print_json
from dovetail.cli.store_report import mib, per_million, print_check
from dovetail.common.errors import Refused
from dovetail.common.files import make_private_dir
from dovetail.common.home import shown
from dovetail.common.output import note, printable
from dovetail.node.config import Config, Flag, load
from dovetail.node.genesis import STORE_NAME
from dovetail.validator.maintenance.child import run_in_child
from dovetail.validator.maintenance.copies import backup as back_up
from dovetail.validator.maintenance.copies import compact as make_smaller
from dovetail.validator.maintenance.copies import restore as put_back
from dovetail.validator.maintenance.inspection import inspect_store
from dovetail.validator.maintenance.pruning import prune as remove_states
from dovetail.validator.maintenance.repair import BehindHead
from dovetail.validator.maintenance.repair import repair as make_anew

app = typer.Typer(
    help="The ledger's file: check, backup, restore, compact, prune, repair. More: docs/how-to/operations.md",
    no_args_is_help=True,
)

_NOTES_SHOWN_MAX: Final = 20


@app.command(epilog=examples("dovetail store check", "dovetail store check --data-dir ./ledger --json"))
def check(config: ConfigFile = None, data_dir: DataDir = None, as_json: Json = False) -> None:
    """Show the entries and size of each table, the free space in the file, and whether each record fits its checksum.

    Reads only, even beside a running validator. Exit code 1 if a record or a page is damaged. Records are not compared
    with each other: dovetail chain verify does that.
    """
    path = _store(_settings(config, data_dir))
    with store_work(path) as tell:
        seen = run_in_child(tell, inspect_store, path)
    if as_json:
        tables = {name: table._asdict() for name, table in seen.tables.items()}
        print_json({"sound": seen.sound, **seen._asdict(), "tables": tables, "bytes_per_million": per_million(seen)})
    else:
        print_check(seen, path)
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
            metavar="TARGET", parser=some_path, help="The folder to make; it must not exist.", show_default=False
        ),
    ],
    config: ConfigFile = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Copy the ledger as of its newest block, even beside a running validator.

    The copy is consistent, holds no free pages, and gets its name when it is complete and on disk. Exit code 1 if a
    record is damaged; the copy is then kept as TARGET.damaged. The copy lacks the node's key: keep that separately.
    """
    path = _store(_settings(config, data_dir))
    removed: list[Path] = []
    with store_work(path) as tell:
        held, made = back_up(path, target.absolute(), tell, _finish, removed)
    _note_removed(removed)
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
        Path, typer.Argument(metavar="SOURCE", parser=some_path, help="The folder of a backup.", show_default=False)
    ],
    config: ConfigFile = None,
    data_dir: DataDir = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Verify the whole chain before it is put in place.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Put a backup into a data folder that has no store, verified as dovetail chain verify does.

    A backup holds neither later blocks nor the node's key.
    """
    settings = _settings(config, data_dir)
    make_private_dir(settings.validator.data_dir)
    path = _store(settings)
    removed: list[Path] = []
    with store_work(path) as tell:
        held = put_back(source.absolute(), path, tell, _finish, removed, verify=verify)
    _note_removed(removed)
    if not verify:
        note("NOT verified, as --no-verify says: `dovetail chain verify` shows whether it is sound")
    if as_json:
        print_json({"verified": verify, **_fields(held)})
    else:
        typer.echo(f"restored blocks 0 to {held.block_num}, {held.transactions} transactions, {mib(held.data_bytes)}")
        typer.echo(f"block {held.block_num}: {held.block_id}")
        if not settings.validator.key_file.exists():
            note(f"a validator needs its key, which is in no backup: {shown(settings.validator.key_file)}")


@app.command(epilog=examples("dovetail store compact", "dovetail store compact --data-dir ./ledger"))
def compact(config: ConfigFile = None, data_dir: DataDir = None, as_json: Json = False) -> None:
    """Copy the ledger's file without its free pages, compare the copy with the file, and replace the file by it.

    No validator may run meanwhile. Needs as much free space as the ledger itself. A kill leaves the old file or the new
    one. A damaged ledger is refused.
    """
    removed: list[Path] = []
    path = _store(_settings(config, data_dir))
    with store_work(path) as tell:
        done = make_smaller(path, tell, _finish, removed)
    _note_removed(removed)
    if as_json:
        print_json(done._asdict())
    else:
        typer.echo(f"from {mib(done.before_bytes)} to {mib(done.after_bytes)}")


@app.command(
    epilog=examples("dovetail store prune --depth 1000", "dovetail store prune --depth 2 && dovetail store compact")
)
def prune(
    depth: Annotated[int, number_option("--depth", 2, None, "How many of the newest states stay.", "BLOCKS")],
    config: ConfigFile = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Remove old states: blocks, batches, transactions and receipts stay, and so does the newest state.

    No validator may run meanwhile; a running one prunes itself if state_depth_blocks is configured. The ledger reuses
    the freed space; dovetail store compact returns it to the disk. A kill leaves some old states. Exit code 1 if a
    remaining record is damaged.
    """
    settings = _settings(config, data_dir)
    path = _store(settings)
    with store_work(path) as tell:
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
        number_option("--truncate-to", 0, None, "Keep only blocks 0 to BLOCK; later blocks are lost.", "BLOCK"),
    ] = None,
    processes: Processes = 0,
    as_json: Json = False,
) -> None:
    """Rebuild a damaged ledger's state, indexes and statuses from its blocks, batches and receipts.

    No validator may run meanwhile. Single wrong bits are corrected, other records are used if they are provably sound,
    and the result is verified before it replaces the damaged file, which is kept. Losses are listed with their blocks.
    """
    settings = _settings(config, data_dir)
    path = _store(settings)
    removed: list[Path] = []
    try:
        with store_work(path) as tell:
            done = make_anew(path, settings.validator.limits, truncate_to, processes, tell, _finish, removed)
    except BehindHead as refused:
        raise typer.BadParameter(str(refused), param_hint="--truncate-to") from None
    _note_removed(removed)
    rebuilt = done.rebuilt
    if rebuilt.dropped:
        note(
            f"{rebuilt.dropped} blocks after block {rebuilt.blocks - 1} are lost, as --truncate-to says, although"
            " clients were told that their batches are committed"
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
            "no damage was found: each record of the former file fits its checksum, each page its place. Its state and"
            " indexes were rebuilt without a comparison, which dovetail chain verify makes"
        )
    kind = "former" if done.was_sound else "damaged"
    typer.echo(f"the {kind} file is {shown(done.kept)}: remove it when you no longer need it")


def _settings(config: Path | None, data_dir: Path | None) -> Config:
    return load(config_file=config, flags={"validator.data_dir": Flag("--data-dir", data_dir)})


def _store(settings: Config) -> Path:
    return settings.validator.data_dir.absolute() / STORE_NAME


def _finish() -> None:
    """Ignore Ctrl-C from now on: the result is about to get its final name, and the command must report this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _fields(held: Any) -> dict[str, Any]:
    return {name: getattr(held, name) for name in held.__struct_fields__}


def _note_removed(removed: list[Path]) -> None:
    for path in removed:
        note(f"removed {shown(path)}, the remains of a killed run")
