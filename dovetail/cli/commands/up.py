"""``up``: from nothing to a running node."""

import asyncio
import os
import secrets
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from dovetail.cli.commands.genesis import prepare_node
from dovetail.cli.options import ConfigFile, DataDir, Insecure, Key, examples, text_option
from dovetail.cli.submit import url_argument
from dovetail.common.errors import INTERRUPTED, Refused
from dovetail.common.home import HOME_VARIABLE, shown
from dovetail.common.output import note, note_on, printable, program
from dovetail.ledger.settings import FamilyVersion
from dovetail.node.config import Config, Flag, load
from dovetail.node.handlers import make_handlers
from dovetail.node.judged_here import judged_here
from dovetail.node.notify import Notifier, watch_lifeline
from dovetail.node.parts import INTKEY, node_parts, part_name, reachable
from dovetail.node.preflight import check_access, refuse_if_in_use
from dovetail.node.supervisor import Events, Part, supervise
from dovetail.streams import unblock
from dovetail.validator.transport.access import is_local

app = typer.Typer()

_LINE_BYTES_MAX: Final = 65_536
_THE_NODE: Final = "the node itself"


@app.command(
    epilog=examples(
        "dovetail up",
        "dovetail up --data-dir ./ledger --rest 0.0.0.0:8080",
        "dovetail up --logs --family tickets.handler:Handler",
    )
)
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
        str | None, typer.Option("--rest", metavar="HOST:PORT", help="The REST API's address. Default: 127.0.0.1:8080.")
    ] = None,
    no_families: Annotated[
        bool, typer.Option("--no-families", help="Start without the bundled intkey processor.")
    ] = False,
    family: Annotated[
        list[str] | None,
        text_option(
            "--family",
            "MODULE:HANDLER",
            "Run a processor of this handler too; may be repeated. The current folder is searched as well.",
        ),
    ] = None,
    key: Key = None,
    logs: Annotated[bool, typer.Option("--logs", help="Show the parts' log lines here too, on stderr.")] = False,
    insecure: Insecure = None,
) -> None:
    """Run a whole node: validator, REST API, the bundled processor of intkey and those of --family.

    The first run makes your key, the node's key and the genesis. A part that dies is started again. Ctrl-C ends all
    parts in order, a second Ctrl-C at once. Log files are in the data folder, under logs.
    """
    flags = {
        "validator.data_dir": Flag("--data-dir", data_dir and data_dir.expanduser().absolute()),
        "validator.bind": Flag("--validator", validator),
        "rest_api.bind": Flag("--rest", rest),
        "validator.insecure": Flag("--insecure", insecure),
    }
    unblock()
    watch_lifeline(os.environ)
    settings = load(config_file=config, flags=flags)
    processors = _processors(family or [], bundled=not no_families)
    check_access(settings)
    refuse_if_in_use(settings.validator.data_dir, settings.validator.bind, settings.rest_api.bind)
    if settings.validator.insecure and not is_local(settings.validator.bind):
        # The validator's own warning is only in its log.
        note(
            f"the validator's port {settings.validator.bind} is open to the network: every process that reaches it can"
            " execute transactions. docs/how-to/keys.md says how to let in only known processes"
        )
    prepare_node(settings, key)
    parts = node_parts(
        data_dir=settings.validator.data_dir,
        key_file=settings.validator.key_file,
        validator_bind=settings.validator.bind,
        rest_bind=settings.rest_api.bind,
        processors=processors,
        extra=[] if config is None else ["--config", str(config)],
        insecure=settings.validator.insecure,
    )
    ended_by = asyncio.run(_supervise(settings, parts, key, families=not no_families, show_logs=logs))
    if ended_by is signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


def _processors(named: Sequence[str], *, bundled: bool) -> list[tuple[str, str]]:
    """The processors to start: name of the part and MODULE:HANDLER. Raises Refused for one that cannot run."""
    started = {"intkey": INTKEY} if bundled else {}
    handler_of = dict.fromkeys(judged_here().namespaces, _THE_NODE)
    for handler in [*started.values(), *named]:
        made = make_handlers(handler)
        for one in made:
            family = FamilyVersion(one.family_name, one.family_version)
            if family in handler_of:
                first = handler_of[family]
                without = "; leave the bundled one out with --no-families" if first == INTKEY else ""
                raise Refused(f"{handler} is for {family}, which {first} executes already{without}")
            handler_of[family] = handler
        if handler in named:
            started[part_name(made[0].family_name, started)] = handler
    return list(started.items())


async def _supervise(
    settings: Config, parts: list[Part], key: str | None, *, families: bool, show_logs: bool
) -> signal.Signals:
    """Supervise the parts, and report to the terminal and to a service manager. Returns the signal that ended them."""
    console = Console(stderr=True, highlight=False, markup=False)
    notifier = Notifier.from_environment(os.environ)
    spinner = console.status("starting")

    def on_waiting(parts: Mapping[str, str]) -> None:
        text = "waiting for " + ", ".join(
            f"{name} ({printable(reason)})" if reason else name for name, reason in parts.items()
        )
        notifier.status(text)
        if console.is_terminal:
            spinner.update(text)
        else:
            note(text)

    def on_ready() -> None:
        spinner.stop()
        for line in _ready_lines(settings, key, families):
            note_on(sys.stdout, line)
        notifier.ready()

    def on_notice(line: str) -> None:
        console.print(line, soft_wrap=True)

    unfinished: dict[str, bytes] = {}

    def on_output(name: str, content: bytes) -> None:
        if show_logs:
            *lines, rest = (unfinished.get(name, b"") + content).split(b"\n")
            unfinished[name] = rest[-_LINE_BYTES_MAX:]
            for line in lines:
                console.print(f"{name:9} | {printable(line.decode(errors='replace'))}", soft_wrap=True)

    if console.is_terminal:
        spinner.start()
    try:
        return await supervise(
            parts, settings.validator.data_dir / "logs", Events(on_waiting, on_ready, on_notice, on_output)
        )
    finally:
        spinner.stop()


def _ready_lines(settings: Config, key: str | None, families: bool) -> list[str]:
    """A line with all addresses, and three commands that can be typed as they are."""
    url = f"http://{reachable(settings.rest_api.bind)}"
    command, home, at = program(), os.environ.get(HOME_VARIABLE), url_argument(url)
    signed = f" --key {shlex.quote(key)}" if key else ""
    # Another terminal may not have this variable, and needs it to find the user's key.
    prefix = f"{HOME_VARIABLE}={shlex.quote(str(Path(home).absolute()))} " if home else ""
    # A fresh name, because a name can be set only once and the line must work on an old ledger too.
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
