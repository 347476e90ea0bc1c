"""``status``: one table from several answers, and an exit code for scripts."""

import json
import re
from typing import Any

import pytest

from tests.dovetail.conftest import FakeApi, Run

_HEAD = "ab" * 64


def _totals(count: int) -> dict[str, Any]:
    return {
        "timestamp": "2026-01-01T00:00:00Z",
        "blocks": {"committed": count, "rolledback": 0, "claimed": count},
        "batches": {"committed": count + 1, "rolledback": 0, "invalid": count + 2},
        "transactions": {"committed": count + 3, "rolledback": 0, "invalid": count + 4},
        "rollbacks": 0,
    }


@pytest.fixture(autouse=True)
def _answers(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_URL", api.url)
    config = {
        "validator": {"bind": "tcp://127.0.0.1:4004", "version": "1.2"},
        "rest_api": {"body_bytes_max": 99},
        "limits": {"pending_batches_max": 77, "block_transactions_max": 55},
    }
    metrics = b"""dovetail_validator_pending_batches{reason="queued"} 0.0
dovetail_validator_pending_batches{reason="waiting_for_processor"} 3.0
dovetail_validator_processors{family="intkey",version="1.0"} 2.0
dovetail_validator_processors{family="notes",version="1"} 0.0
"""
    api.answers["GET /metrics"] = (200, metrics)
    ready = {"status": "ready", "head_id": _HEAD, "head_num": 12, "pending_batches": 3}
    api.answers["GET /readyz"] = (200, {"data": ready, "link": ""})
    api.answers["GET /stats/validator"] = (200, {"data": {**_totals(10), "intkey:1.0": _totals(20)}, "link": ""})
    api.answers["GET /status/config"] = (200, {"data": config, "link": ""})


def test_a_node_that_is_ready(run: Run, api: FakeApi) -> None:
    done = run("status")
    assert (done.code, done.err) == (0, "")
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0][2:] == [f"{api.url},", "ready"]
    assert lines[1] == ["head", "block", "12,", f"{_HEAD[:16]}…"]
    assert "3 of at most 77 batches: 3 waiting_for_processor\n" in done.out
    assert lines[3] == ["processors", "2", "of", "intkey:1.0"]
    assert not any(line.endswith(" ") for line in done.out.splitlines())
    assert lines[-2:] == [["all", "10", "11", "12", "13", "14"], ["intkey:1.0", "20", "21", "22", "23", "24"]]


def test_a_node_that_does_not_work_as_it_should(run: Run, api: FakeApi) -> None:
    held = {"condition": "no_block", "seconds": 31.5, "message": "start it again"}
    api.answers["GET /readyz"][1]["data"] |= {"status": "degraded", "conditions": [held]}
    done = run("status")
    assert (done.code, done.err) == (0, "")
    assert f"{api.url}, degraded\n" in done.out
    assert ["no_block", "start", "it", "again"] in [line.split() for line in done.out.splitlines()]


def test_a_node_without_genesis(run: Run, api: FakeApi) -> None:
    api.refuse("GET /readyz", 503, 15, "Validator Not Ready", "no genesis")
    done = run("status")
    assert (done.code, done.err) == (1, "dovetail: not ready: Validator Not Ready: no genesis (code 15)\n")
    assert "not ready" in done.out
    assert "intkey:1.0" in done.out
    assert json.loads(run("status", "--json").out)["ready"] is False


def test_a_lost_validator(run: Run, api: FakeApi) -> None:
    api.refuse("GET /readyz", 503, 18, "Validator Disconnected", "gone")
    assert run("status") == (1, "", "dovetail: Validator Disconnected: gone (code 18)\n")


def test_that_no_processor_is_there_is_said(run: Run, api: FakeApi) -> None:
    api.answers["GET /metrics"] = (200, b'dovetail_validator_pending_batches{reason="queued"} 3\n')
    assert re.search(r"(?m)^processors +none$", run("status").out)


def test_json_has_everything(run: Run) -> None:
    told = json.loads(run("status", "--json").out)
    assert (told["ready"], told["head_num"], told["pending_batches"]) == (True, 12, 3)
    assert told["stats"]["intkey:1.0"] == _totals(20)
    assert told["config"]["limits"]["pending_batches_max"] == 77
    assert told["head_id"] == _HEAD
    assert (told["pending_by_reason"], told["processors"]) == ({"waiting_for_processor": 3}, {"intkey:1.0": 2})


@pytest.mark.parametrize("answer", [(403, {}), (200, b"<html>"), (200, b"a{b=} 1")])
def test_metrics_that_a_proxy_keeps_are_left_out(run: Run, api: FakeApi, answer: tuple[int, Any]) -> None:
    api.answers["GET /metrics"] = answer
    done = run("status")
    assert (done.code, done.err) == (0, "")
    assert "3 of at most 77 batches\n" in done.out
    assert "processors" not in done.out


@pytest.mark.parametrize("answer", [{"data": []}, {"data": {}}, {}])
def test_what_is_no_rest_api_of_ours(run: Run, api: FakeApi, answer: object) -> None:
    api.answers["GET /stats/validator"] = (200, answer)
    done = run("status")
    assert done.code == 1
    assert done.err.startswith("dovetail: ")
    assert "Traceback" not in done.err


def test_nothing_of_an_answer_steers_the_terminal(run: Run, api: FakeApi) -> None:
    api.answers["GET /stats/validator"] = (200, {"data": {**_totals(1), "\x1b[31m:1": _totals(2)}, "link": ""})
    assert "\x1b" not in run("status").out
