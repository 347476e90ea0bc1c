"""``processors``: the table of connected processors, once or with --watch."""

import json
import os
import pty
import signal
import sys
import threading
from typing import Any

import pytest

from dovetail.cli import printing
from tests.dovetail.conftest import FakeApi, Run

_PATH = "GET /status/processors"


def _family(version: str, build_id: str) -> dict[str, Any]:
    return {
        "family_name": "intkey",
        "family_version": version,
        "build_id": build_id,
        "migrates": False,
        "namespaces": ["1cf126"],
    }


def _entry(**members: Any) -> dict[str, Any]:
    return {
        "connection_id": "ab" * 16,
        "state": "takes_work",
        "families": [_family("1.0", "7f3a"), _family("2.0", "")],
        "packed_version": 1,
        "max_occupancy": 512,
        "in_flight": {"tasks": 2, "transactions": 300},
        "done": 41,
        "invalid": 3,
        "internal_errors": 1,
        "apply_ms": {"p50": 0.0312, "p95": 0.5, "p99": 12.345},
        "connected_s": 9.5,
        "last_heard_s": 0.25,
        **members,
    }


def _answer(api: FakeApi, *entries: Any) -> None:
    api.answers[_PATH] = (200, {"data": list(entries), "link": ""})


@pytest.fixture(autouse=True)
def _url(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_URL", api.url)
    monkeypatch.setattr(printing, "WATCH_S", 0.01)


def test_each_family_has_a_row_and_the_connection_stands_in_the_first(run: Run, api: FakeApi) -> None:
    legacy = _entry(families=[_family("1.0", "1.x")], state="draining", packed_version=0, connection_id="00")
    del legacy["apply_ms"]
    _answer(api, _entry(), legacy)
    done = run("processors")
    assert (done.code, done.err) == (0, "")
    heading, *rows = (line.split() for line in done.out.splitlines())
    assert heading[:4] == ["FAMILY", "VERSION", "BUILD", "STATE"]
    counts = ["300", "of", "512", "41", "3", "1"]
    assert rows == [
        ["intkey", "1.0", "7f3a", "takes", "work", *counts, "0.0312", "0.5", "12.3", "packed", "0.2", "s", "ago",
         f"{'ab' * 8}…"],
        ["intkey", "2.0", "-"],
        ["intkey", "1.0", "1.x", "draining", *counts, "-", "1.x", "0.2", "s", "ago", "00"],
    ]  # fmt: skip


def test_the_nodes_own_processor_and_one_that_is_not_needed_are_told_apart(run: Run, api: FakeApi) -> None:
    settings = {**_family("1.0", ""), "family_name": "sawtooth_settings"}
    own = _entry(families=[settings], in_process=True, connection_id="", max_occupancy=64)
    _answer(api, own, _entry(families=[{**settings, "idle": True}]))
    _, first, second = (line.split() for line in run("processors").out.splitlines())
    assert first[:5] == ["sawtooth_settings", "1.0", "-", "takes", "work"]
    assert first[-4:] == ["in", "node", "-", "-"]
    assert second[:5] == ["sawtooth_settings", "1.0", "-", "not", "needed"]
    _answer(api, own)
    alone = run("processors")
    assert (alone.code, len(alone.out.splitlines())) == (1, 2)
    assert "no processor is connected" in alone.err


def test_json_is_what_the_node_said(run: Run, api: FakeApi) -> None:
    _answer(api, _entry())
    done = run("processors", "--json")
    assert (done.code, json.loads(done.out)) == (0, [_entry()])


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_nobody_is_an_exit_code_and_advice(run: Run, api: FakeApi, words: list[str]) -> None:
    _answer(api)
    done = run("processors", *words)
    assert (done.code, done.out) == (1, "[]\n" if words else "")
    assert "no processor is connected: start one with `dovetail processor" in done.err


@pytest.mark.parametrize("entry", [{}, [], {**_entry(), "families": [{}]}, {**_entry(), "in_flight": 7}, 3])
def test_what_is_no_rest_api_of_ours(run: Run, api: FakeApi, entry: Any) -> None:
    _answer(api, entry)
    done = run("processors")
    assert (done.code, done.out) == (1, "")
    assert "answered, but not as Dovetail's REST API does" in done.err


def test_nothing_of_an_answer_steers_the_terminal(run: Run, api: FakeApi) -> None:
    _answer(api, _entry(families=[_family("\x1b[31m", "\x9b")], state="\x1b[2J"))
    done = run("processors")
    assert done.code == 0
    assert not {"\x1b", "\x9b"} & set(done.out)


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_watching_is_for_a_terminal(run: Run, api: FakeApi, words: list[str]) -> None:
    done = run("processors", "--watch", *words)
    assert done.code == 2
    assert "--watch is for a terminal" in done.err
    assert api.requests == []


def test_watching_goes_on_over_a_node_that_is_away_until_ctrl_c(
    run: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal shows a table, then no processor, an error, and a table again.

    Ctrl-C ends the command with exit code 0.
    """
    looks = 0

    def next_look() -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            _answer(api, _entry(done=1111))
        elif looks == 2:
            _answer(api)
        elif looks == 3:
            api.refuse(_PATH, 503, 18, "Validator Disconnected", "gone")
        elif looks == 4:
            _answer(api, _entry(done=4444, state="draining"))
        elif looks == 5:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    api.on_request = next_look
    main, terminal = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(main, 65_536):
                shown.append(data)
        except OSError:
            return  # The command's side of the terminal is closed.

    reader = threading.Thread(target=read)
    reader.start()
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(terminal, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert run("processors", "--watch").code == 0
        monkeypatch.undo()
    reader.join()
    os.close(main)
    text = b"".join(shown).decode()
    found = [text.index(part) for part in ("1111", "no processor is connected", "gone", "4444")]
    assert found == sorted(found)
    assert "draining" in text
    assert "Traceback" not in text
