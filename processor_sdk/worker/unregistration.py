"""The end of a connection: unregister, then ping until the validator has no more tasks for it.

This module decides what to wait for, and until when. ``processor_sdk.worker.connection`` sends the messages.
"""

import logging
from typing import Final

LEAVE_WAIT_S: Final = 5.0

_log = logging.getLogger(__name__)


class Unregistration:
    """One unregister request and then pings, one at a time. Times are seconds of ``time.monotonic``.

    In the 1.x conversation a validator sends a batch's next transaction after the answer to the one before. It sends
    that transaction before it answers a ping that follows the answer.
    """

    def __init__(self) -> None:
        self._correlation_id = ""
        self._answered_since = False
        self.until: float | None = None
        """When to stop waiting for the latest request's answer; None if no answer is due."""

    def on_sent(self, correlation_id: str, now: float) -> None:
        """Note that an unregister request or a ping was sent."""
        self._correlation_id = correlation_id
        self._answered_since = False
        self.until = now + LEAVE_WAIT_S

    def on_task_answered(self) -> None:
        """Note that a task's answer was sent, to which the validator may reply with another task."""
        self._answered_since = True

    def on_answer(self, correlation_id: str) -> None:
        if correlation_id == self._correlation_id:
            self.until = None

    def give_up(self, now: float) -> None:
        """Stop waiting for an overdue answer."""
        if self.until is not None and self.until <= now:
            _log.warning("the validator has not answered the unregistration in %s s", LEAVE_WAIT_S)
            self.until = None

    @property
    def ping_due(self) -> bool:
        """Whether one more ping is needed, if no task is in flight."""
        return self.until is None and self._answered_since
