"""``validator``, ``rest-api`` and ``processor``: one part of the node each, in the foreground, for real deployments."""

import asyncio
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dovetail.commands.options import ConfigFile, DataDir, examples, not_empty, some_path
from dovetail.errors import Refused
from dovetail.logs import LogFormat, LogLevel
from dovetail.notify import Notifier, watch_lifeline

if TYPE_CHECKING:
    from dovetail.config import Config, Flag
    from processor_sdk.handler import TransactionHandler

_LogFormat = Annotated[
    LogFormat, typer.Option("--log-format", envvar="DOVETAIL_LOG_FORMAT", help="How log lines on stderr look.")
]
_LogLevel = Annotated[
    LogLevel, typer.Option("--log-level", envvar="DOVETAIL_LOG_LEVEL", help="The least important lines to log.")
]
_INTERRUPTED: Final = 130
_MISTAKES: Final = (ImportError, SyntaxError, NameError, AttributeError, TypeError, ValueError)
"""What a mistake in a handler's module raises when it is imported, or the handler made."""

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
    log_format: _LogFormat = LogFormat.CONSOLE,
    log_level: _LogLevel = LogLevel.INFO,
) -> None:
    """Run a validator: it orders, executes, stores and answers.

    Values come from --config, then the environment (DOVETAIL_VALIDATOR_BIND, DOVETAIL_LIMITS_BODY_BYTES_MAX, …), then
    flags; the later wins.
    """
    from dovetail.config import Flag
    from dovetail.keys import load_signer

    settings = _load(
        config,
        {
            "validator.data_dir": Flag("--data-dir", data_dir and str(data_dir)),
            "validator.key_file": Flag("--key-file", key_file and str(key_file)),
            "validator.bind": Flag("--bind", bind),
        },
    ).validator
    load_signer(settings.key_file)
    log, notifier = _start("validator", log_format, log_level)
    from validator.node import CannotStart, serve

    _run(
        lambda on_ready, on_waiting: serve(settings, on_ready=on_ready, on_waiting=on_waiting),
        log,
        notifier,
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
    log_format: _LogFormat = LogFormat.CONSOLE,
    log_level: _LogLevel = LogLevel.INFO,
) -> None:
    """Run a REST API in front of a validator. It keeps no state: any number may run.

    Values come from --config, then the environment (DOVETAIL_REST_API_BIND, DOVETAIL_REST_API_TRUSTED_PROXIES, …), then
    flags; the later wins.
    """
    from dovetail.config import Flag

    settings = _load(
        config, {"rest_api.bind": Flag("--bind", bind), "rest_api.validator": Flag("--validator", validator)}
    ).rest_api
    log, notifier = _start("rest-api", log_format, log_level)
    from rest_api.app import serve

    _run(
        lambda on_ready, on_waiting: serve(settings, on_ready=on_ready, on_waiting=on_waiting),
        log,
        notifier,
        settings.bind,
        OSError,
        ValueError,
    )


def processor(
    handlers: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:HANDLER",
            callback=not_empty,
            help="Handler classes, as in families.intkey.handler:IntkeyHandler.",
        ),
    ],
    config: ConfigFile = None,
    connect: Annotated[
        str | None,
        typer.Option("--connect", metavar="ENDPOINT", help="The validator. Default: tcp://127.0.0.1:4004."),
    ] = None,
    max_occupancy: Annotated[
        int | None,
        typer.Option("--max-occupancy", metavar="N", help="Transactions to take at once. Default: 512."),
    ] = None,
    log_format: _LogFormat = LogFormat.CONSOLE,
    log_level: _LogLevel = LogLevel.INFO,
) -> None:
    """Run a transaction processor with one or more handlers.

    Modules are looked for in the current folder too. It ends in order on SIGTERM or Ctrl-C: no new work, what is in
    flight is finished.
    """
    from dovetail.config import Flag

    settings = _load(
        config,
        {
            "processor.connect": Flag("--connect", connect),
            "processor.max_occupancy": Flag("--max-occupancy", max_occupancy),
        },
    ).processor
    made = [_make_handler(named) for named in handlers]
    log, notifier = _start("processor", log_format, log_level)
    from processor_sdk.runtime import TransactionProcessor

    def on_ready() -> None:
        notifier.ready()
        log.info("ready", connect=settings.connect, handlers=handlers)

    runtime = TransactionProcessor(settings.connect, max_occupancy=settings.max_occupancy, on_ready=on_ready)
    for handler in made:
        runtime.add_handler(handler)
    notifier.status(f"the validator at {settings.connect}")
    try:
        runtime.run()
    except ValueError as error:
        raise Refused(str(error)) from None
    notifier.stopping()


