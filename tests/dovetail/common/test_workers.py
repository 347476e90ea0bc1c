"""Worker processes end with their pool, whatever they are doing."""

import multiprocessing
from multiprocessing.synchronize import Event
from typing import Any

import pytest

from dovetail.common.workers import Workers


class _Interrupted(Exception):
    pass


def _announce(begun: Event) -> None:
    """Never ends."""
    begun.set()
    multiprocessing.Event().wait()


def _interrupt(begun: Any) -> None:
    with Workers(1) as workers:
        workers.submit(_announce, begun)
        begun.wait()
        raise _Interrupted


def test_an_error_ends_them_in_the_middle_of_their_work() -> None:
    others = set(multiprocessing.active_children())
    with multiprocessing.get_context("spawn").Manager() as manager:
        ours = set(multiprocessing.active_children())
        with pytest.raises(_Interrupted):
            _interrupt(manager.Event())
        assert set(multiprocessing.active_children()) <= ours
    assert set(multiprocessing.active_children()) <= others


def test_without_one_they_finish() -> None:
    with Workers(1) as workers:
        done = workers.submit(divmod, 7, 2)
    assert done.result() == (3, 1)
