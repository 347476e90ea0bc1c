"""Runs a given proposal: another node's, or a decided one. Decides what the run waits for, and when it starts again.

The verdicts never depend on this node: a decided proposal waits as long as this node lacks a processor for it.
"""

from typing import Final

import structlog

from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.consensus.engine import Proposal
from dovetail.validator.core.journal.block_run import BlockRun
from dovetail.validator.processors.registry import Processors

log = structlog.get_logger("validator.production")

_DOUBLINGS_MAX: Final = 16


class GivenRun:
    """``decided``: whether the network has decided the proposal, so that it must get its verdicts here too."""

    def __init__(self, proposal: Proposal, run: BlockRun, started_ms: int, *, decided: bool) -> None:
        self.proposal = proposal
        self.run = run
        self.started_ms = started_ms
        self.decided = decided
        self._tries = 0
        self._due_ms: int | None = None
        self._needed: dict[FamilyVersion, bool] = {}
        """The families that lacked a processor, and whether the processor must migrate."""

    def lacks(self, processors: Processors) -> tuple[FamilyVersion, ...]:
        """The families for whose processors the proposal waits."""
        return tuple(
            family for family, migration in self._needed.items() if not processors.has(family, migration=migration)
        )

    def waits(self, processors: Processors, now_ms: int) -> bool:
        """Whether the proposal still waits to run again. Restarts the run when the wait is over."""
        if self._due_ms is None:
            return False
        if now_ms < self._due_ms or self.lacks(processors):
            return True
        self._due_ms = None
        self._needed = {}
        self.run.restart()
        return False

    def trouble(self) -> str | None:
        """Names a batch without a verdict and the reason; None if every batch has one."""
        for index, verdict in self.run.withdrawn().items():
            family = f" of {verdict.family}" if verdict.family is not None else ""
            detail = f": {verdict.message}" if verdict.message else ""
            return f"batch {self.run.batches[index].id} has no verdict here: {verdict.reason}{family}{detail}"
        return None

    def try_again(self, now_ms: int, limits: Limits) -> None:
        """Schedule another run: when the missing processors have connected or, if none is missing, after a back-off."""
        withdrawn = self.run.withdrawn()
        self._needed = {
            verdict.family: index in self.run.migrations
            for index, verdict in withdrawn.items()
            if verdict.family is not None and verdict.reason == "waiting_for_processor"
        }
        back_off_ms = 0
        if not self._needed:
            back_off_ms = limits.internal_error_back_off_ms << min(self._tries, _DOUBLINGS_MAX)
            self._tries += 1
        self._due_ms = now_ms + min(back_off_ms, limits.processor_lost_back_off_ms_max)
        log.warning(
            "decided block has no verdict yet",
            height=self.proposal.height, reason=self.trouble(), families=[*map(str, self._needed)],
        )  # fmt: skip
