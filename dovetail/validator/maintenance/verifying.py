"""A ledger verified as ``dovetail chain verify`` does, in a process that a damaged page may end."""

import time
from collections import Counter
from pathlib import Path
from typing import Any, Final, NamedTuple

from dovetail.ledger.ids import BlockId
from dovetail.validator.history.verification.chain import Verification
from dovetail.validator.history.verification.findings import Findings
from dovetail.validator.history.verification.pages import check_pages
from dovetail.validator.history.verification.tables import check_tables
from dovetail.validator.history.verification.workers import CheckerDied, Checkers
from dovetail.validator.maintenance.apart import Step, Tell
from dovetail.validator.store import StorageFailed, StoreReader

_TELL_S: Final = 0.2


class Seen(NamedTuple):
    """What was verified, and what is said of it; the fields as ``Verification`` has them."""

    first: int
    last: int
    last_id: BlockId | None
    pages_walked: bool
    states_from: int
    sealed_by: Counter[str]

    @staticmethod
    def of(verification: Verification) -> "Seen":
        """What a verification has come to."""
        return Seen(*(getattr(verification, name) for name in Seen._fields))


class Verified(NamedTuple):
    """``seconds``: without what is beside the chain."""

    seen: Seen
    findings: Findings
    blocks: int
    transactions: int
    seconds: float


def begin(
    reader: StoreReader, checkers: Any, findings: Findings, first: int, last: int | None, path: Path
) -> Verification:
    """The verification, with what is beside the chain checked already.

    Raises StorageFailed, also for blocks that are not there.
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


def verify(tell: Tell, path: Path, first: int, last: int | None, processes: int) -> Verified:
    """Verify the store in a folder. ``processes``: that check signatures, 0: one a core. Raises StorageFailed."""
    findings = Findings()
    reader = StoreReader.open(path)
    try:
        with Checkers(processes) as checkers:
            verification = begin(reader, checkers, findings, first, last, path)
            total = verification.last - verification.first + 1
            blocks = transactions = 0
            started_s = told_s = time.monotonic()
            for block in verification.blocks():
                blocks += 1
                transactions += block.transactions
                now_s = time.monotonic()
                if now_s - told_s > _TELL_S:
                    told_s = now_s
                    tell(Step(f"{transactions / (now_s - started_s):,.0f} transactions/s", blocks, total))
            seconds = max(time.monotonic() - started_s, 1e-9)
            return Verified(Seen.of(verification), findings, blocks, transactions, seconds)
    except CheckerDied as died:
        raise StorageFailed(str(died)) from None
    finally:
        reader.close()
