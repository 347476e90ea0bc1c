"""Which program a handler is: a digest of the files that it is made of. Nothing is judged here."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from dovetail.common.errors import Refused
from dovetail.node.handlers import make_handlers

_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    " from dovetail.rehearsal import sources; print(json.dumps(sources.digest_or_refusal(sys.argv[2])))"
)


def sources_sha256(named: str) -> str:
    """The SHA-256, in hex, of the files of all modules that importing MODULE:HANDLER brings into a fresh process.

    It says nothing of what is imported only when an apply runs, nor of files that are no modules. Raises Refused where
    there is no such handler.
    """
    # Not one of the workers: those import what this program began with, and that differs with how it was called.
    command = [sys.executable, "-c", _PROGRAM, json.dumps(sys.path), named]
    fresh = subprocess.run(command, capture_output=True, text=True, check=False)
    if fresh.returncode or not fresh.stdout:
        raise Refused(f"importing {named} ends the process with {fresh.returncode}: {fresh.stderr[-500:].strip()}")
    answer = json.loads(fresh.stdout.splitlines()[-1])
    if "refused" in answer:
        raise Refused(answer["refused"])
    return str(answer["sha256"])


def digest_or_refusal(named: str) -> dict[str, str]:
    """What the fresh process answers: ``sha256``, or ``refused`` and why."""
    before = set(sys.modules)
    try:
        make_handlers(named)
    except Refused as refused:
        return {"refused": str(refused)}
    digest = hashlib.sha256()
    for name in sorted(sys.modules.keys() - before):
        content = _content(sys.modules[name])
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return {"sha256": digest.hexdigest()}


def _content(module: ModuleType) -> bytes:
    """Nothing for what has no file: built in, or a package without one."""
    file = getattr(module, "__file__", None)
    if not file:
        return b""
    try:
        return Path(file).read_bytes()
    except OSError:
        # In an archive: only what loaded it knows how to read there.
        loader = getattr(getattr(module, "__spec__", None), "loader", None)
    try:
        content: bytes = loader.get_data(file)  # type: ignore[union-attr]
        return content
    except (AttributeError, OSError):
        return b""