def add_to(app: typer.Typer) -> None:
    """Put these commands into the command line."""
    app.command(
        epilog=examples("dovetail validator --config node.toml", "dovetail validator --bind tcp://0.0.0.0:4004")
    )(validator)
    app.command(
        "rest-api",
        epilog=examples("dovetail rest-api", "dovetail rest-api --bind 0.0.0.0:80 --validator tcp://node-1:4004"),
    )(rest_api)
    app.command(
        epilog=examples(
            "dovetail processor families.intkey.handler:IntkeyHandler",
            "dovetail processor my_family:MyHandler --connect tcp://node-1:4004",
        )
    )(processor)


def _load(config_file: Path | None, flags: dict[str, "Flag"]) -> "Config":
    from dovetail.config import load

    return load(config_file=config_file, environ=os.environ, flags=flags)


def _start(name: str, log_format: LogFormat, level: LogLevel) -> tuple[Any, Notifier]:
    """Logging, the ties to whoever started this process, and its share of the system's open files."""
    import structlog

    from dovetail.logs import configure
    from dovetail.open_files import ENOUGH, raise_open_files_limit

    configure(log_format, level)
    log = structlog.get_logger().bind(part=name)
    watch_lifeline(os.environ)
    raise_open_files_limit(
        lambda limit: log.warning(
            "few files may be open at one time: each client needs one", limit=limit, enough=ENOUGH
        )
    )
    return log, Notifier.from_environment(os.environ)


def _run(serve: Serve, log: Any, notifier: Notifier, bind: str, *refusals: type[Exception]) -> None:
    """Serve until SIGTERM or SIGINT, then end in order; a second signal ends the process at once.

    ``refusals``: how ``serve`` says that it cannot run with what it was given. Raises Refused.
    """
    from prometheus_client import disable_created_metrics

    # A sample beside every counter and histogram that nobody asks for: a third of what /metrics would hold.
    disable_created_metrics()  # type: ignore[no-untyped-call]

    def on_ready() -> None:
        notifier.ready()
        log.info("ready", bind=bind)

    def on_waiting(what: str) -> None:
        notifier.status(what)
        log.info("waiting", for_what=what)

    async def until_signalled() -> signal.Signals | None:
        loop = asyncio.get_running_loop()
        serving = asyncio.create_task(serve(on_ready, on_waiting))
        received: list[signal.Signals] = []

        def on_signal(number: signal.Signals) -> None:
            received.append(number)
            for handled in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(handled)
                signal.signal(handled, signal.SIG_DFL)
            notifier.stopping()
            serving.cancel()

        for handled in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(handled, on_signal, handled)
        try:
            await serving
        except asyncio.CancelledError:
            if not received:
                raise
        return received[0] if received else None

    try:
        ended_by = asyncio.run(until_signalled())
    except refusals as error:
        raise Refused(getattr(error, "strerror", None) or str(error)) from None
    if ended_by is signal.SIGINT:
        raise typer.Exit(_INTERRUPTED)


def _make_handler(named: str) -> "TransactionHandler":
    from processor_sdk.handler import TransactionHandler

    module_name, colon, attribute = named.partition(":")
    if not (module_name and colon and attribute):
        raise Refused(f"{named!r} names no handler: MODULE:HANDLER, as in families.intkey.handler:IntkeyHandler")
    # As `python -m` has it: a family under development lies where its author stands.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except _MISTAKES as error:
        raise Refused(f"cannot import {module_name} for {named}: {_mistake(error)}") from None
    kind = getattr(module, attribute, None)
    if not (isinstance(kind, type) and issubclass(kind, TransactionHandler)):
        known = [
            name
            for name, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, TransactionHandler) and value is not TransactionHandler
        ]
        raise Refused(
            f"{module_name} has no handler class {attribute}; it has {', '.join(sorted(known)) or 'none at all'}"
        )
    try:
        return kind()
    except _MISTAKES as error:
        raise Refused(f"{named} cannot be made: {_mistake(error)}") from None


def _mistake(error: Exception) -> str:
    """What an author did wrong, in one line, with the place where it came up."""
    message = " ".join(str(error).split())
    if isinstance(error, (ModuleNotFoundError, SyntaxError)):
        # A SyntaxError names its place itself, and a module that is not there has none.
        return message
    # The author's own line: not the one here that asked, nor the check that the base class made of it.
    checks = (__file__, sys.modules["processor_sdk.handler"].__file__)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename not in checks]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {message}{place}"
