"""The findings of verification, and their bounded collection. Prints nothing."""

from collections import Counter
from typing import Final, NamedTuple

FINDINGS_KEPT_MAX: Final = 1_000
_CHARACTERS_MAX: Final = 200
_BYTES_SHOWN_MAX: Final = 32

RESTORE: Final = "stop the validator, then `dovetail store repair`, or restore a backup, or copy another node's store"
DROP_PENDING: Final = "the validator drops it at its next start; its submitter submits the batch again"
DROP_QUEUE: Final = "the validator begins anew to count how long batches are pending, and writes the record again"
REEXECUTE: Final = (
    "compare the processor's build with the one that made the block: a version's rules may never change; a change of"
    " rules is another version"
)


class Finding(NamedTuple):
    """One fault. ``what``: one word for scripts. ``where``: block, batch, transaction, node or entry, in words."""

    block_num: int | None
    what: str
    where: str
    expected: str
    found: str
    advice: str = RESTORE

    def __str__(self) -> str:
        return f"{self.where}: {self.what}: expected {self.expected}, found {self.found}"


class Findings:
    """Counts all findings, and keeps the first FINDINGS_KEPT_MAX."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.counts: Counter[str] = Counter()
        """The number of findings by ``what``."""

    def __len__(self) -> int:
        return self.counts.total()

    def add(self, finding: Finding) -> None:
        self.counts[finding.what] += 1
        if len(self.kept) < FINDINGS_KEPT_MAX:
            self.kept.append(finding)


def shown(value: object) -> str:
    """A value as short text; bytes as the beginning in hex and their number."""
    if isinstance(value, bytes):
        beginning = value[:_BYTES_SHOWN_MAX].hex()
        return f"{beginning}{'…' if len(value) > _BYTES_SHOWN_MAX else ''} ({len(value)} bytes)"
    text = str(value)
    return text if len(text) <= _CHARACTERS_MAX else f"{text[:_CHARACTERS_MAX]}…"


def difference(expected: bytes, found: bytes) -> tuple[str, str]:
    """Both values as ``shown``, from shortly before the first differing byte on."""
    at = next(
        (i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), min(map(len, (expected, found)))
    )
    start = max(0, at - 4)
    return tuple(f"{shown(content[start:])} from byte {start} on" for content in (expected, found))  # type: ignore[return-value]
