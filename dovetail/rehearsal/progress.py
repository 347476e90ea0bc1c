"""The progress of a rehearsal in one JSON file, so that an interrupted rehearsal can resume."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dovetail.common.errors import Refused
from dovetail.common.files import make_private_dir, write_whole
from dovetail.common.home import home, shown
from dovetail.rehearsal.differences import Findings
from dovetail.rehearsal.history import Span


@dataclass(frozen=True, slots=True)
class Question:
    """The arguments of a rehearsal. Progress is valid only for the same arguments. ``blocks``: as given, empty for all.

    ``chain``: the id of the first block. ``sources_sha256``: of the handler (``dovetail.rehearsal.sources``).
    """

    store: str
    chain: str
    handler: str
    sources_sha256: str
    family: str
    version: str
    blocks: str
    apply_timeout_ms: int
    differences_max: int
    state_value_bytes_max: int
    receipt_bytes_max: int


@dataclass(frozen=True, slots=True)
class Progress:
    """``next``: the number of the first transaction of ``span`` that is still to be rehearsed."""

    question: Question
    span: Span
    next: int
    findings: Findings

    @property
    def done(self) -> int:
        """The number of finished transactions of ``span``, of any family."""
        return self.next - self.span.first


def default_file(question: Question, environ: Mapping[str, str] = os.environ) -> Path:
    """The default file for a question's progress. It is the same for every build of the handler."""
    same = (question.store, question.handler, question.family, question.version, question.blocks)
    name = hashlib.sha256(repr(same).encode()).hexdigest()[:16]
    return home(environ) / "rehearsals" / f"{name}.json"


def save(file: Path, progress: Progress) -> None:
    """Write ``file``, replacing its content. Raises Refused."""
    if not file.parent.exists():
        make_private_dir(file.parent)
    write_whole(file, msgspec.json.encode(progress), mode=0o600, overwrite=True)


def load(file: Path, question: Question) -> Progress:
    """The progress of ``question``. Raises Refused if the file is missing or belongs to another question."""
    try:
        progress = msgspec.json.decode(file.read_bytes(), type=Progress)
    except FileNotFoundError:
        raise Refused(f"there is no progress in {shown(file)}: leave --resume out to begin") from None
    except OSError as error:
        raise Refused(f"cannot read {shown(file)}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise Refused(f"{shown(file)} holds no progress of a rehearsal ({error}): begin with --fresh") from None
    for name in Question.__slots__:
        then, now = getattr(progress.question, name), getattr(question, name)
        if then != now:
            what = f"{name} was {then!r}"
            if name == "sources_sha256":
                what = "the handler, or a module that it imports, was changed meanwhile"
            raise Refused(f"the progress in {shown(file)} is another rehearsal's: {what}; begin with --fresh")
    return progress
