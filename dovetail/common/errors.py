"""The one refusal of the command line and the client: a reason to tell, not a bug to trace."""

from typing import ClassVar


class Refused(Exception):
    """What was asked for cannot be done; the text says why, with the values."""

    exit_code: ClassVar[int] = 1
    """What the command line ends with."""
