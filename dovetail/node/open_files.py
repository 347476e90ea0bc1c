"""The limit of open files: as many sockets as the system lets this process have, and a word when that is few."""

import contextlib
import resource
from collections.abc import Callable
from typing import Final

ENOUGH: Final = 12_000
"""Ten thousand clients that wait, each on a socket, and room for what else a process holds open."""

_SYSTEMS_OWN_MAX: Final = 10_240
"""What macOS allows (OPEN_MAX) where it calls the hard limit unlimited."""


def raise_open_files_limit(on_low: Callable[[int], None]) -> int:
    """Raise the soft limit to the hard one; the soft limit from here on, which processes started later inherit.

    ``on_low`` is told that limit when it is below ``ENOUGH``.
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
