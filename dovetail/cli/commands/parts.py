"""``validator`` and ``rest-api``: one part of the node each, in the foreground, for real deployments."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from dovetail.cli.options import ConfigFile, ConnectionKey, DataDir, Insecure, ValidatorKey, examples, some_path
from dovetail.common.errors import Refused
from dovetail.node.logs import LogFormat, LogLevel
from dovetail.node.notify import Notifier, watch_lifeline
from dovetail.node.signals import ending_signals

if TYPE_CHECKING:
    from dovetail.node.config import Config, Flag
    from dovetail.node.log_lines import LogLines

LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", envvar="DOVETAIL_LOG_FORMAT", help="How log lines on stderr look.")
]
LogLevelOption = Annotated[
    LogLevel, typer.Option("--log-level", envvar="DOVETAIL_LOG_LEVEL", help="The least important lines to log.")
]
INTERRUPTED: Final = 130

Serve = Callable[[Callable[[], None], Callable[[str], None]], Coroutine[Any, Any, None]]


def validator(
    config: ConfigFile = None,
    data_dir: DataDir = None,
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file",
            metavar="FILE",
            parser=some_path,
            help="The node's key. Default: keys/validator.priv in the data folder.",
        ),
    ] = None,
    bind: Annotated[
        str | None, typer.Option("--bind", metavar="ENDPOINT", help="Where to listen. Default: tcp://127.0.0.1:4004.")
    ] = None,
    connection_key: ConnectionKey = None,
    allowed_keys: Annotated[
        Path | None,
        typer.Option(
            "--allowed-keys",
            metavar="DIR",
            parser=some_path,
            help="Folder with the public keys of those that may connect, in processors and in clients. Default: none.",
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
    from dovetail.common.keys import load_signer
    from dovetail.node.config import Flag
    from dovetail.node.genesis import refuse_lost_key

    settings = load_config(
        config,
        {
            "validator.data_dir": Flag("--data-dir", data_dir and str(data_dir)),
            "validator.key_file": Flag("--key-file", key_file and str(key_file)),
            "validator.bind": Flag("--bind", bind),
            "validator.connection_key": Flag("--connection-key", connection_key and str(connection_key)),
            "validator.allowed_keys": Flag("--allowed-keys", allowed_keys and str(allowed_keys)),
            "validator.insecure": Flag("--insecure", insecure),
        },
    ).validator
    refuse_lost_key(settings.data_dir, settings.key_file)
    load_signer(settings.key_file)
    part = start_part("validator", log_format, log_level)
    from dovetail.validator.collector import collect_seldom
    from dovetail.validator.node import CannotStart, serve

    collect_seldom()
    _run(
        lambda on_ready, on_waiting: serve(settings, on_ready=on_ready, on_waiting=on_waiting),
        part,
        settings.bind,
        CannotStart,
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
    from dovetail.node.config import Flag

    settings = load_config(
        config,
        {
            "rest_api.bind": Flag("--bind", bind),
            "rest_api.validator": Flag("--validator", validator),
            "rest_api.validator_key": Flag("--validator-key", validator_key and str(validator_key)),
            "rest_api.connection_key": Flag("--connection-key", connection_key and str(connection_key)),
        },
    ).rest_api
    part = start_part("rest-api", log_format, log_level)
    from dovetail.rest_api.server.app import serve

    _run(
        lambda on_ready, on_waiting: serve(settings, on_ready=on_ready, on_waiting=on_waiting),
        part,
        settings.bind,
        OSError,
        ValueError,
    )


async def _tell_alive(notifier: Notifier) -> None:
    """As long as the event loop goes round, for a service manager that restarts what does not."""
    while notifier.alive_s is not None:
        notifier.alive()
        await asyncio.sleep(notifier.alive_s)


def add_to(app: typer.Typer) -> None:
    """Put these commands into the command line."""
    app.command(
        epilog=examples(
            "dovetail validator --config node.toml",
            "dovetail validator --bind tcp://10.0.0.4:4004 --connection-key validator.priv --allowed-keys ./allowed",
        )
    )(validator)
    app.command(
        "rest-api",
        epilog=examples("dovetail rest-api", "dovetail rest-api --bind 0.0.0.0:80 --validator tcp://node-1:4004"),
    )(rest_api)


def load_config(config_file: Path | None, flags: dict[str, "Flag"]) -> "Config":
    from dovetail.node.config import load

    return load(config_file=config_file, environ=os.environ, flags=flags)


class StartedPart(NamedTuple):
    """What every part of a node has."""

    log: Any
    notifier: Notifier
    lines: "LogLines"


def start_part(name: str, log_format: LogFormat, level: LogLevel) -> StartedPart:
    """Logging, the ties to whoever started this process, and its share of the system's open files."""
    import structlog

    from dovetail.node.logs import configure
    from dovetail.node.open_files import ENOUGH, raise_open_files_limit

    lines = configure(log_format, level)
    log = structlog.get_logger().bind(part=name)
    watch_lifeline(os.environ)
    raise_open_files_limit(
        lambda limit: log.warning(
            "few files may be open at one time: each client needs one", limit=limit, enough=ENOUGH
        )
    )
    return StartedPart(log, Notifier.from_environment(os.environ), lines)


def _run(serve: Serve, part: StartedPart, bind: str, *refusals: type[Exception]) -> None:
    """Serve until one of ``ending_signals``, then end in order; a second signal ends the process at once.

    ``refusals``: how ``serve`` says that it cannot run with what it was given. Raises Refused.
    """
    from prometheus_client import disable_created_metrics

    # A sample beside every counter and histogram that nobody asks for: a third of what /metrics would hold.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    log, notifier, lines = part
    heeded = ending_signals()

    def on_ready() -> None:
        notifier.ready()
        log.info("ready", bind=bind)

    def on_waiting(what: str) -> None:
        notifier.status(what)
        log.info("waiting", for_what=what)

    async def until_signalled() -> signal.Signals | None:
        loop = asyncio.get_running_loop()
        serving = asyncio.create_task(serve(on_ready, on_waiting))
        living = asyncio.create_task(_tell_alive(notifier))
        received: list[signal.Signals] = []

        def on_signal(number: signal.Signals) -> None:
            received.append(number)
            for handled in heeded:
                loop.remove_signal_handler(handled)
                signal.signal(handled, signal.SIG_DFL)
            notifier.stopping()
            serving.cancel()

        for handled in heeded:
            loop.add_signal_handler(handled, on_signal, handled)
        try:
            await serving
        except asyncio.CancelledError:
            if not received:
                raise
        finally:
            living.cancel()
        return received[0] if received else None

    try:
        with lines.behind_loop() as runner:
            ended_by = runner.run(until_signalled())
    except refusals as error:
        raise Refused(getattr(error, "strerror", None) or str(error)) from None
    if ended_by is signal.SIGINT:
        raise typer.Exit(INTERRUPTED)
