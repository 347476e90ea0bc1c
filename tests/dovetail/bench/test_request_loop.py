"""The loop that sends requests, against a server that answers as a test says."""

import pytest

from dovetail.bench.request_loop import Asked, Following, ask
from dovetail.common.errors import Refused
from tests.dovetail.bench.answering import Answer, against

pytestmark = pytest.mark.timeout(120)

_REQUESTS = [b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(20)]
_IDS = [f"id{number}" for number in range(20)]


def _ask(answer: Answer, *, ahead: int | None = None) -> Asked:
    following = None if ahead is None else Following(_IDS, ahead)
    return against(answer, lambda url: ask(url, _REQUESTS, status="200", connections=3, following=following))


def _ok(_: str, __: bytes = b"") -> tuple[int, dict[str, str], object]:
    return 200, {}, {"data": 1}


def test_every_request_is_answered_once() -> None:
    targets: list[str] = []

    def answer(target: str, _: bytes) -> tuple[int, dict[str, str], object]:
        targets.append(target)
        return _ok(target)

    asked = _ask(answer)
    assert sorted(targets) == sorted(f"/{number}" for number in range(20))
    assert (len(asked.latencies_s), asked.refusals, asked.held_s) == (20, 0, 0.0)
    assert asked.settled_s == asked.seconds
    assert all(0 < latency <= asked.seconds for latency in asked.latencies_s)


def test_a_429_is_counted_and_the_request_sent_again() -> None:
    refused = {"/3": 2, "/19": 1}

    def answer(target: str, _: bytes) -> tuple[int, dict[str, str], object]:
        if refused.get(target):
            refused[target] -= 1
            return 429, {"Retry-After": "0"}, {}
        return _ok(target)

    asked = _ask(answer)
    assert (asked.refusals, len(asked.latencies_s)) == (3, 20)


def test_no_request_is_sent_further_ahead_of_the_last_commit_than_allowed() -> None:
    sent: list[int] = []
    committed = [-1]

    def answer(target: str, _: bytes) -> tuple[int, dict[str, str], object]:
        if target.startswith("/batch_status"):
            batch_id = target.partition("id=")[2].partition("&")[0]
            committed.append(int(batch_id[2:]))
            return 200, {}, {"data": {batch_id: "COMMITTED"}}
        sent.append(int(target[1:]))
        assert sent[-1] <= max(committed) + 2
        return _ok(target)

    asked = _ask(answer, ahead=2)
    assert sent == list(range(20))
    assert committed[-1] == 19
    assert asked.held_s > 0
    assert asked.settled_s >= asked.seconds


@pytest.mark.parametrize(
    ("status", "content", "reason"),
    [(503, "gone", 'GET /4 was answered 503: "gone"'), (0, None, "closed a connection")],
)
def test_any_other_answer_ends_the_run(status: int, content: object, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        _ask(lambda target, _: (status, {}, content) if target == "/4" else _ok(target))


@pytest.mark.parametrize(
    ("content", "reason"),
    [({"data": {"id0": "INVALID"}, "details": {"id0": "x"}}, "batch id0 is INVALID .*: x"), ([], "answered 200")],
)
def test_a_batch_that_does_not_commit_ends_the_run(content: object, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        _ask(lambda target, _: (200, {}, content) if "batch_status" in target else _ok(target), ahead=1)
