"""The layers of the packages: allowed imports, the limits of pure packages, the packages that a processor needs."""

import ast
import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

PURE = ["dovetail/ledger", "dovetail/validator/core"]
"""Packages that open no sockets and read no clocks or random numbers. They get these as arguments."""

NOT_PURE = {
    "asyncio", "concurrent", "datetime", "logging", "multiprocessing", "os", "random", "secrets", "selectors",
    "signal", "socket", "structlog", "subprocess", "tempfile", "threading", "time", "uuid", "zmq",
}  # fmt: skip
ALLOWED = {
    ("dovetail/validator/core/state/merkle.py", "os.path"),
    ("dovetail/ledger/key_files.py", "os"),
    ("dovetail/ledger/hosts.py", "socket"),
}
"""``os.path`` compares texts there and touches no files. Key files are read and host names looked up when a process
starts; code that makes or validates blocks uses neither."""

PROCESSOR_NEEDS = {"zmq", "google", "cbor2", "_cbor2"}
"""Beyond the standard library and the project: pyzmq, protobuf and cbor2."""


def imports_of(path: Path) -> Iterator[str]:
    """Every module that a file imports, at any place."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            yield node.module


def modules_of(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found
    return [path for path in found if not path.name.endswith("_pb2.py")]


@pytest.mark.parametrize("folder", PURE)
def test_pure_packages_import_no_clocks_sockets_or_random_numbers(folder: str) -> None:
    found = [
        (str(path.relative_to(ROOT)), name)
        for path in modules_of(folder)
        for name in imports_of(path)
        if name.partition(".")[0] in NOT_PURE
    ]
    assert set(found) <= ALLOWED


@pytest.mark.parametrize("folder", PURE)
def test_pure_packages_have_no_coroutines_files_or_output(folder: str) -> None:
    for path in modules_of(folder):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not isinstance(node, ast.AsyncFunctionDef | ast.Await), path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"open", "print", "input", "exec", "eval"}, path


@pytest.mark.parametrize("folder", ["processor_sdk", "families", "dovetail", "tests/vectors"])
def test_every_module_has_a_docstring(folder: str) -> None:
    for path in modules_of(folder):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path


CATCH_ALLS = {
    "processor_sdk/apply/dispatch.py",
    "dovetail/rest_api/server/app.py",
    "dovetail/cli/app.py",
    "dovetail/node/log_lines.py",
}
"""SDK dispatch, which always answers; the outermost HTTP middleware; the command line's entry point; log lines."""


@pytest.mark.parametrize("folder", ["processor_sdk", "families", "dovetail"])
def test_exceptions_are_caught_by_name(folder: str) -> None:
    for path in modules_of(folder):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ExceptHandler):
                names = {name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)} if node.type else {""}
                if names & {"", "Exception", "BaseException"}:
                    assert str(path.relative_to(ROOT)) in CATCH_ALLS


def test_import_contracts_hold() -> None:
    pytest.importorskip("importlinter")
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


LOADED = """
import sys
before = set(sys.modules)
import {module}
print(*sorted(set(sys.modules) - before))
"""


def loaded_by(module: str) -> set[str]:
    """The top-level packages outside the standard library that a fresh interpreter loads for ``module``."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(module=module)], cwd=ROOT, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    names = {name.partition(".")[0] for name in done.stdout.split()}
    return {name for name in names - sys.stdlib_module_names if not name.startswith("__")}


@pytest.mark.parametrize(
    "module",
    [
        "processor_sdk",
        "processor_sdk.runtime",
        "processor_sdk.apply.dispatch",
        "processor_sdk.testing",
        "families.intkey.handler",
        "families.intkey.v2.handler",
    ],
)
def test_a_processor_needs_few_packages(module: str) -> None:
    outside = loaded_by(module) - PROCESSOR_NEEDS - {"protos", "dovetail", "processor_sdk", "families"}
    # Modules inside compiled packages are not packages to install.
    assert not {name for name in outside if "cython" not in name and name != "_cffi_backend"}


def test_the_sdk_is_imported_without_sockets() -> None:
    assert "zmq" not in loaded_by("processor_sdk")


def test_dependencies_are_those_that_are_declared() -> None:
    """Every imported package outside the standard library belongs to a distribution that pyproject.toml names."""
    packages = ("processor_sdk", "families", "dovetail", "protos")
    imported = {
        name.partition(".")[0] for folder in packages for path in modules_of(folder) for name in imports_of(path)
    }
    # grpc_tools is needed for development only, and only pytest loads the plugin.
    outside = imported - sys.stdlib_module_names - set(packages) - {"grpc_tools", "pytest"}
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[project.scripts]")[0]
    distributions = importlib.metadata.packages_distributions()
    for name in outside:
        assert any(f'"{owner.lower().replace("_", "-")}>=' in declared.lower() for owner in distributions[name]), name
