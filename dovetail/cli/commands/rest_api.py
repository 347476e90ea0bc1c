"""``rest-api``: a REST API in the foreground."""

from functools import partial
from typing import Annotated

import typer

from dovetail.cli.options import ConfigFile, ConnectionKey, ValidatorKey, examples
from dovetail.cli.part import LogFormatOption, LogLevelOption, run_part, start_part
from dovetail.node.config import Flag, load
from dovetail.node.logs import LogFormat, LogLevel
from dovetail.node.open_files import OpenFiles
from dovetail.rest_api.server.app import serve
from dovetail.rest_api.server.connections import DESCRIPTORS_RESERVED

app = typer.Typer()


@app.command(
    "rest-api",
    epilog=examples("dovetail rest-api", "dovetail rest-api --bind 0.0.0.0:80 --validator tcp://node-1:4004"),
)
def rest_api(
    config: ConfigFile = None,
    bind: Annotated[
        str | None, typer.Option("--bind", metavar="HOST:PORT", help="Where to listen. Default: 127.0.0.1:8080.")
    ] = None,
    validator: Annotated[
        str | None,
        typer.Option("--validator", metavar="ENDPOINT", help="The validator. Default: tcp://127.0.0.1:4004."),
    ] = None,
    validator_key: ValidatorKey = None,
    connection_key: ConnectionKey = None,
    log_format: LogFormatOption = LogFormat.CONSOLE,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run a REST API in front of a validator. It keeps no state: any number may run.

    Values come from --config, then the environment (DOVETAIL_REST_API_BIND, DOVETAIL_REST_API_TRUSTED_PROXIES, …), then
    flags; the later wins.
    """
    settings = load(
        config_file=config,
        flags={
            "rest_api.bind": Flag("--bind", bind),
            "rest_api.validator": Flag("--validator", validator),
            "rest_api.validator_key": Flag("--validator-key", validator_key),
            "rest_api.connection_key": Flag("--connection-key", connection_key),
        },
    ).rest_api
    files = OpenFiles(DESCRIPTORS_RESERVED, 1, "rest_api.requests_in_flight_max", settings.requests_in_flight_max)
    part = start_part("rest-api", log_format, log_level, files)
    run_part(part, settings.bind, partial(serve, settings), OSError, ValueError)
