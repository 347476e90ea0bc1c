"""Checks that each name of the public modules has a docstring and a row in docs/reference/sdk.md."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "reference" / "sdk.md").read_text(encoding="utf-8")


def pdoc_words() -> list[str]:
    """The words of the command with which tox makes the reference."""
    section = (ROOT / "tox.ini").read_text(encoding="utf-8").partition("[testenv:reference]")[2].partition("\n[")[0]
    found = re.search(r"commands =\s*\n\s+pdoc ((?:.*\\\n)*.*)", section)
    assert found
    return found[1].replace("\\\n", " ").split()


MODULES = [word for word in pdoc_words() if re.fullmatch(r"(processor_sdk|ledger|dovetail)[\w.]*", word)]


def public_names(module: ModuleType) -> set[str]:
    declared = getattr(module, "__all__", None)
    if declared is not None:
        return set(declared)
    tree = ast.parse(inspect.getsource(module))
    return {name for name, _ in definitions(tree) if not name.startswith("_")}


def definitions(tree: ast.Module) -> Iterator[tuple[str, str | None]]:
    """What a module defines at its top, type variables excepted: each name with its docstring."""
    for place, node in enumerate(tree.body):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name, ast.get_docstring(node)
            continue
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        made_by = node.value.func if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) else None
        if not targets or (isinstance(made_by, ast.Name) and made_by.id == "TypeVar"):
            continue
        after = tree.body[place + 1] if place + 1 < len(tree.body) else None
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id, str(after.value.value) if is_text else None  # type: ignore[union-attr]


def defined_in(module: ModuleType, name: str) -> tuple[ModuleType, str | None]:
    """The module whose own name it is, and its docstring there."""
    tree = ast.parse(inspect.getsource(module))
    own = dict(definitions(tree))
    if name in own:
        return module, own[name]
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and name in {alias.asname or alias.name for alias in node.names}:
            assert node.module is not None
            return defined_in(importlib.import_module(node.module), name)
    raise AssertionError(f"{module.__name__} does not say where {name} comes from")


def undocumented(module: ModuleType) -> Iterator[str]:
    for name in sorted(public_names(module)):
        home, docstring = defined_in(module, name)
        if not docstring:
            yield f"{home.__name__}.{name}"
        value = getattr(module, name)
        for member, what in vars(value).items() if inspect.isclass(value) else ():
            is_code = inspect.isfunction(what) or isinstance(what, property | classmethod | staticmethod)
            if is_code and not member.startswith("_") and not inspect.getdoc(what):
                yield f"{home.__name__}.{name}.{member}"


def tables() -> dict[str, list[tuple[str, str]]]:
    """Name and link of each row of docs/reference/sdk.md, by the module that heads the table."""
    sections = re.split(r"(?m)^## ([\w.]+)$", PAGE.partition("# Every name")[2])[1:]
    return {
        module: re.findall(r"(?m)^\| \[`(\w+)`\]\(([^)]+)\) \| .+ \|$", text)
        for module, text in zip(sections[::2], sections[1::2], strict=True)
    }


def test_the_page_has_the_modules_of_the_reference() -> None:
    assert len(MODULES) > 5
    assert list(tables()) == MODULES


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_documented(name: str) -> None:
    assert list(undocumented(importlib.import_module(name))) == []


@pytest.mark.parametrize("name", MODULES)
def test_the_page_names_what_is_there_and_all_of_it(name: str) -> None:
    module = importlib.import_module(name)
    rows = tables()[name]
    assert sorted(row for row, _ in rows) == sorted(public_names(module))
    for row, link in rows:
        home, _ = defined_in(module, row)
        assert home.__file__ is not None
        assert (ROOT / "docs" / "reference" / link).resolve() == Path(home.__file__).resolve(), row


def test_the_reference_can_be_built(tmp_path: Path) -> None:
    pytest.importorskip("pdoc")
    words = [str(tmp_path) if word == "build/reference" else word for word in pdoc_words()]
    done = subprocess.run(
        [sys.executable, "-m", "pdoc", *words], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    for name in MODULES:
        page = (tmp_path / f"{name.replace('.', '/')}.html").read_text(encoding="utf-8")
        assert all(f'id="{public}"' in page for public in public_names(importlib.import_module(name)))
