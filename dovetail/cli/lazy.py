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
    """A group of commands. ``commands``: the help line of each command, by name. ``options``: those of Typer.

    A command's module is in ``package``, under the command's name or the name in ``modules``. The module's ``app`` is
    the command's own group, or holds the command under its name.
    """

    class Group(TyperGroup):
        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            """The called command itself, in place of its placeholder, which has only a name and a help line."""
            found, _, remaining = super().resolve_command(ctx, args)
            name = str(found)
            module = modules.get(name, name.replace("-", "_"))
            return name, _load(f"{package}.{module}", name), remaining

    app = typer.Typer(cls=Group, no_args_is_help=True, rich_markup_mode=MARKUP, **options)
    for name, line in commands.items():
        app.command(name, help=line)(lambda: None)
    return app


def _load(module: str, name: str) -> Any:
    # The module's app takes its markup mode from the outer app.
    outer = typer.Typer(rich_markup_mode=MARKUP, add_completion=False)
    outer.add_typer(importlib.import_module(module).app, name=name)
    group: Any = typer.main.get_command(outer)
    found = group.commands[name]
    return found.commands.get(name, found)
