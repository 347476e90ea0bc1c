"""The options of ``bench load``, ``http`` and ``steps``."""

import sys
from pathlib import Path

import pytest

from tests.dovetail.conftest import Run


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("load", "--shape", "0"), "--shape"),
        (("load", "--keys", "0"), "--keys"),
        (("load", "--keys", "some"), "--keys"),
        (("load", "--conflict", "5", "--keys", "hot"), "raise --keys"),
        (("load", "--conflict", "101"), "--conflict"),
        (("load", "--families", "3", "--keys", "2"), "3 (--families)"),
        (("load", "--families", "16", "--processors", "5"), "80 processors"),
        (("load", "--families", "17"), "--families"),
        (("load", "--url", "http://127.0.0.1:1", "--processors", "2"), "starts itself"),
        (("load", "--url", "http://127.0.0.1:1", "--leaves", "9"), "starts itself"),
        (("load", "--url", "http://127.0.0.1:1", "--legacy"), "starts itself"),
        (("load", "--url", "http://127.0.0.1:1", "--families", "2"), "starts itself"),
        (("load", "--url", "http://127.0.0.1:1", "--parked", "2"), "starts itself"),
        (("load", "--url", "http://127.0.0.1:1", "--profile-validator", "x.prof"), "starts itself"),
        (("http", "--url", "http://127.0.0.1:1", "--processors", "2"), "starts itself"),
        (("http", "--url", "http://127.0.0.1:1", "--dir", "."), "starts itself"),
        (("load", "--plot", "curve.gif"), "must end in .png"),
        (("load", "--plot", "curve.png", "--pending", "0"), "raise it"),
        (("load", "--plot", "curve.png", "--pending", "100"), "raise it"),
        (("http", "--plot", "curve.png"), "No such option: --plot"),
        (("http", "--leaves", "5"), "No such option: --leaves"),
        (("http", "--shape", "2"), "No such option: --shape"),
        (("steps", "--per-post", "5"), "No such option: --per-post"),
        (("steps", "--url", "http://127.0.0.1:1"), "No such option: --url"),
        (("load", "--block", "5"), "No such option: --block"),
        (("load", "--requests", "5"), "No such option: --requests"),
        (("load", "--connections", "9"), "No such option: --connections"),
        (("--shape", "2"), "No such option: --shape"),
    ],
)
def test_wrong_options_are_refused(run: Run, arguments: tuple[str, ...], reason: str) -> None:
    outcome = run("bench", *arguments)
    assert outcome.code == 2
    assert reason in " ".join(outcome.err.replace("│", " ").split())


def test_without_a_word_the_group_shows_its_help(run: Run) -> None:
    outcome = run("bench")
    assert all(word in outcome.out + outcome.err for word in ("Commands", "load", "http", "steps"))


def test_a_plot_without_matplotlib_is_refused_before_anything_starts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    outcome = run("bench", "load", "--plot", "curve.png")
    assert outcome.code == 1
    assert outcome.err.strip().endswith("pip install 'dovetail-ledger[plot]'")


def test_a_wrong_setting_is_refused_before_anything_starts(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOVETAIL_LIMITS_BLOCK_TRANSACTIONS_MAX", "abc")
    outcome = run("bench", "load", "--transactions", "4", "--dir", str(tmp_path))
    assert (outcome.code, outcome.out) == (1, "")
    assert "DOVETAIL_LIMITS_BLOCK_TRANSACTIONS_MAX" in outcome.err
    assert "whole number" in outcome.err
    assert list(tmp_path.iterdir()) == []
