"""Runs work on a ledger's store with a progress bar, and turns failures of the work into refusals."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from dovetail.cli.printing import progress_bar
from dovetail.common.errors import Refused
from dovetail.common.home import shown
from dovetail.validator.maintenance.child import Ended, OnStep, Step
from dovetail.validator.maintenance.repair import CannotRepair
from dovetail.validator.store import StorageFailed

_PATH_SHOWN_MAX: Final = 400


@contextmanager
def store_work(store: Path) -> Iterator[OnStep]:
    """A progress bar for the steps of work on ``store``. Raises Refused for the failures of the work."""
    try:
        with progress_bar("") as bar:
            yield _Bars(bar).show
    except (StorageFailed, CannotRepair) as failure:
        raise Refused(str(failure)) from None
    except OSError as error:
        # An invalid path, or a folder without permission.
        raise Refused(f"{str(error.filename or '')[:_PATH_SHOWN_MAX]}: {error.strerror}") from None
    except Ended as ended:
        raise Refused(
            f"the process that read the store at {shown(store)} was ended ({ended}): unless somebody ended it, pages of"
            " its file are damaged. Stop the validator, then `dovetail store repair`, or restore a backup"
        ) from None


class _Bars:
    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._title = ""
        self._task: Any = None

    def show(self, step: Step) -> None:
        if step.title != self._title:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._title = step.title
            self._task = self._bar.add_task(step.title, total=step.total, words="")
        self._bar.update(self._task, completed=step.done, total=step.total)
        self._bar.refresh()
