"""The program's one way in and out: exit codes, and the one catch-all. What there is to do lives elsewhere."""

import sys
from collections.abc import Sequence
from typing import Final

from dovetail.common.errors import Refused

_FAILED: Final = 1
_WRONG_USAGE: Final = 2
_INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code. Raises SystemExit where the command itself ended with one.

    ``arguments``: without the program's name; None for the process's own.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    for argument in arguments:
        # Python stands surrogates in for bytes that are no text; they fail later, wherever they are encoded first.
        if any("\ud800" <= character <= "\udfff" for character in argument):
            _say(f"the argument {argument!a} is no valid text (UTF-8)")
            return _WRONG_USAGE
    try:
        from dovetail.cli.app import app

        app(args=list(arguments), prog_name="dovetail")
    except Refused as error:
        _say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:
        if "--debug" in arguments:
            raise
        _say(f"unexpected {type(error).__name__}: {error}; {_where_the_trace_is(error)}")
        return _FAILED
    return 0


def _say(text: str) -> None:
    # It may quote what a server answered or a file holds.
    from dovetail.common.output import note, printable_lines

    note(f"dovetail: {printable_lines(text)}")


def _where_the_trace_is(error: Exception) -> str:
    from dovetail.common.home import shown
    from dovetail.node.logs import write_trace

    file = write_trace(error)
    return f"the stack trace is in {shown(file)}" if file else "the stack trace could not be written; --debug shows it"


if __name__ == "__main__":
    sys.exit(main())
