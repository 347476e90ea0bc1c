"""The refusal that the command line, the client and the benchmark share, and the exit codes."""

from typing import ClassVar, Final

FAILED: Final = 1
WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130
"""128 and the number of SIGINT."""


class Refused(Exception):
    """A request that cannot be carried out, which is no bug; the text gives the reason and the values."""

    exit_code: ClassVar[int] = FAILED
    """The exit code of the command line."""
