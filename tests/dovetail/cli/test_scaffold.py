"""``dovetail new-family``: new projects work as written, and refusals write nothing."""

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto

from dovetail.cli import scaffold
from dovetail.cli.scaffold import NAME_CHARACTERS_MAX, Encoding, check_name, render
from dovetail.common.errors import Refused
from tests.dovetail.conftest import Run

ROOT = Path(__file__).parents[3]
ENCODINGS = list(Encoding)
NAMES = ("a", "tickets", "n" * NAME_CHARACTERS_MAX)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def in_project(folder: Path, *words: str) -> str:
    """Run a module of the tests' environment in a written project, and return its output. It must succeed."""
    paths = {"PYTHONPATH": str(ROOT), "MYPYPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, env={**os.environ, **paths}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def written(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.timeout(300)
def test_its_tests_pass_as_written(run: Run, here: Path, encoding: Encoding) -> None:
    assert run("new-family", "tickets", "--encoding", encoding).code == 0
    plugin = [] if _plugin_is_installed() else ["-p", "dovetail.testing.pytest_plugin"]
    said = in_project(here / "tickets", "pytest", "-q", "-p", "no:cacheprovider", *plugin)
    tests = sum(path.read_text().count("\ndef test_") for path in (here / "tickets" / "tests").glob("*.py"))
    assert f"{tests} passed" in said


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", NAMES)
def test_it_is_linted_and_formatted(run: Run, here: Path, name: str, encoding: Encoding) -> None:
    pytest.importorskip("ruff")
    assert run("new-family", name, "--encoding", encoding).code == 0
    in_project(here / name, "ruff", "check", "--no-cache")
    in_project(here / name, "ruff", "format", "--no-cache", "--check")


@pytest.fixture(scope="module")
def mypy_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One mypy cache for all projects."""
    return tmp_path_factory.mktemp("mypy")


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.timeout(300)
def test_it_is_typed(run: Run, here: Path, mypy_cache: Path, encoding: Encoding) -> None:
    pytest.importorskip("mypy")
    assert run("new-family", "tickets", "--encoding", encoding).code == 0
    in_project(here / "tickets", "mypy", "--cache-dir", str(mypy_cache))


@pytest.mark.parametrize("name", NAMES)
def test_the_generated_module_says_what_the_proto_file_says(run: Run, here: Path, name: str) -> None:
    assert run("new-family", name, "--encoding", "protobuf").code == 0
    package = here / name / name
    spec = importlib.util.spec_from_file_location("generated", package / "payload_pb2.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    proto, file = (package / "payload.proto").read_text(), module.DESCRIPTOR
    types = {FieldDescriptor.TYPE_STRING: "string", FieldDescriptor.TYPE_ENUM: "Action"}
    fields = [
        f"{types[field.type]} {field.name} = {field.number};"
        for message in file.message_types_by_name.values()
        for field in message.fields
    ]
    values = [f"{value.name} = {value.number};" for value in module.Payload.Action.DESCRIPTOR.values]
    assert re.findall(r"\w+ \w+ = \d+;", proto) == fields
    assert re.findall(r"(?m)^ +(\w+ = \d+;)", proto) == values
    assert (file.name, file.package) == (f"{name}/payload.proto", name)
    # The pure-Python runtime finds its messages by these attributes.
    text = (package / "payload_pb2.py").read_text()
    at = {key: int(value) for key, value in re.findall(r"\['_(\w+'\]\._serialized_\w+)=(\d+)\n", text)}
    parts = {"PAYLOAD": module.Payload, "PAYLOAD_ACTION": module.Payload.Action, "ENTRY": module.Entry}
    for key, part in parts.items():
        found = file.serialized_pb[at[f"{key}']._serialized_start"] : at[f"{key}']._serialized_end"]]
        proto_of_part = EnumDescriptorProto() if key == "PAYLOAD_ACTION" else DescriptorProto()
        part.DESCRIPTOR.CopyToProto(proto_of_part)
        assert found == proto_of_part.SerializeToString(), key


def test_descriptors_are_written_as_protoc_writes_them() -> None:
    for module in sorted((ROOT / "protos").glob("*_pb2.py")):
        (literal,) = re.findall(r"AddSerializedFile\(b'(.*)'\)\n", module.read_text())
        assert scaffold._escaped(ast.literal_eval(f"b'{literal}'")) == literal, module.name


def test_it_says_what_to_type_next(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.prefix) / "bin"))
    done = run("new-family", "tickets")
    first, *others = done.out.splitlines()
    assert (done.code, done.err) == (0, "")
    assert first.startswith("wrote the family tickets to tickets: ")
    assert [line.partition("   ")[0] for line in others] == ["next"] * 5
    assert written(here / "tickets") == set(render("tickets", Encoding.CBOR))
    assert all("{{" not in path.read_text() for path in here.rglob("*") if path.is_file())


def test_without_an_active_environment_the_first_step_activates_it(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "bin").mkdir()
    (here / "bin" / "activate").touch()
    monkeypatch.setattr(sys, "prefix", str(here))
    _, first, *others = run("new-family", "tickets").out.splitlines()
    assert first == f"next   . {here}/bin/activate"
    assert len(others) == 5


def test_for_scripts(run: Run, here: Path) -> None:
    done = run("new-family", "tickets", "--dir", "sub", "--json")
    told = json.loads(done.out)
    assert told == {
        "folder": str(here / "sub"), "handler": "tickets.handler:Handler", "files": sorted(written(here / "sub")),
    }  # fmt: skip


def test_an_empty_folder_is_used_and_stays_the_same_folder(run: Run, here: Path) -> None:
    before = here.stat().st_ino
    assert run("new-family", "tickets", "--dir", ".").code == 0
    assert here.stat().st_ino == before
    assert written(here) == set(render("tickets", Encoding.CBOR))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Tickets", "1 to 30 lower-case letters"),
        ("9lives", "1 to 30 lower-case letters"),
        ("two-words", "1 to 30 lower-case letters"),
        ("../up", "1 to 30 lower-case letters"),
        ("", "1 to 30 lower-case letters"),
        ("n" * (NAME_CHARACTERS_MAX + 1), "1 to 30 lower-case letters"),
        ("class", "a keyword of Python"),
        ("match", "a keyword of Python"),
        ("json", "a module of Python's standard library"),
        ("dovetail", "a package of Dovetail"),
        ("protos", "a package of Dovetail"),
        ("intkey", "a bundled family"),
        ("tests", "a folder with this name"),
        ("deploy", "a folder with this name"),
        ("dist", "tools expect something else"),
        ("google", "imports would find "),
        ("rich", "imports would find "),
    ],
)
def test_a_name_that_no_package_can_have_is_refused(run: Run, here: Path, name: str, reason: str) -> None:
    done = run("new-family", name)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert reason in done.err
    assert "as in my_family" in done.err
    assert list(here.iterdir()) == []


def test_a_folder_of_the_same_name_that_is_empty_stands_in_no_ones_way(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(here)
    (here / "tickets").mkdir()
    assert run("new-family", "tickets").code == 0


def test_every_folder_that_it_writes_is_taken() -> None:
    folders = {path.partition("/")[0] for path in render("tickets", Encoding.CBOR) if "/" in path}
    for folder in folders - {"tickets"}:
        with pytest.raises(Refused, match="folder with this name"):
            check_name(folder)


def test_what_git_is_to_ignore_hides_nothing_of_the_package() -> None:
    lines = render("tickets", Encoding.CBOR)[".gitignore"].split()
    for line in lines:
        assert line.startswith(("/", ".", "*")) or line == "__pycache__/", line


def test_our_own_packages_are_all_known() -> None:
    packages = re.findall(r"(?m)^packages = \[(.*)\]", (ROOT / "pyproject.toml").read_text())
    for package in ast.literal_eval(f"[{packages[0]}]"):
        with pytest.raises(Refused, match="a package of Dovetail has this name"):
            check_name(package)


def test_a_folder_that_holds_something_is_left_alone(run: Run, here: Path) -> None:
    (here / "tickets").mkdir()
    (here / "tickets" / "mine").write_text("precious")
    done = run("new-family", "tickets")
    assert (done.code, done.out) == (1, "")
    assert "is not empty: nothing was written; choose another folder with --dir" in done.err
    assert written(here) == {"tickets/mine"}


@pytest.mark.parametrize("place", ["file", "file/below", "missing/below"])
def test_a_folder_that_cannot_be_is_refused(run: Run, here: Path, place: str) -> None:
    (here / "file").write_text("")
    done = run("new-family", "tickets", "--dir", place)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert written(here) == {"file"}


@pytest.mark.parametrize("there", [False, True])
def test_what_was_written_goes_when_the_rest_cannot_be(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    folder = here / "tickets"
    if there:
        folder.mkdir()
    moves = 0
    rename = Path.rename

    def full(path: Path, target: Path) -> Path:
        nonlocal moves
        moves += 1
        if moves == (3 if there else 1):
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", full)
    done = run("new-family", "tickets")
    assert (done.code, done.err) == (1, f"dovetail: cannot write {folder}: No space left on device\n")
    assert list(here.iterdir()) == ([folder] if there else [])
    assert not there or list(folder.iterdir()) == []


def test_the_unit_file_is_one(run: Run, here: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    assert run("new-family", "tickets").code == 0
    unit = here / "tickets" / "deploy" / "tickets.service"
    # The program that the unit starts is not on this machine.
    unit.write_text(unit.read_text().replace("/opt/dovetail/bin/dovetail", sys.executable))
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "tickets" in line]) == (0, [])


def _plugin_is_installed() -> bool:
    from importlib.metadata import entry_points

    return any(point.value == "dovetail.testing.pytest_plugin" for point in entry_points(group="pytest11"))
