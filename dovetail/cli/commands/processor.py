"""``processor``: transaction processors in the foreground, for real deployments."""

import functools
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from dovetail.cli.commands.parts import INTERRUPTED, LogFormatOption, LogLevelOption, load_config, start_part
from dovetail.cli.options import ConfigFile, ConnectionKey, ValidatorKey, examples, not_empty
from dovetail.common.errors import Refused
from dovetail.node.handlers import make_handlers
from dovetail.node.logs import LogFormat, LogLevel, configure
from dovetail.node.notify import Notifier

if TYPE_CHECKING:
    from processor_sdk.runtime import Report


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
    validator_key: ValidatorKey = None,
    connection_key: ConnectionKey = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            help="Processes that apply transactions; more than one a core is of no use. Default: 1.",
        ),
    ] = None,
    max_occupancy: Annotated[
        int | None,
        typer.Option("--max-occupancy", metavar="N", help="Transactions that a worker takes at once. Default: 4096."),
    ] = None,
    apply_timeout_ms: Annotated[
        int | None,
        typer.Option(
            "--apply-timeout-ms",
            metavar="MS",
            help="How long one apply may take; then its worker says so and is replaced. Default: 10000.",
        ),
    ] = None,
    memory_mib_max: Annotated[
        int | None,
        typer.Option(
            "--memory-mib-max", metavar="N", help="Address space of each worker, in MiB. Default: 0, no limit."
        ),
    ] = None,
    build_id: Annotated[
        str | None,
        typer.Option(
            "--build-id",
            metavar="TEXT",
            help="Which build this is, as `dovetail processors` shows it. Default: the installed package's version, or"
            " a digest of the handler's module.",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="HOST:PORT", help="Serve /metrics for Prometheus there. Default: nowhere."),
    ] = None,
    log_format: LogFormatOption = LogFormat.CONSOLE,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run a transaction processor with one or more handlers.

    Modules are looked for in the current folder too. It ends in order on SIGTERM or Ctrl-C: no new work, what is in
    flight is finished; another one later ends it at once. Values come from --config, then the environment
    (DOVETAIL_PROCESSOR_WORKERS, …), then flags; the later wins.
    """
    from dovetail.node.config import Flag

    settings = load_config(
        config,
        {
            "processor.connect": Flag("--connect", connect),
            "processor.validator_key": Flag("--validator-key", validator_key and str(validator_key)),
            "processor.connection_key": Flag("--connection-key", connection_key and str(connection_key)),
            "processor.workers": Flag("--workers", workers),
            "processor.max_occupancy": Flag("--max-occupancy", max_occupancy),
            "processor.apply_timeout_ms": Flag("--apply-timeout-ms", apply_timeout_ms),
            "processor.memory_mib_max": Flag("--memory-mib-max", memory_mib_max),
            "processor.build_id": Flag("--build-id", build_id),
            "processor.metrics": Flag("--metrics", metrics),
        },
    ).processor
    made = [handler for named in handlers for handler in make_handlers(named)]
    log, notifier, _ = start_part("processor", log_format, log_level)
    from processor_sdk.runtime import CannotStart, TransactionProcessor

    listeners: list[Callable[[Report], None]] = [
        Teller(notifier, lambda: log.info("ready", connect=settings.connect, handlers=handlers), settings.connect)
    ]
    if settings.metrics:
        from dovetail.node.processor_metrics import ProcessorMetrics

        listeners.append(ProcessorMetrics().serve(settings.metrics))

    def on_report(report: "Report") -> None:
        for listener in listeners:
            listener(report)

    try:
        runtime = TransactionProcessor(
            settings.connect,
            workers=settings.workers,
            max_occupancy=settings.max_occupancy,
            apply_timeout_ms=settings.apply_timeout_ms,
            memory_mib_max=settings.memory_mib_max or None,
            build_id=settings.build_id or None,
            connection_key=settings.connection_key or None,
            validator_key=settings.validator_key or None,
        )
        for handler in made:
            runtime.add(handler)
        ended_by = runtime.run(
            on_report=on_report,
            report_s_max=min(1.0, notifier.alive_s or 1.0),
            configure_logging=functools.partial(configure, log_format, log_level),
        )
    except (ValueError, TypeError, CannotStart) as error:
        raise Refused(str(error)) from None
    if ended_by is signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


class Teller:
    """Tells whoever started this process how far the workers are, and that they live."""

    def __init__(self, notifier: Notifier, on_ready: Callable[[], None], validator: str) -> None:
        self._notifier = notifier
        self._on_ready = on_ready
        self._validator = validator
        self._ready = False
        self._stopping = False
        self._status = ""

    def __call__(self, report: "Report") -> None:
        # The supervisor reports while it goes round: it ends what is silent itself, so its own life is what counts.
        self._notifier.alive()
        if report.stopping and not self._stopping:
            self._stopping = True
            self._notifier.stopping()
        workers = len(report.workers)
        if not self._ready and report.registered == workers:
            self._ready = True
            self._notifier.ready()
            self._on_ready()
        status = f"{report.registered} of {workers} workers registered at {self._validator}"
        if status != self._status and not report.stopping:
            self._status = status
            self._notifier.status(status)


def add_to(app: typer.Typer) -> None:
    """Put this command into the command line."""
    app.command(
        epilog=examples(
            "dovetail processor families.intkey.handler:IntkeyHandler",
            "dovetail processor my_family:MyHandler --connect tcp://node-1:4004 --workers 4",
            'dovetail processor my_family:MyHandler --build-id "$(git describe --always --dirty)"',
        )
    )(processor)
