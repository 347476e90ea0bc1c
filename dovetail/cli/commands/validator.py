"""``validator``: a validator in the foreground."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from dovetail.cli.options import ConfigFile, ConnectionKey, DataDir, Insecure, examples, path_option
from dovetail.cli.part import LogFormatOption, LogLevelOption, run_part, start_part
from dovetail.common.keys import load_signer
from dovetail.node.config import Flag, load
from dovetail.node.genesis import refuse_lost_key
from dovetail.node.judged_here import judged_here
from dovetail.node.logs import LogFormat, LogLevel
from dovetail.node.open_files import OpenFiles
from dovetail.validator.collector import collect_seldom
from dovetail.validator.node import CannotStart, serve

app = typer.Typer()

_OWN_FILES: Final = 64
"""Standard files, the store's, those of libzmq and of the event loop, and some to spare."""

_FILES_A_VERIFIER: Final = 4
"""Two of each verifier, and two more while it is replaced."""


@app.command(
    epilog=examples(
        "dovetail validator --config node.toml",
        "dovetail validator --bind tcp://10.0.0.4:4004 --connection-key validator.priv --allowed-keys ./allowed",
    )
)
def validator(
    config: ConfigFile = None,
    data_dir: DataDir = None,
    key_file: Annotated[
        Path | None, path_option("--key-file", "The node's key. Default: keys/validator.priv in the data folder.")
    ] = None,
    bind: Annotated[
        str | None, typer.Option("--bind", metavar="ENDPOINT", help="Where to listen. Default: tcp://127.0.0.1:4004.")
    ] = None,
    connection_key: ConnectionKey = None,
    allowed_keys: Annotated[
        Path | None,
        path_option(
            "--allowed-keys",
            "Folder with the public keys of those that may connect, in processors and in clients. Default: none.",
            "DIR",
        ),
    ] = None,
    insecure: Insecure = None,
    log_format: LogFormatOption = LogFormat.CONSOLE,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run a validator: it orders, executes, stores and answers.

    Values come from --config, then the environment (DOVETAIL_VALIDATOR_BIND, DOVETAIL_LIMITS_BODY_BYTES_MAX, …), then
    flags; the later wins.
    """
    settings = load(
        config_file=config,
        flags={
            "validator.data_dir": Flag("--data-dir", data_dir),
            "validator.key_file": Flag("--key-file", key_file),
            "validator.bind": Flag("--bind", bind),
            "validator.connection_key": Flag("--connection-key", connection_key),
            "validator.allowed_keys": Flag("--allowed-keys", allowed_keys),
            "validator.insecure": Flag("--insecure", insecure),
        },
    ).validator
    refuse_lost_key(settings.data_dir, settings.key_file)
    # Loaded before the log is configured, because the refusal of a key is for the terminal.
    load_signer(settings.key_file)
    limits = settings.limits
    own = _OWN_FILES + _FILES_A_VERIFIER * (settings.verifier_processes or os.cpu_count() or 1)
    files = OpenFiles(own, 1, "limits.connections_max", limits.connections_max)
    part = start_part("validator", log_format, log_level, files)
    collect_seldom()
    run_part(part, settings.bind, partial(serve, settings, judged_here()), CannotStart)
