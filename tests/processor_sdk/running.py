"""Runs a processor with workers, in a thread of the test or as a script."""

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from processor_sdk.runtime import Report, TransactionProcessor
from tests.processor_sdk.router import WAIT_MS
from tests.processor_sdk.worker.worker_family import WorkerHandler

ROOT = Path(__file__).parents[2]


class Running:
    """A processor in a thread of the test. ``reports``: all its reports so far."""

    def __init__(self, url: str, run: dict[str, Any], options: dict[str, Any]) -> None:
        handler = options.pop("handler", WorkerHandler())
        self.reports: queue.Queue[Report] = queue.Queue()
        self._processor = TransactionProcessor(url, **options).add(handler)
        self._thread = threading.Thread(target=self._processor.run, kwargs={"on_report": self.reports.put, **run})
        self._thread.start()

    def wait(self, until: Callable[[Report], bool]) -> Report:
        while not until(report := self.reports.get(timeout=WAIT_MS / 1000)):
            pass
        return report

    def stop(self) -> None:
        self._processor.stop()

    def join(self) -> None:
        self._thread.join(WAIT_MS / 1000)
        assert not self._thread.is_alive()


Start = Callable[..., Running]


def started_script(*command: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, *command], env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
