"""How a connection takes its leave: by questions, until the validator has nothing more to say on it.

No sockets: what is waited for, and until when. Who asks is ``processor_sdk.worker.connection``.
"""

import logging
from typing import Final

LEAVE_WAIT_S: Final = 5.0

_log = logging.getLogger(__name__)


class Leave:
    """The unregistration, and then pings, of which one is out at a time. Times are seconds of ``time.monotonic``.

    A validator that speaks the 1.x conversation sends a batch's next transaction when it has the answer to the one
    before: what it has still to say comes before the answer to a ping that was sent after that.
    """

    def __init__(self) -> None:
        self._correlation_id = ""
        self._answered_since = False
        self.until: float | None = None
        """When to give up waiting for the answer to the last question; None where none is waited for."""

    def ask(self, correlation_id: str, now: float) -> None:
        """A question goes out."""
        self._correlation_id = correlation_id
        self._answered_since = False
        self.until = now + LEAVE_WAIT_S

    def task_answered(self) -> None:
        """A task's answer went out: the validator may have something to say to it."""
        self._answered_since = True

    def heard(self, correlation_id: str) -> None:
        """The validator answered a question."""
        if correlation_id == self._correlation_id:
            self.until = None

    def give_up(self, now: float) -> None:
        """Wait no longer for an answer that is overdue."""
        if self.until is not None and self.until <= now:
            _log.warning("the validator has not answered the leave-taking in %s s", LEAVE_WAIT_S)
            self.until = None

    @property
    def asks_again(self) -> bool:
        """Whether, with nothing in flight, there is another question before the end."""
        return self.until is None and self._answered_since
