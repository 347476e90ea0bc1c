"""Shows the steps of a benchmark while it runs: one progress bar a step."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from rich.progress import Progress, TaskID

_SAMPLE_S: Final = 0.5


class ProgressBars:
    """The bars on one ``Progress``, whose own refreshing must be off."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    @asynccontextmanager
    async def step(
        self, title: str, total: int | None, on_tick: Callable[[], None] = lambda: None
    ) -> AsyncIterator[Callable[[int], None]]:
        """Show a step until it ends or, without a ``total``, until it first advances.

        Yields a function that advances the step. ``on_tick``: called twice a second meanwhile.
        """
        task = self._progress.add_task(title, total=total)
        clock = asyncio.create_task(self._tick(on_tick))

        def advance(by: int) -> None:
            if total is None:
                self._remove(task)
            else:
                self._progress.advance(task, by)

        try:
            yield advance
        finally:
            clock.cancel()
            self._remove(task)

    def _remove(self, task: TaskID) -> None:
        if task in self._progress.task_ids:
            self._progress.remove_task(task)

    async def _tick(self, on_tick: Callable[[], None]) -> None:
        while True:
            on_tick()
            # Refreshed here, because a refreshing thread of rich would compete with the sender.
            self._progress.refresh()
            await asyncio.sleep(_SAMPLE_S)
