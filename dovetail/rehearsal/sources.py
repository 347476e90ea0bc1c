"""A digest of the source files of a handler, to recognize a changed handler."""

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
    """The SHA-256, in hex, of the files of all modules that a fresh process imports for MODULE:HANDLER.

    Modules that are imported during an apply and other files do not count. Raises Refused if there is no such handler.
    """
    # A fresh process, because the modules that this process has imported depend on how it was called.
    command = [sys.executable, "-c", _PROGRAM, json.dumps(sys.path), named]
    fresh = subprocess.run(command, capture_output=True, text=True, check=False)
    if fresh.returncode or not fresh.stdout:
        raise Refused(f"importing {named} ends the process with {fresh.returncode}: {fresh.stderr[-500:].strip()}")
    answer = json.loads(fresh.stdout.splitlines()[-1])
    if "refused" in answer:
        raise Refused(answer["refused"])
    return str(answer["sha256"])


def digest_or_refusal(named: str) -> dict[str, str]:
    """The fresh process's answer: ``sha256``, or ``refused`` with the reason."""
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
    """The module's source; empty for built-in modules and packages without a file."""
    file = getattr(module, "__file__", None)
    if not file:
        return b""
    try:
        return Path(file).read_bytes()
    except OSError:
        # The file is inside an archive, which only the module's loader can read.
        loader = getattr(getattr(module, "__spec__", None), "loader", None)
    try:
        content: bytes = loader.get_data(file)  # type: ignore[union-attr]
        return content
    except (AttributeError, OSError):
        return b""
