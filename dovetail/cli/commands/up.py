"""``up``, ``genesis`` and ``keygen``: from nothing to a running node."""

import asyncio
import os
import secrets
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dovetail.cli.options import ConfigFile, DataDir, Insecure, Json, Key, examples, not_empty
from dovetail.cli.submit import url_argument
from dovetail.common.errors import Refused
from dovetail.common.home import HOME_VARIABLE, shown
from dovetail.common.output import note, print_json, printable, program, say_on, unread

if TYPE_CHECKING:
    from dovetail.node.config import Config
    from dovetail.node.genesis import Prepared
    from dovetail.node.supervisor import Part

_INTERRUPTED: Final = 130
_LINE_BYTES_MAX: Final = 65_536


def up(
    config: ConfigFile = None,
    data_dir: DataDir = None,
    validator: Annotated[
        str | None,
        typer.Option(
            "--validator", metavar="ENDPOINT", help="The validator's endpoint. Default: tcp://127.0.0.1:4004."
        ),
    ] = None,
    rest: Annotated[
        str | None,
        typer.Option("--rest", metavar="HOST:PORT", help="The REST API's address. Default: 127.0.0.1:8080."),
    ] = None,
    no_families: Annotated[
        bool, typer.Option("--no-families", help="Start without the bundled intkey and settings processors.")
    ] = False,
    family: Annotated[
        list[str] | None,
        typer.Option(
            "--family",
            metavar="MODULE:HANDLER",
            callback=not_empty,
            help="Run a processor of this handler too; may be repeated. The current folder is looked in as well.",
        ),
    ] = None,
    key: Key = None,
    logs: Annotated[bool, typer.Option("--logs", help="Show the parts' log lines here too, on stderr.")] = False,
    insecure: Insecure = None,
) -> None:
    """Run a whole node: validator, REST API, the bundled processors and those of --family.

    The first run makes your key, the node's key and the genesis. A part that dies is started again; Ctrl-C ends all in
    order, a second Ctrl-C at once. Log files are in the data folder, under logs.
    """
    from dovetail.node.config import Flag, load
    from dovetail.node.notify import watch_lifeline
    from dovetail.node.parts import SETTINGS, reachable
    from dovetail.node.reachability import check_access_policies
    from dovetail.node.taken import refuse_if_taken

    flags = {
        "validator.data_dir": Flag("--data-dir", data_dir and str(data_dir.expanduser().absolute())),
        "validator.bind": Flag("--validator", validator),
        "rest_api.bind": Flag("--rest", rest),
        "validator.insecure": Flag("--insecure", insecure),
    }
    watch_lifeline(os.environ)
    settings = load(config_file=config, environ=os.environ, flags=flags)
    processors = _processors(family or [], bundled=not no_families)
    check_access_policies(settings)
    refuse_if_taken(settings.validator.data_dir, settings.validator.bind, settings.rest_api.bind)
    _warn_if_open(settings)
    _prepare(settings, key)
    if no_families:
        note(
            "no processor is started; a new ledger needs this one to make its genesis block, from another terminal: "
            f"{program()} processor {SETTINGS} --connect {reachable(settings.validator.bind)}"
        )
    parts = _parts(settings, config, processors)
    ended_by = asyncio.run(_supervise(settings, parts, key, families=not no_families, show_logs=logs))
    if ended_by is signal.SIGINT:
        raise typer.Exit(_INTERRUPTED)


def genesis(config: ConfigFile = None, data_dir: DataDir = None, key: Key = None, as_json: Json = False) -> None:
    """Make a node's first files without starting it: keys where they are missing, and the genesis.

    The genesis makes the key the one that may change the ledger's settings. A folder that has a ledger is refused.
    """
    from dovetail.node.config import Flag, load
    from dovetail.node.genesis import has_ledger

    flag = Flag("--data-dir", data_dir and str(data_dir))
    settings = load(config_file=config, environ=os.environ, flags={"validator.data_dir": flag})
    folder = settings.validator.data_dir
    if has_ledger(folder):
        raise Refused(f"{shown(folder)} has a ledger already: its genesis stays as it is")
    prepared = _prepare(settings, key, quiet=as_json)
    if as_json:
        print_json({"genesis": str(prepared.genesis), "authorized_key": prepared.authorized_key})


