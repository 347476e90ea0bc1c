"""A process that follows the notify protocol, for the supervisor's tests: ``fake_part.py NAME JOURNAL BEHAVIOUR``.

It writes ``NAME EVENT`` lines to the journal (a file or a FIFO, open until the process ends), and follows BEHAVIOUR.
"""

import os
import signal
import subprocess
import sys

from dovetail.node.notify import Notifier, watch_lifeline


def main(name: str, journal: str, behaviour: str) -> int:
    with open(journal, "a", buffering=1) as book:
        # Blocked before any thread starts, so that only the wait below receives it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        notifier = Notifier.from_environment(os.environ)
        watch_lifeline(os.environ)
        if behaviour == "refuse":
            print("a line before", file=sys.stderr)
            print("dovetail: the port is in use", file=sys.stderr)
            return 1
        if behaviour == "parent":
            code = "import signal; print('born', flush=True); signal.pause()"
            grandchild = subprocess.Popen(
                [sys.executable, "-c", code], stdout=subprocess.PIPE, pass_fds=(book.fileno(),)
            )
            assert grandchild.stdout is not None
            grandchild.stdout.readline()
        if behaviour == "waits":
            notifier.status("a friend")
        book.write(f"{name} started {os.getpid()}\n")
        notifier.ready()
        signal.sigwait({signal.SIGTERM})
        while behaviour == "stubborn":
            print("not yet", flush=True)
            signal.sigwait({signal.SIGTERM})
        book.write(f"{name} ended\n")
        return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
