"""Which program a handler is: a digest of the files that it is made of. Nothing is judged here."""

import hashlib
import sys
from pathlib import Path

from dovetail.commands.processor import make_handlers
from dovetail.workers import Workers


def sources_sha256(named: str) -> str:
    """The SHA-256, in hex, of the files of all modules that importing MODULE:HANDLER brings into a fresh process.

    It says nothing of what is imported only when an apply runs, nor of files that are no modules.
    """
    with Workers(1) as fresh:
        return fresh.submit(_digest, named).result()


def _digest(named: str) -> str:
    before = set(sys.modules)
    make_handlers(named)
    digest = hashlib.sha256()
    for name in sorted(sys.modules.keys() - before):
        content = _content(getattr(sys.modules[name], "__file__", None))
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _content(file: str | None) -> bytes:
    """Nothing for what has no file of its own: built in, in an archive, or a package without one."""
    try:
        return Path(file).read_bytes() if file else b""
    except OSError:
        return b""
