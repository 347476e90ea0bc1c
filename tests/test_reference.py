"""Checks that each name of the modules in docs/reference/api.md has a docstring, and that the site can be built."""

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
PAGE = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
MODULES = re.findall(r"(?m)^\.\. automodule:: ([\w.]+)$", PAGE)


def public_names(module: ModuleType) -> set[str]:
    declared = getattr(module, "__all__", None)
    if declared is not None:
        return set(declared)
    tree = ast.parse(inspect.getsource(module))
    return {name for name, _ in definitions(tree) if not name.startswith("_")}


def definitions(tree: ast.Module) -> Iterator[tuple[str, str | None]]:
    """Each name that a module defines at its top level (except type variables), with its docstring."""
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
    """The module that defines a name, and the docstring of the name there."""
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


def test_the_page_has_a_heading_for_each_module() -> None:
    assert len(MODULES) > 5
    assert re.findall(r"(?m)^## ([\w.]+)$", PAGE) == MODULES


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_documented(name: str) -> None:
    assert list(undocumented(importlib.import_module(name))) == []


@pytest.mark.timeout(300)
def test_the_site_is_built_without_a_warning_and_has_every_name(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    section = (ROOT / "tox.ini").read_text(encoding="utf-8").partition("[testenv:docs]")[2].partition("\n[")[0]
    found = re.search(r"commands = sphinx-build (.*) build/docs\n", section)
    assert found
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *found[1].split(), "-d", str(tmp_path / "doctrees"), str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "reference" / "api.html").read_text(encoding="utf-8")
    indexed = [name for name in MODULES if f"automodule:: {name}\n   :no-index:" not in PAGE]
    wanted = {f"{name}.{public}" for name in indexed for public in public_names(importlib.import_module(name))}
    assert {name for name in wanted if f'id="{name}"' not in page} == set()
