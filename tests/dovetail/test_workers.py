"""Worker processes end with the work that they were for, whatever they are at."""

import multiprocessing
from multiprocessing.synchronize import Event

import pytest

from dovetail.workers import Workers


class _Interrupted(Exception):
    pass


def _announce(begun: Event) -> None:
    """Never ends."""
    begun.set()
    multiprocessing.Event().wait()


def test_an_error_ends_them_in_the_middle_of_their_work() -> None:
    others = set(multiprocessing.active_children())
    with multiprocessing.get_context("spawn").Manager() as manager:
        ours = set(multiprocessing.active_children())
        begun = manager.Event()
        with pytest.raises(_Interrupted), Workers(1) as workers:
            workers.submit(_announce, begun)  # type: ignore[arg-type]
            begun.wait()
            raise _Interrupted
        assert set(multiprocessing.active_children()) <= ours
    assert set(multiprocessing.active_children()) <= others


def test_without_one_they_finish() -> None:
    with Workers(1) as workers:
        done = workers.submit(divmod, 7, 2)
    assert done.result() == (3, 1)
