"""Groups of commands whose modules are imported when a command is called, so that help comes at once."""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import typer
from typer.core import TyperGroup

MARKUP: Final = "markdown"


def lazy_group(
    package: str, commands: Mapping[str, str], modules: Mapping[str, str] = MappingProxyType({}), **options: Any
) -> typer.Typer:
    """A group of ``commands``: the line of each in the group's help, by name. ``options``: as of Typer.

    The module of a command in ``package`` has its name, or is named in ``modules``. The module's ``app`` is the
    command's own group, or holds the command under its name.
    """

    class Group(TyperGroup):
        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            """The called command itself, in place of the one that only has its name and its line of help."""
            found, _, remaining = super().resolve_command(ctx, args)
            name = str(found)
            module = modules.get(name, name.replace("-", "_"))
            return name, _load(f"{package}.{module}", name), remaining

    app = typer.Typer(cls=Group, no_args_is_help=True, rich_markup_mode=MARKUP, **options)
    for name, line in commands.items():
        app.command(name, help=line)(lambda: None)
    return app


def _load(module: str, name: str) -> Any:
    # The outer app gives the markup mode to the module's.
    outer = typer.Typer(rich_markup_mode=MARKUP, add_completion=False)
    outer.add_typer(importlib.import_module(module).app, name=name)
    group: Any = typer.main.get_command(outer)
    found = group.commands[name]
    return found.commands.get(name, found)
