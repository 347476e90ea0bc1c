"""Imports and constructs the handlers that a command line names as MODULE:HANDLER."""

import importlib
import inspect
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeGuard

import processor_sdk
from dovetail.common.errors import Refused
from processor_sdk.handler import TransactionHandler
from processor_sdk.sawtooth import adapted

_SDK: Final = str(Path(processor_sdk.__file__).parent)
_MISTAKES: Final = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, OSError, RuntimeError,
    SyntaxError, SystemExit, TypeError, ValueError,
)  # fmt: skip
"""Exceptions that a mistake of the author raises while the module is imported or the handler is constructed."""


def make_handlers(named: str) -> Sequence[TransactionHandler[Any]]:
    """The handler that MODULE:HANDLER names; for a Sawtooth 1.x handler one for each of its versions.

    Raises Refused with the author's mistake in one line.
    """
    module_name, colon, attribute = named.partition(":")
    if not (module_name and colon and attribute):
        raise Refused(f"{named!r} names no handler: MODULE:HANDLER, as in families.intkey.handler:IntkeyHandler")
    if module_name.endswith(".py") or "/" in module_name:
        dotted = module_name.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise Refused(f"{module_name} is a file; name its module, as python -m does: {dotted}:{attribute}")
    # Search the current folder, as `python -m` does: a family under development is in its author's current folder.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except _MISTAKES as error:
        raise Refused(f"cannot import {module_name} for {named}: {_mistake(error)}") from None
    kind = getattr(module, attribute, None)
    if not _is_handler(kind):
        known = [name for name, value in vars(module).items() if _is_handler(value) and not inspect.isabstract(value)]
        raise Refused(
            f"{module_name} has no handler class {attribute}; it has {', '.join(sorted(known)) or 'none at all'}"
        )
    try:
        made = kind()
        return (made,) if isinstance(made, TransactionHandler) else adapted(made)
    except _MISTAKES as error:
        raise Refused(f"{named} cannot be made: {_mistake(error)}") from None


def _is_handler(kind: object) -> TypeGuard[type]:
    """Whether ``kind`` is a handler class of this SDK, or of Sawtooth 1.x, whose handlers need no base class."""
    if not isinstance(kind, type):
        return False
    return issubclass(kind, TransactionHandler) or (hasattr(kind, "family_versions") and hasattr(kind, "apply"))


def _mistake(error: BaseException) -> str:
    """The author's mistake in one line, with the file and line that raised it."""
    if isinstance(error, SystemExit):
        return f"it calls sys.exit({error.code!r})"
    message = " ".join(str(error).split())
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("sawtooth"):
        return f"{message}; how a family of the Sawtooth 1.x SDK is run: docs/how-to/migrating.md"
    if isinstance(error, (ModuleNotFoundError, SyntaxError)):
        # A SyntaxError names its place itself; a missing module has none.
        return message
    return f"{type(error).__name__}: {message}{place_of(error, '<', __file__)}"


def place_of(error: BaseException | None, *ours: str) -> str:
    """The author's line that raised ``error``: the last one outside of the SDK and of files named like ``ours``."""
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    theirs = [frame for frame in frames if not frame.filename.startswith((_SDK, *ours))]
    return f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""
