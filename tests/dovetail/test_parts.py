"""What each part of a node has done in its process before it serves."""

from pathlib import Path
from typing import Any

import pytest

from dovetail.commands import parts
from validator import collector

from .conftest import Run


@pytest.mark.parametrize(("part", "seldom"), [("validator", 1), ("rest-api", 0)])
def test_only_the_validator_collects_seldom(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, seldom: int
) -> None:
    """In a REST API each connection may make a cycle that holds what it sent."""
    done: list[str] = []

    def serve(*_: Any) -> None:
        done.append("served")

    monkeypatch.setattr(parts, "start_part", lambda *_: (None, None))
    monkeypatch.setattr(parts, "_run", serve)
    monkeypatch.setattr(collector, "collect_seldom", lambda: done.append("seldom"))
    key = tmp_path / "validator.priv"
    key.write_text("11" * 32 + "\n")
    key.chmod(0o600)
    options = ("--data-dir", str(tmp_path), "--key-file", str(key)) if part == "validator" else ()
    assert run(part, *options).code == 0
    assert done == seldom * ["seldom"] + ["served"]
