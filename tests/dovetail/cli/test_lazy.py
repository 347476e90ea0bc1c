"""Lazy groups: their help shows each command's own line and imports no command; a call imports one module."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dovetail.conftest import Run

_ENTRY = re.compile(r"^│ ([a-z-]+) {2,}(.*?) *│$")


def _entries(help_text: str) -> dict[str, str]:
    """The commands and their lines in the help of a group."""
    entries: dict[str, str] = {}
    name = ""
    for line in help_text.partition("Commands ")[2].splitlines():
        if entry := _ENTRY.match(line):
            name = entry[1]
            entries[name] = entry[2]
        elif name and line.startswith("│"):
            entries[name] += f" {line.strip('│ ')}"
    return entries


@pytest.mark.parametrize("group", [(), ("upgrade",)], ids=" ".join)
def test_the_help_of_a_group_has_the_first_line_of_each_commands_own(run: Run, group: tuple[str, ...]) -> None:
    entries = _entries(run(*group, "--help").out)
    assert entries
    for name, line in entries.items():
        own = " ".join(run(*group, name, "--help").out.split())
        assert f"Usage: dovetail {' '.join((*group, name))} " in own
        assert line in own


def test_a_command_that_does_not_exist_is_wrong_usage(run: Run) -> None:
    done = run("blok", "list")
    assert done.code == 2
    assert "No such command 'blok'" in done.err


@pytest.mark.parametrize(
    ("command", "imported"),
    [
        ((), []),
        (("keygen",), ["keygen"]),
        (("upgrade",), ["upgrade"]),
        (("upgrade", "retire"), ["upgrade", "upgrade.retire"]),
    ],
)
def test_help_imports_the_called_command_alone(command: tuple[str, ...], imported: list[str]) -> None:
    prefix = "dovetail.cli.commands."
    code = (
        "import sys; from dovetail.__main__ import main\n"
        f"try: main({[*command, '--help']!r})\n"
        f"finally: print(*sorted(name for name in sys.modules if name.startswith({prefix!r})), file=sys.stderr)"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr.split() == [prefix + name for name in imported]
