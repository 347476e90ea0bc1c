"""The loop that sends POSTs, against a server that answers as a test says."""

import asyncio

import pytest

from dovetail.bench.load.post_loop import Sent, send
from dovetail.bench.signed_load import Post
from dovetail.common.errors import Refused
from tests.dovetail.bench.answering import Answer, against

pytestmark = pytest.mark.timeout(120)

_POSTS = [Post(b"body %d" % number, (f"{number:0128x}",), 1) for number in range(40)]


def _send(answer: Answer, *, in_flight: int = 2, ahead: int = 40) -> tuple[Sent, int]:
    """The outcome of the 40 POSTs, and how many were reported as committed."""
    reported: list[int] = []
    sent = against(
        answer,
        lambda url: send(f"{url}/ledger", _POSTS, in_flight=in_flight, ahead=ahead, on_committed=reported.append),
    )
    return sent, sum(reported)


def _accept(target: str, _: bytes) -> tuple[int, dict[str, str], object]:
    assert target in ("/ledger/batches", "/ledger/batches?wait=300")
    return (201 if "wait" in target else 202), {}, {"link": ""}


def _number(body: bytes) -> int:
    return int(body.split()[1])


def test_every_post_is_sent_once_and_the_last_posts_are_followed() -> None:
    received, followed = [], []

    def answer(target: str, body: bytes) -> tuple[int, dict[str, str], object]:
        received.append(_number(body))
        if "wait" in target:
            followed.append(_number(body))
        return _accept(target, body)

    sent, committed = _send(answer)
    assert sorted(received) == list(range(40))
    assert sorted(followed) == [*range(0, 38, 2), 38, 39]
    assert (committed, len(sent.latencies_s), sent.refusals) == (40, len(followed), 0)
    assert all(0 < latency <= sent.seconds for latency in sent.latencies_s)


def test_no_post_is_sent_further_ahead_of_the_last_commit_than_allowed() -> None:
    received = []

    def answer(target: str, body: bytes) -> tuple[int, dict[str, str], object]:
        received.append(_number(body))
        return _accept(target, body)

    _send(answer, ahead=1)
    assert received == list(range(40))


def test_a_refused_post_is_sent_again() -> None:
    refused = {0: 2, 5: 1, 39: 1}
    received = []

    def answer(target: str, body: bytes) -> tuple[int, dict[str, str], object]:
        number = _number(body)
        received.append(number)
        if refused.get(number):
            refused[number] -= 1
            return 429, {"Retry-After": "0"}, {}
        return _accept(target, body)

    sent, _ = _send(answer)
    assert sent.refusals == 4
    assert sorted(received) == sorted([*range(40), 0, 0, 5, 39])


@pytest.mark.parametrize(
    ("status", "content", "reason"),
    [
        (400, {"error": {"title": "Submitted Batches Invalid", "message": "bad key"}}, "400 Submitted .*: bad key"),
        (200, {"data": {"aa": "COMMITTED", "bb": "INVALID"}, "details": {"bb": {"reason": "x"}}}, "bb is INVALID: .*x"),
        (200, {"data": {"aa": "PENDING"}}, "did not commit within 300 s, aa is PENDING"),
        (502, "a page", "502, not as Dovetail's REST API does"),
        (0, None, "closed a connection"),
    ],
)
def test_any_other_answer_ends_the_run_with_its_reason(status: int, content: object, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        _send(lambda target, body: (status, {}, content) if _number(body) == 4 else _accept(target, body))


def test_nobody_listens() -> None:
    with pytest.raises(Refused, match=r"nothing answers at http://127\.0\.0\.1:1: "):
        asyncio.run(send("http://127.0.0.1:1", _POSTS, in_flight=1, ahead=1, on_committed=lambda _: None))
