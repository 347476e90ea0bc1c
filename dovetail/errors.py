"""The one refusal of the command line and the client: a reason to tell, not a bug to trace."""


class Refused(Exception):
    """What was asked for cannot be done; the text says why, with the values. The command line ends with exit code 1."""
