"""``processor``: transaction processors in the foreground, for real deployments."""

import functools
import signal
from collections.abc import Callable
from typing import Annotated, Final

import typer

from dovetail.cli.options import ConfigFile, ConnectionKey, ValidatorKey, examples, text_argument
from dovetail.cli.part import LogFormatOption, LogLevelOption, start_part
from dovetail.common.errors import INTERRUPTED, Refused
from dovetail.node.config import Flag, load
from dovetail.node.handlers import make_handlers
from dovetail.node.logs import LogFormat, LogLevel, configure
from dovetail.node.notify import Notifier
from dovetail.node.open_files import OpenFiles
from dovetail.node.processor_metrics import ProcessorMetrics
from processor_sdk.runtime import CannotStart, Report, TransactionProcessor

app = typer.Typer()

_OWN_FILES: Final = 32
"""Standard files, sockets of the supervisor and of /metrics, and what a start of a worker needs for a moment."""

_FILES_A_WORKER: Final = 4


@app.command(
    epilog=examples(
        "dovetail processor families.intkey.handler:IntkeyHandler",
        "dovetail processor my_family:MyHandler --connect tcp://node-1:4004 --workers 4",
        'dovetail processor my_family:MyHandler --build-id "$(git describe --always --dirty)"',
    )
)
def processor(
    handlers: Annotated[
        list[str], text_argument("MODULE:HANDLER", "Handler classes, as in families.intkey.handler:IntkeyHandler.")
    ],
    config: ConfigFile = None,
    connect: Annotated[
        str | None, typer.Option("--connect", metavar="ENDPOINT", help="The validator. Default: tcp://127.0.0.1:4004.")
    ] = None,
    validator_key: ValidatorKey = None,
    connection_key: ConnectionKey = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            help="Processes that apply transactions; more than one per core are useless. Default: 1.",
        ),
    ] = None,
    max_occupancy: Annotated[
        int | None,
        typer.Option("--max-occupancy", metavar="N", help="Transactions that a worker holds at once. Default: 4096."),
    ] = None,
    apply_timeout_ms: Annotated[
        int | None,
        typer.Option(
            "--apply-timeout-ms",
            metavar="MS",
            help="Time limit of one apply; a worker that exceeds it reports that and is replaced. Default: 10000.",
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
            help="Name of this build, which `dovetail processors` shows. Default: the installed package's version, or"
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

    Modules are searched in the current folder too. SIGTERM and Ctrl-C end the processor in order: it takes no new work
    and finishes transactions in flight. A second signal ends it at once. Values come from --config, then the
    environment (DOVETAIL_PROCESSOR_WORKERS, …), then flags; the later wins.
    """
    settings = load(
        config_file=config,
        flags={
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
    files = OpenFiles(_OWN_FILES, _FILES_A_WORKER, "processor.workers", settings.workers)
    log, notifier, _ = start_part("processor", log_format, log_level, files)
    listeners: list[Callable[[Report], None]] = [
        StatusReporter(
            notifier, lambda: log.info("ready", connect=settings.connect, handlers=handlers), settings.connect
        )
    ]
    if settings.metrics:
        listeners.append(ProcessorMetrics().serve(settings.metrics))

    def on_report(report: Report) -> None:
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


class StatusReporter:
    """Reports to the supervisor how many workers are registered, and that this process is alive."""

    def __init__(self, notifier: Notifier, on_ready: Callable[[], None], validator: str) -> None:
        self._notifier = notifier
        self._on_ready = on_ready
        self._validator = validator
        self._ready = False
        self._stopping = False
        self._status = ""

    def __call__(self, report: Report) -> None:
        # Each report shows that the workers' supervisor is alive. Silent workers are ended by that supervisor.
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
