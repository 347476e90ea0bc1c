"""Before a validator serves, it checks its key and sets up the garbage collector.

A REST API does not change the collector.
"""

from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.commands import rest_api, validator
from dovetail.validator import collector
from tests.dovetail.conftest import Run


def test_a_validator_of_a_ledger_that_lost_its_key_is_not_told_to_make_one(run: Run, tmp_path: Path) -> None:
    never = run("validator", "--data-dir", str(tmp_path))
    assert f"there is no key at {tmp_path}/keys/validator.priv; make one:" in never.err
    (tmp_path / "store").mkdir()
    lost = run("validator", "--data-dir", str(tmp_path))
    assert (never.code, lost.code, lost.err.count("\n")) == (1, 1, 1)
    assert f"the node's key {tmp_path}/keys/validator.priv is missing: put it back from where you keep it" in lost.err


@pytest.mark.parametrize(("part", "seldom"), [("validator", 1), ("rest-api", 0)])
def test_only_the_validator_collects_seldom(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, seldom: int
) -> None:
    """In a REST API each connection may leave a reference cycle that holds its data."""
    done: list[str] = []

    def serve(*_: Any) -> None:
        done.append("served")

    for module in (validator, rest_api):
        monkeypatch.setattr(module, "start_part", lambda *_: None)
        monkeypatch.setattr(module, "run_part", serve)
    monkeypatch.setattr(collector, "collect_seldom", lambda: done.append("seldom"))
    monkeypatch.setattr(validator, "collect_seldom", lambda: done.append("seldom"))
    key = tmp_path / "validator.priv"
    key.write_text("11" * 32 + "\n")
    key.chmod(0o600)
    options = ("--data-dir", str(tmp_path), "--key-file", str(key)) if part == "validator" else ()
    assert run(part, *options).code == 0
    assert done == seldom * ["seldom"] + ["served"]
