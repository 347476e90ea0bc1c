"""Workers without processes."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from dovetail.common.workers import Workers


class InlineWorkers(Workers):
    """Work at once, in this process."""

    def __init__(self, count: int = 1) -> None:
        self.count = count

    def submit(self, work: Callable[..., Any], *arguments: Any, **named: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(work(*arguments, **named))
        return done
