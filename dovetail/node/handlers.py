"""Imports and makes the handlers that a command line names as MODULE:HANDLER."""

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

_MISTAKES: Final = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, OSError, RuntimeError,
    SyntaxError, SystemExit, TypeError, ValueError,
)  # fmt: skip
"""What a mistake in a handler's module raises when it is imported, or the handler made."""


def make_handlers(named: str) -> Sequence[TransactionHandler[Any]]:
    """Of MODULE:HANDLER: one, or of a handler of the 1.x line one for each of its versions.

    Raises Refused with the author's mistake, in one line.
    """
    module_name, colon, attribute = named.partition(":")
    if not (module_name and colon and attribute):
        raise Refused(f"{named!r} names no handler: MODULE:HANDLER, as in families.intkey.handler:IntkeyHandler")
    if module_name.endswith(".py") or "/" in module_name:
        dotted = module_name.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise Refused(f"{module_name} is a file; name its module, as python -m does: {dotted}:{attribute}")
    # As `python -m` has it: a family under development lies where its author stands.
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
    """Whether it is a class of handlers, of this SDK or of the 1.x line, where none must have a base class."""
    if not isinstance(kind, type):
        return False
    return issubclass(kind, TransactionHandler) or (hasattr(kind, "family_versions") and hasattr(kind, "apply"))


def _mistake(error: BaseException) -> str:
    """What an author did wrong, in one line, with the place where it came up."""
    if isinstance(error, SystemExit):
        return f"it calls sys.exit({error.code!r})"
    message = " ".join(str(error).split())
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("sawtooth"):
        return f"{message}; how a family of the Sawtooth 1.x SDK is run: docs/how-to/migrating.md"
    if isinstance(error, (ModuleNotFoundError, SyntaxError)):
        # A SyntaxError names its place itself, and a module that is not there has none.
        return message
    # The author's own line: not the one here that asked, nor a check of the SDK, nor the interpreter's machinery.
    ours = ("<", __file__, str(Path(processor_sdk.__file__).parent))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {message}{place}"
