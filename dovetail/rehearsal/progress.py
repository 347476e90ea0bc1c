"""What a rehearsal keeps on disk, so that an interrupted one goes on where it stood: one JSON file. No judging."""

import hashlib
import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dovetail.errors import Refused
from dovetail.files import make_private_dir, write_whole
from dovetail.home import home, shown
from dovetail.rehearsal.differences import Findings
from processor_sdk.handler import TransactionHandler


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked; progress with one question is none with another. ``blocks``: as given, empty for all.

    ``chain``: the id of the first block. ``source_sha256``: of the handler's module, empty where it has no file.
    """

    store: str
    chain: str
    handler: str
    source_sha256: str
    family: str
    version: str
    blocks: str
    differences_max: int


@dataclass(frozen=True, slots=True)
class Progress:
    """``next_block`` is the first that is still to be judged, of ``first_block`` to ``last_block``."""

    question: Question
    first_block: int
    last_block: int
    next_block: int
    findings: Findings


def source_sha256(handler: TransactionHandler[Any]) -> str:
    """The SHA-256 of the file that the handler's class stands in, in hex."""
    file = inspect.getsourcefile(type(handler))
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""


def default_file(question: Question, environ: Mapping[str, str] = os.environ) -> Path:
    """Where progress with a question is kept unless told otherwise: the same for every build of the handler."""
    same = (question.store, question.handler, question.family, question.version, question.blocks)
    name = hashlib.sha256(repr(same).encode()).hexdigest()[:16]
    return home(environ) / "rehearsals" / f"{name}.json"


def save(file: Path, progress: Progress) -> None:
    """Replace what is there. Raises Refused."""
    if not file.parent.exists():
        make_private_dir(file.parent)
    write_whole(file, msgspec.json.encode(progress), mode=0o600, overwrite=True)


def load(file: Path, question: Question) -> Progress:
    """Progress with ``question``. Raises Refused where there is none, or with another."""
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
            what = "the handler's module was changed meanwhile" if name == "source_sha256" else f"{name} was {then!r}"
            raise Refused(f"the progress in {shown(file)} is another rehearsal's: {what}; begin with --fresh")
    return progress
