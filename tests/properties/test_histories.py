"""Four nodes run the same decided blocks and get the same ids, roots and receipts, whatever their processors do."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from dovetail.validator.blocks.given import GivenRun
from dovetail.validator.blocks.production import Production
from dovetail.validator.core.journal import rules
from dovetail.validator.core.journal.rules import Body
from tests.properties.histories import Broken, quiet, run_history

SEEDS = 60


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("processor_sdk.apply.dispatch")
    level = logger.level
    quiet()
    yield
    structlog.reset_defaults()
    logger.setLevel(level)


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_nodes_of_a_network_agree(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 10):
        run_history(seed, tmp_path / str(seed))


def _finds(tmp_path: Path) -> bool:
    for seed in range(30):
        try:
            run_history(seed, tmp_path / str(seed))
        except (Broken, AssertionError):
            return True
    return False


def test_a_verdict_for_want_of_a_processor_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GivenRun, "trouble", lambda self: None)
    assert _finds(tmp_path)


def test_a_rule_that_looks_into_the_queue_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken rule: a missing dependency counts as met if a pending batch of this node holds it."""
    production: list[Production] = []
    start = Production._start_given

    def started(self: Production, *arguments: object, **words: object) -> None:
        production[:] = [self]
        start(self, *arguments, **words)  # type: ignore[arg-type]

    check = Body.check

    def local(self: Body, batch: object) -> object:
        verdict = check(self, batch)  # type: ignore[arg-type]
        dependency = getattr(verdict, "dependency", None)
        held = production and dependency is not None and production[0]._queue.holds(dependency)
        return None if held else verdict

    monkeypatch.setattr(Production, "_start_given", started)
    monkeypatch.setattr(rules.Body, "check", local)
    assert _finds(tmp_path)


def test_a_list_that_is_run_in_another_order_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish = Production._start_given

    def reversed_list(self: Production, proposal: object, **words: object) -> None:
        turned = proposal._replace(batches=proposal.batches[::-1])  # type: ignore[attr-defined]
        finish(self, turned, **words)  # type: ignore[arg-type]
        if self._given is not None:
            self._given.proposal = proposal  # type: ignore[assignment]

    monkeypatch.setattr(Production, "_start_given", reversed_list)
    assert _finds(tmp_path)
