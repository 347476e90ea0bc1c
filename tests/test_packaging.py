"""The distribution's name, typed packages, locked versions, and the list of slow tests."""

import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import NOT_SLOW, SLOW

ROOT = Path(__file__).parent.parent
DECLARED: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT: dict[str, Any] = DECLARED["project"]
PACKAGES: list[str] = DECLARED["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
LOCK = (ROOT / "requirements-dev.txt").read_text(encoding="utf-8")
LOCKED = re.findall(r"(?m)^([\w.-]+)==(\S+)", LOCK)
IMAGE_LOCKS = [ROOT / "deploy" / "compose" / name for name in ("requirements.txt", "build-requirements.txt")]


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_of_others_see_the_types(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_a_new_family_depends_on_this_distribution() -> None:
    written = (ROOT / "dovetail" / "cli" / "templates" / "family" / "pyproject.toml.in").read_text(encoding="utf-8")
    assert f'dependencies = ["{PROJECT["name"]}"]' in written
    assert distribution(PROJECT["name"]).version == PROJECT["version"]


def test_every_dependency_is_locked_at_a_version_that_is_allowed() -> None:
    extras = PROJECT["optional-dependencies"].values()
    for line in (*PROJECT["dependencies"], *(line for extra in extras for line in extra)):
        wanted = Requirement(line)
        locked = [version for name, version in LOCKED if name == canonicalize_name(wanted.name)]
        assert locked, f"{line} is not in requirements-dev.txt: tox -e lock"
        assert all(wanted.specifier.contains(version) for version in locked), f"{line}, locked: {locked}: tox -e lock"


def test_the_lock_file_has_hashes_and_no_addresses() -> None:
    assert len(LOCKED) > 50
    assert all("--hash=sha256:" in entry for entry in re.split(r"(?m)^(?=[\w.-]+==)", LOCK)[1:])
    assert "://" not in LOCK


def test_the_image_has_every_dependency_in_the_version_that_was_tested() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in IMAGE_LOCKS)
    locked = set(re.findall(r"(?m)^([\w.-]+)==(\S+)", text))
    assert locked <= set(LOCKED), "tox -e lock"
    names = {name for name, _ in locked}
    for line in (*PROJECT["dependencies"], *DECLARED["build-system"]["requires"]):
        assert canonicalize_name(Requirement(line).name) in names, f"{line} is not locked: tox -e lock"
    assert "pytest" not in names
    assert all("--hash=sha256:" in entry for entry in re.split(r"(?m)^(?=[\w.-]+==)", text)[1:])
    assert "://" not in text


@pytest.mark.parametrize("entry", [*SLOW, *NOT_SLOW])
def test_what_is_listed_as_slow_is_there(entry: str) -> None:
    path, *names = entry.split("::")
    assert (ROOT / path).exists()
    text = (ROOT / path).read_text(encoding="utf-8") if names else ""
    assert all(re.search(rf"(?:def|class) {name}\b", text) for name in names), entry
