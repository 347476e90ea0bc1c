"""Runs one part of a node in the foreground: its log, its reports to the supervisor, its signals.

What each part serves is in ``dovetail.cli.commands.validator``, ``rest_api`` and ``processor``.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final, NamedTuple, Protocol

import structlog
import typer
from prometheus_client import disable_created_metrics

from dovetail.common.errors import INTERRUPTED, Refused
from dovetail.node.log_lines import LogLines
from dovetail.node.logs import LogFormat, LogLevel, configure
from dovetail.node.notify import Notifier, watch_lifeline
from dovetail.node.open_files import OpenFiles, ensure_open_files
from dovetail.node.signals import end_within, ending_signals, handle_ending_signals

END_S_MAX: Final = 12.0
"""How long a part takes to end after a signal; less than a supervisor waits before it kills the part."""

LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", envvar="DOVETAIL_LOG_FORMAT", help="Format of log lines on stderr.")
]
LogLevelOption = Annotated[
    LogLevel, typer.Option("--log-level", envvar="DOVETAIL_LOG_LEVEL", help="The least important lines to log.")
]


class Serve(Protocol):
    """Serves until cancelled. Calls ``on_ready`` when it is ready, ``on_waiting`` with the reason for a wait."""

    def __call__(
        self, *, on_ready: Callable[[], None], on_waiting: Callable[[str], None]
    ) -> Coroutine[Any, Any, None]: ...


class StartedPart(NamedTuple):
    """What every part of a node needs before it serves."""

    log: Any
    notifier: Notifier
    lines: LogLines


def start_part(name: str, log_format: LogFormat, level: LogLevel, files: OpenFiles) -> StartedPart:
    """Configure logging, watch the supervisor's lifeline and raise the limit of open files. Raises Refused."""
    lines = configure(log_format, level)
    log = structlog.get_logger().bind(part=name)
    watch_lifeline(os.environ)
    ensure_open_files(
        name, files, lambda limit, why: log.warning("few files may be open at one time", limit=limit, reason=why)
    )
    return StartedPart(log, Notifier.from_environment(os.environ), lines)


def run_part(part: StartedPart, bind: str, serve: Serve, *refusals: type[Exception]) -> None:
    """Serve until an ending signal, then end in order within END_S_MAX; a second signal ends the process at once.

    ``refusals``: the exceptions by which ``serve`` rejects its configuration. Raises Refused for these, and Exit with
    130 after SIGINT.
    """
    # The _created samples, which nobody uses, would be a third of /metrics.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    log, notifier, lines = part

    def on_ready() -> None:
        notifier.ready()
        log.info("ready", bind=bind)

    def on_waiting(reason: str) -> None:
        notifier.status(reason)
        log.info("waiting", for_what=reason)

    async def serve_until_signal() -> signal.Signals | None:
        serving = asyncio.create_task(serve(on_ready=on_ready, on_waiting=on_waiting))
        reporting = asyncio.create_task(_report_alive(notifier))
        received: list[signal.Signals] = []

        def on_signal(number: signal.Signals) -> None:
            received.append(number)
            restore()
            end_within(END_S_MAX)
            for each in ending_signals():
                signal.signal(each, signal.SIG_DFL)
            notifier.stopping()
            serving.cancel()

        restore = handle_ending_signals(on_signal, END_S_MAX)
        try:
            await serving
        except asyncio.CancelledError:
            if not received:
                raise
        finally:
            reporting.cancel()
        return received[0] if received else None

    try:
        with lines.behind_loop() as runner:
            ended_by = runner.run(serve_until_signal())
    except refusals as error:
        raise Refused(getattr(error, "strerror", None) or str(error)) from None
    if ended_by is signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


async def _report_alive(notifier: Notifier) -> None:
    """Report from the event loop, so that a service manager restarts a process whose loop hangs."""
    while notifier.alive_s is not None:
        notifier.alive()
        await asyncio.sleep(notifier.alive_s)
