"""The registration of a family: its build id, whether it migrates, and the answers that accept it."""

import hashlib
import importlib
import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from processor_sdk import Context, Transaction, TransactionHandler
from processor_sdk.runtime import TransactionProcessor
from processor_sdk.sawtooth import adapted
from processor_sdk.worker.registration import Registration, build_of, refusal
from protos.processor_pb2 import TpRegisterRequest, TpRegisterResponse

SOURCE = """
from processor_sdk import Context, Transaction, TransactionHandler

class Handler(TransactionHandler[bytes]):
    family_name = "built"
    family_version = "1.0"
    namespaces = ("built",)

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        pass
"""


class Here(TransactionHandler[bytes]):
    family_name = "built"
    family_version = "1.0"
    namespaces = ("built",)

    def apply(self, transaction: Transaction[bytes], context: Context) -> None: ...


class Migrating(Here):
    def migrate(self, context: Any) -> None: ...


class Legacy:
    """A 1.x handler."""

    family_name = "old"
    family_versions = ("1.0",)
    namespaces = ("ab" * 3,)

    def apply(self, transaction: Any, context: Any) -> None: ...


def digest(path: Path) -> str:
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"


def registered(handler: TransactionHandler[Any], build_id: str | None) -> TpRegisterRequest:
    return TpRegisterRequest.FromString(Registration(handler, 7, build_id).content)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which a distribution ``built-family`` has installed its package ``built_family``."""
    package = tmp_path / "built_family"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "rules.py").write_text(SOURCE)
    info = tmp_path / "built_family-1.4.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: built-family\nVersion: 1.4.2\n")
    (info / "RECORD").write_text("built_family/__init__.py,,\nbuilt_family/rules.py,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("built_family")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (TpRegisterResponse(status="OK", protocol_version=1, packed_version=2), None),
        (TpRegisterResponse(status="OK"), None),
        (TpRegisterResponse(), None),
        (TpRegisterResponse(status="OK", protocol_version=2), "the validator speaks protocol version 2"),
        (TpRegisterResponse(status="ERROR"), "status 2, no reason given"),
        (TpRegisterResponse(status="ERROR", message="too many"), "too many"),
    ],
)
def test_a_validator_of_release_1_0_names_no_protocol_version(answer: TpRegisterResponse, said: str | None) -> None:
    found = refusal(answer.SerializeToString())
    assert found is None if said is None else said in str(found)


def test_the_build_of_an_uninstalled_module_is_the_digest_of_its_source() -> None:
    assert build_of(Here()) == digest(Path(__file__))


def test_the_build_of_an_installed_package_is_its_version(site: Path) -> None:
    assert build_of(importlib.import_module("built_family.rules").Handler()) == "1.4.2"


def test_the_build_of_an_editable_install_is_the_digest(site: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The version stays the same while the code changes."""
    elsewhere = tmp_path_factory.mktemp("project")
    (site / "built_family").rename(elsewhere / "built_family")
    sys.path.insert(0, str(elsewhere))
    try:
        handler = importlib.import_module("built_family.rules").Handler()
    finally:
        sys.path.remove(str(elsewhere))
    assert build_of(handler) == digest(elsewhere / "built_family" / "rules.py")


def test_the_build_of_a_project_beside_its_egg_info_is_the_digest(site: Path) -> None:
    """setuptools leaves an egg-info folder after an editable install of a flat project, and after a build."""
    info = site / "built_family-1.4.2.dist-info"
    (info / "METADATA").rename(info / "PKG-INFO")
    (info / "RECORD").rename(info / "SOURCES.txt")
    info.rename(site / "built_family.egg-info")
    handler = importlib.import_module("built_family.rules").Handler()
    assert importlib.metadata.version("built_family") == "1.4.2"
    assert build_of(handler) == digest(site / "built_family" / "rules.py")


def test_the_build_of_a_1x_handler_is_that_of_the_authors_code() -> None:
    (handler,) = adapted(Legacy())
    assert build_of(handler) == digest(Path(__file__))


def test_the_build_of_a_class_without_a_source_is_empty() -> None:
    scope: dict[str, Any] = {"__name__": "typed_in"}
    exec(SOURCE, scope)
    assert build_of(scope["Handler"]()) == ""


@pytest.mark.parametrize(("given", "sent"), [("7f3a", "7f3a"), ("", ""), (None, digest(Path(__file__)))])
def test_a_registration_carries_the_build(given: str | None, sent: str) -> None:
    assert registered(Here(), given).build_id == sent


def test_a_registration_tells_whether_the_handler_migrates() -> None:
    assert (registered(Here(), "").migrates, registered(Migrating(), "").migrates) == (False, True)


def test_a_build_id_is_bounded() -> None:
    TransactionProcessor("tcp://127.0.0.1:1", build_id="x" * 256)
    with pytest.raises(ValueError, match="build_id has 257 characters; at most 256 are allowed"):
        TransactionProcessor("tcp://127.0.0.1:1", build_id="x" * 257)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("a\ud800", r"build_id is 'a\\ud800', which holds halves"),
        (b"7f3a", "build_id is bytes, not text"),
        (7, "is int"),
    ],
)
def test_a_build_id_is_text(given: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TransactionProcessor("tcp://127.0.0.1:1", build_id=given)
