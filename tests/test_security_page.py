"""Checks the tests that SECURITY.md names: each test exists, and each kind of access has tests."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "SECURITY.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("## Who can do what")[2].partition("\n## ")[0]
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)


def _tests_in(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_each_test_that_the_page_names_is_there() -> None:
    files = {file: [_tests_in(path) for path in TESTS.rglob(file)] for file, _ in NAMED}
    missing = [f"{file}::{name}" for file, name in NAMED if not any(name in tests for tests in files[file])]
    assert missing == []
    # On the page, only names of tests contain "::". So a misspelled name makes the counts differ.
    assert len(NAMED) == PAGE.count("::") - PAGE.count("`FILE::NAME`")


def test_each_kind_of_access_has_its_tests() -> None:
    _, *parts = re.split(r"\*\*(.+?)\*\*", TABLE)
    shown = {who: part.count("::") for who, part in zip(parts[::2], parts[1::2], strict=True)}
    # The open port allows what the other kinds of access allow, and the library's cipher protects recorded connections.
    assert {who for who, count in shown.items() if not count} == {"validator's port without keys", "connection key"}
    assert len(shown) == 13


def test_each_row_says_who_reaches_what_and_what_they_can_do_at_most() -> None:
    rows = [line.split(" | ") for line in TABLE.splitlines() if line.startswith("| ")]
    assert len(rows) > 13
    assert all(len(row) == 4 and row[1].strip() and row[2].strip() for row in rows)
