"""Raises the limit of open files, because each client holds a socket."""

import contextlib
import resource
from collections.abc import Callable
from typing import Final

ENOUGH: Final = 12_000
"""Enough descriptors for ten thousand waiting clients and the other files of a process."""

_SYSTEMS_OWN_MAX: Final = 10_240
"""OPEN_MAX of macOS, which allows no more even if it reports an unlimited hard limit."""


def raise_open_files_limit(on_low: Callable[[int], None]) -> int:
    """Raise the soft limit to the hard one, for this process and those that it starts. Returns the new soft limit.

    ``on_low`` is called with that limit if it is below ``ENOUGH``.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, _SYSTEMS_OWN_MAX), hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft != resource.RLIM_INFINITY and soft < ENOUGH:
        on_low(soft)
    return soft
