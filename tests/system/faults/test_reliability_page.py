"""Checks that docs/explanation/reliability.md lists the crash points of the code and names tests that exist."""

import re

from dovetail.validator.crash_points import VARIABLE, CrashPoint
from tests.system.e2e.process import ROOT

PAGE = (ROOT / "docs" / "explanation" / "reliability.md").read_text(encoding="utf-8")


def test_the_crash_points_are_those_of_the_code() -> None:
    listed = re.findall(r"^\| (\d+) \| `(\w+)` \|", PAGE, re.MULTILINE)
    assert [(int(number), name) for number, name in listed] == [(point.value, point.label) for point in CrashPoint]
    assert VARIABLE in PAGE


def test_every_test_that_is_named_is_there() -> None:
    named = re.findall(r"`(?:pytest )?(?:[A-Z_]+=\d+ pytest )?(?:tests/[\w/]+/)?(test_\w+\.py)(?:::(\w+))?", PAGE)
    assert len(named) > 20
    for file, name in named:
        found = list((ROOT / "tests").rglob(file))
        assert found, file
        pattern = re.compile(rf"^\s*(?:async )?(?:def|class) {name}\b", re.MULTILINE)
        assert not name or any(pattern.search(path.read_text(encoding="utf-8")) for path in found), f"{file}::{name}"


def test_every_variable_that_is_named_is_read() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    for variable in set(re.findall(r"DOVETAIL_TEST_\w+", PAGE)):
        assert f'"{variable}"' in sources, variable
