"""Starts the command line, ``dovetail.cli.app``."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. ``arguments``: without the program's name; None: the process's."""
    # Imported here, because every worker process that Python spawns imports this module and needs no command line.
    from dovetail.cli.app import run

    return run(sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    sys.exit(main())
