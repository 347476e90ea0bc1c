"""Raises the limit of open files, because each connection holds one, and checks it against the configured limits."""

import contextlib
import resource
from collections.abc import Callable
from typing import Final, NamedTuple

from dovetail.common.errors import Refused

CONNECTIONS_MIN: Final = 64
"""With room for fewer connections a part refuses to start: it would refuse most clients."""

_HOW: Final = (
    "raise the limit: ulimit -n {files} in the shell that starts it, LimitNOFILE={files} in a unit file,"
    " --ulimit nofile={files} for a container"
)

_SYSTEMS_OWN_MAX: Final = 10_240
"""OPEN_MAX of macOS, which allows no more even if it reports an unlimited hard limit."""


class OpenFiles(NamedTuple):
    """The files that a part may have open: ``own``, and ``each`` for each of its connections or workers.

    ``setting``: the configuration key of their number.
    """

    own: int
    each: int
    setting: str
    number: int

    def of(self, number: int) -> int:
        """How many files that many connections need, or all if ``number`` is more."""
        return self.own + self.each * min(number, self.number)


def ensure_open_files(part: str, needs: OpenFiles, on_low: Callable[[int, str], None]) -> None:
    """Raise the soft limit to the hard one, for this process and those that it starts.

    ``on_low`` is called with the limit and an advice if it is below what ``needs`` says. Raises Refused if it is too
    low to serve at all.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, _SYSTEMS_OWN_MAX), hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY or soft >= (wanted := needs.of(needs.number)):
        return
    why = f"it needs {wanted}: {needs.own} for itself and {needs.each} for each of {needs.setting} = {needs.number}"
    how = _HOW.format(files=wanted)
    if soft < (least := needs.of(CONNECTIONS_MIN)):
        raise Refused(
            f"{part} may have {soft} files open (RLIMIT_NOFILE), and serves with no fewer than {least}: {why}; {how}"
        )
    on_low(soft, f"{why}; {how}, or lower {needs.setting}")