def keygen(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME|PATH]", callback=not_empty, help="A name under ~/.dovetail/keys, or a file."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing key.")] = False,
    connection: Annotated[
        bool,
        typer.Option(
            "--connection",
            help="Make a connection key, for a validator, processor or REST API (docs/how-to/keys.md). A name is then"
            " one under ~/.dovetail/connection-keys.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Make a key pair: the private key readable by you alone, the public key beside it."""
    from dovetail.common.keys import CONNECTION_KEYS, create_connection_key, create_key, key_path

    if connection:
        files = create_connection_key(key_path(name, os.environ, CONNECTION_KEYS), overwrite=force)
    else:
        files = create_key(key_path(name, os.environ), overwrite=force)
    if as_json:
        print_json({"private_key_file": str(files.private), "public_key": files.public_key})
    else:
        typer.echo(f"private key {shown(files.private)}\npublic key  {files.public_key} in {shown(files.public)}")


def add_to(app: typer.Typer) -> None:
    """Put these commands into the command line."""
    app.command(
        epilog=examples(
            "dovetail up",
            "dovetail up --data-dir ./ledger --rest 0.0.0.0:8080",
            "dovetail up --logs --family tickets.handler:Handler",
        )
    )(up)
    app.command(epilog=examples("dovetail genesis", "dovetail genesis --data-dir ./ledger --key alice"))(genesis)
    app.command(
        epilog=examples(
            "dovetail keygen",
            "dovetail keygen alice",
            "dovetail keygen ./keys/node.priv",
            "dovetail keygen --connection intkey-1",
        )
    )(keygen)


def _warn_if_open(settings: "Config") -> None:
    """The validator's log says it too, which nobody sees here."""
    from dovetail.validator.transport.access import is_local

    config = settings.validator
    if config.insecure and not is_local(config.bind):
        note(
            f"the validator's port {config.bind} is open to the network: whoever reaches it can judge transactions."
            " docs/how-to/keys.md says how to let in only whom you know"
        )


def _prepare(settings: "Config", key: str | None, *, quiet: bool = False) -> "Prepared":
    """Make what is missing, and tell what was made unless ``quiet``."""
    from dovetail.common.keys import key_path
    from dovetail.node.genesis import prepare

    config, user_key = settings.validator, key_path(key, os.environ)
    prepared = prepare(config.data_dir, config.key_file, user_key, make_user_key=key is None)
    if not quiet:
        _tell_prepared(prepared, user_key)
    return prepared


def _tell_prepared(prepared: "Prepared", user_key: Path) -> None:
    for path in prepared.keys:
        stranger = path == user_key and prepared.genesis is None
        but = "; it may not change this ledger's settings unless it is authorized" if stranger else ""
        note(f"made the key {shown(path)}{but}")
    if prepared.genesis is not None:
        note(f"made the genesis {shown(prepared.genesis)}; settings are changed with key {prepared.authorized_key}")


def _processors(named: Sequence[str], *, bundled: bool) -> list[tuple[str, str]]:
    """The processors to start: the name of the part, and MODULE:HANDLER. Raises Refused for one that cannot run."""
    from dovetail.node.handlers import make_handlers
    from dovetail.node.parts import INTKEY, SETTINGS, part_name

    started = {"intkey": INTKEY, "settings": SETTINGS} if bundled else {}
    judged_by: dict[tuple[str, str], str] = {}
    for handler in [*started.values(), *named]:
        made = make_handlers(handler)
        for one in made:
            family = (one.family_name, one.family_version)
            if family in judged_by:
                first = judged_by[family]
                without = "; leave the bundled ones out with --no-families" if first in (INTKEY, SETTINGS) else ""
                raise Refused(f"{handler} is for {' '.join(family)}, which {first} judges already{without}")
            judged_by[family] = handler
        if handler in named:
            started[part_name(made[0].family_name, started)] = handler
    return list(started.items())


def _parts(settings: "Config", config_file: Path | None, processors: list[tuple[str, str]]) -> list["Part"]:
    from dovetail.node.parts import node_parts

    return node_parts(
        data_dir=settings.validator.data_dir,
        key_file=settings.validator.key_file,
        validator_bind=settings.validator.bind,
        rest_bind=settings.rest_api.bind,
        processors=processors,
        extra=[] if config_file is None else ["--config", str(config_file)],
        insecure=settings.validator.insecure,
    )


async def _supervise(
    settings: "Config", parts: list["Part"], key: str | None, *, families: bool, show_logs: bool
) -> signal.Signals:
    from rich.console import Console

    from dovetail.node.notify import Notifier
    from dovetail.node.supervisor import Events, supervise

    class Unread(Console):
        """The node and its log files go on where nobody reads along any more."""

        def on_broken_pipe(self) -> None:
            unread(sys.stderr)

    console = Unread(stderr=True, highlight=False, markup=False)
    notifier = Notifier.from_environment(os.environ)
    spinner = console.status("starting")

    def waiting(parts: Mapping[str, str]) -> None:
        text = "waiting for " + ", ".join(
            f"{name} ({printable(what)})" if what else name for name, what in parts.items()
        )
        notifier.status(text)
        if console.is_terminal:
            spinner.update(text)
        else:
            note(text)

    def ready() -> None:
        spinner.stop()
        for line in _ready_lines(settings, key, families):
            say_on(sys.stdout, line)
        notifier.ready()

    def told(line: str) -> None:
        console.print(line, soft_wrap=True)

    unfinished: dict[str, bytes] = {}

    def output(name: str, content: bytes) -> None:
        if show_logs:
            *lines, rest = (unfinished.get(name, b"") + content).split(b"\n")
            unfinished[name] = rest[-_LINE_BYTES_MAX:]
            for line in lines:
                console.print(f"{name:9} | {printable(line.decode(errors='replace'))}", soft_wrap=True)

    if console.is_terminal:
        spinner.start()
    try:
        ended_by = await supervise(
            parts,
            settings.validator.data_dir / "logs",
            Events(waiting, ready, told, output),
        )
    finally:
        spinner.stop()
    return ended_by


def _ready_lines(settings: "Config", key: str | None, families: bool) -> list[str]:
    """One line that says where everything is, and three that can be typed as they stand."""
    from dovetail.node.parts import reachable

    url = f"http://{reachable(settings.rest_api.bind)}"
    command, home, at = program(), os.environ.get(HOME_VARIABLE), url_argument(url)
    signed = f" --key {shlex.quote(key)}" if key else ""
    # The user's key is found through this variable, which another terminal may not have.
    prefix = f"{HOME_VARIABLE}={shlex.quote(str(Path(home).absolute()))} " if home else ""
    # A fresh name: what is set once cannot be set again, and this line must work on an old ledger too.
    name = f"hello-{secrets.token_hex(3)}"
    tries = [
        f"{prefix}{command} intkey set {name} 42 --wait 30{signed}{at}",
        f"{command} intkey show {name}{at}",
        f"{command} block list{at}",
    ]
    if not families:
        tries = [f"{command} {kind} list{at}" for kind in ("block", "transaction", "state")]
    config = settings.validator
    return [
        f"ready  REST API {url}  validator {config.bind}  data {shown(config.data_dir)}",
        *(f"try    {line}" for line in tries),
    ]
