"""What a benchmark is doing, shown while it does it: one bar a step."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_SAMPLE_S: Final = 0.5


class Steps:
    """The steps on one ``Progress``, whose own refreshing must be off."""

    def __init__(self, progress: "Progress") -> None:
        self._progress = progress

    @asynccontextmanager
    async def step(
        self, title: str, total: int | None, at_times: Callable[[], None] = lambda: None
    ) -> AsyncIterator[Callable[[int], None]]:
        """Show a step until it is over or, without a ``total``, until it is advanced; ``at_times``: call it too."""
        task = self._progress.add_task(title, total=total)
        clock = asyncio.create_task(self._tick(at_times))

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

    def _remove(self, task: "TaskID") -> None:
        if task in self._progress.task_ids:
            self._progress.remove_task(task)

    async def _tick(self, at_times: Callable[[], None]) -> None:
        while True:
            at_times()
            # By hand: the thread that does it otherwise takes turns with the sender.
            self._progress.refresh()
            await asyncio.sleep(_SAMPLE_S)
