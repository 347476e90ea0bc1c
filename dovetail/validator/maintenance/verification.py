"""Verifies a store for ``dovetail chain verify``, to be run in a child process, because a damaged page may kill it."""

import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

from dovetail.ledger.ids import BlockId
from dovetail.validator.history.verification.chain import Verification
from dovetail.validator.history.verification.findings import Findings
from dovetail.validator.history.verification.pages import check_pages
from dovetail.validator.history.verification.tables import check_tables
from dovetail.validator.history.verification.workers import CheckerDied, Checkers
from dovetail.validator.maintenance.child import OnStep, Step
from dovetail.validator.store import StorageFailed, StoreReader

_STEP_S: Final = 0.2


class VerifiedRange(NamedTuple):
    """The verified blocks and facts about them; the fields are those of ``Verification``."""

    first: int
    last: int
    last_id: BlockId | None
    pages_walked: bool
    states_from: int
    sealed_by: Counter[str]

    @staticmethod
    def of(verification: Verification) -> "VerifiedRange":
        return VerifiedRange(*(getattr(verification, name) for name in VerifiedRange._fields))


class Verified(NamedTuple):
    """``seconds``: the time for the blocks, without tables and pages."""

    seen: VerifiedRange
    findings: Findings
    blocks: int
    transactions: int
    seconds: float


def begin(
    reader: StoreReader, checkers: Any, findings: Findings, first: int, last: int | None, path: Path
) -> Verification:
    """Check tables and pages, and return the verification of the blocks, which is not yet begun.

    Raises StorageFailed, also if the blocks do not exist.
    """
    verification = Verification(reader, checkers, findings, first, last)
    head = verification.head
    if head < 0:
        raise StorageFailed(f"the store at {path} holds no block yet")
    if first > head or (last is not None and last > head):
        raise StorageFailed(f"--from {first} --to {head if last is None else last}: the chain has blocks 0 to {head}")
    check_tables(reader, checkers, findings)
    verification.pages_walked = check_pages(reader, path, findings)
    return verification


def verify(on_step: OnStep, path: Path, first: int, last: int | None, processes: int) -> Verified:
    """Verify the store in a folder. Raises StorageFailed.

    ``processes``: the number of processes that check signatures; 0 means one for each core.
    """
    findings = Findings()
    try:
        with closing(StoreReader.open(path)) as reader, Checkers(processes) as checkers:
            verification = begin(reader, checkers, findings, first, last, path)
            total = verification.last - verification.first + 1
            blocks = transactions = 0
            started_s = reported_s = time.monotonic()
            for block in verification.blocks():
                blocks += 1
                transactions += block.transactions
                now_s = time.monotonic()
                if now_s - reported_s > _STEP_S:
                    reported_s = now_s
                    on_step(Step(f"{transactions / (now_s - started_s):,.0f} transactions/s", blocks, total))
            seconds = max(time.monotonic() - started_s, 1e-9)
            return Verified(VerifiedRange.of(verification), findings, blocks, transactions, seconds)
    except CheckerDied as died:
        raise StorageFailed(str(died)) from None


def verify_whole(on_step: OnStep, path: Path, processes: int) -> Findings:
    """The findings of a whole store, to which no process may write. Raises StorageFailed, also if it has no block."""
    return verify(lambda step: on_step(step._replace(title="verifying, blocks")), path, 0, None, processes).findings
