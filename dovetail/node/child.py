"""Starts one supervised process with a notify socket and a lifeline, and reads its output.

``dovetail.node.supervisor`` decides what follows from an event.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from dovetail.node.notify import LIFELINE_FD, NOTIFY_SOCKET, NotifyListener

_READ_BYTES: Final = 65_536
_LAST_READS_MAX: Final = 16
"""How often the output of an ended process is read: a pipe holds no more, unless a process that it left behind writes
on."""
_TAIL_BYTES: Final = 4_096


class Child:
    """A process in a session of its own, so that a terminal's Ctrl-C reaches the supervisor alone."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        socket_path: Path,
        on_notify: Callable[[dict[str, str]], None],
        on_output: Callable[[bytes], None],
    ) -> None:
        """Start the process; an event loop must run.

        ``on_notify`` receives the variables of each datagram, ``on_output`` the bytes of stdout and stderr. Raises
        OSError.
        """
        self._loop = asyncio.get_running_loop()
        self._tail = b""
        self._on_notify = on_notify
        self._on_output = on_output
        with contextlib.ExitStack() as undo:
            self._listener = NotifyListener(socket_path)
            undo.callback(self._listener.close)
            self._output, output_end = os.pipe()
            undo.callback(os.close, self._output)
            lifeline_end, self._lifeline = os.pipe()
            undo.callback(os.close, self._lifeline)
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output_end,
                    stderr=output_end,
                    start_new_session=True,
                    pass_fds=(lifeline_end,),
                    env={**os.environ, NOTIFY_SOCKET: str(socket_path), LIFELINE_FD: str(lifeline_end)},
                )
            finally:
                os.close(output_end)
                os.close(lifeline_end)
            undo.pop_all()
        os.set_blocking(self._output, False)
        self._loop.add_reader(self._output, self._read_output)
        self._loop.add_reader(self._listener, self._read_notifications)

    @property
    def pid(self) -> int:
        """The id of the process and of its group."""
        return self._process.pid

    @property
    def last_line(self) -> str:
        """The last line that the process wrote; empty if it wrote nothing."""
        lines = [line for line in self._tail.decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else ""

    def wait(self) -> int:
        """Block until the process ends; never call this in the loop's thread.

        Returns the exit code, or minus the signal that ended the process.
        """
        return self._process.wait()

    def finish(self) -> None:
        """Clean up after the end: kill what the process left running, read its last output, close the descriptors."""
        self.kill()
        self._loop.remove_reader(self._listener)
        self._read_notifications()
        self._listener.close()
        for _ in range(_LAST_READS_MAX):
            if not self._read_output():
                break
        self._loop.remove_reader(self._output)
        os.close(self._output)
        os.close(self._lifeline)

    def terminate(self) -> None:
        """Send SIGTERM."""
        if self._process.returncode is None:
            self._process.terminate()

    def kill(self) -> None:
        """Kill the process and everything it started."""
        # An empty group does not exist; some systems do not permit signals to a group of zombies.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _read_notifications(self) -> None:
        for variables in self._listener.drain():
            self._on_notify(variables)

    def _read_output(self) -> bool:
        """Read once, so that the loop has time for other events. Returns whether there was output."""
        try:
            content = os.read(self._output, _READ_BYTES)
        except BlockingIOError:
            return False
        if not content:
            self._loop.remove_reader(self._output)
            return False
        self._tail = (self._tail + content)[-_TAIL_BYTES:]
        self._on_output(content)
        return True
