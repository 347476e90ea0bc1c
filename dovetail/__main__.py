"""Starts the command line, ``dovetail.cli.app``."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code. ``arguments``: without the program's name; None for the process's own."""
    # Every worker process that Python spawns imports this module again, and needs no command line.
    from dovetail.cli.app import run

    return run(sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    sys.exit(main())
