"""``batch drop``: what is asked at the validator's port, what is shown, and what is refused before or after."""

import io
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from google.protobuf.message import Message

from dovetail.cli import validator_port
from protos.node_pb2 import NotAllowed, PendingDropRequest, PendingDropResponse
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.conftest import Run

KEY = "02" + "ab" * 32
ID = "cd" * 64


class Validator:
    """Answers each request with the next of ``answers``, in a thread. ``asked``: what came."""

    def __init__(self) -> None:
        self.asked: list[PendingDropRequest] = []
        self.answers: list[Message] = []
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.set(zmq.LINGER, 0)
        self.url = f"tcp://127.0.0.1:{self._router.bind_to_random_port('tcp://127.0.0.1')}"
        self._end, self._ended = self._context.socket(zmq.PAIR), self._context.socket(zmq.PAIR)
        self._ended.bind("inproc://end")
        self._end.connect("inproc://end")
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        poller = zmq.Poller()
        for socket in (self._router, self._ended):
            poller.register(socket, zmq.POLLIN)
        while self._ended not in dict(poller.poll()):
            identity, frame = self._router.recv_multipart()
            request = Envelope.FromString(frame)
            assert request.message_type == Envelope.PENDING_DROP_REQUEST
            self.asked.append(PendingDropRequest.FromString(request.content))
            answer = self.answers.pop(0)
            refused = isinstance(answer, NotAllowed)
            # A late answer to somebody else's question is passed over.
            for name in ("another", request.correlation_id):
                told = Envelope(
                    message_type=Envelope.NOT_ALLOWED if refused else Envelope.PENDING_DROP_RESPONSE,
                    correlation_id=name,
                    content=answer.SerializeToString(),
                )
                self._router.send_multipart([identity, told.SerializeToString()])

    def will_say(self, **fields: Any) -> None:
        self.answers.append(PendingDropResponse(**{"status": "OK", **fields}))

    def close(self) -> None:
        self._end.send(b"")
        self._thread.join()
        self._context.destroy(0)


@pytest.fixture
def validator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Validator]:
    made = Validator()
    monkeypatch.setenv("DOVETAIL_REST_API_VALIDATOR", made.url)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(
    ("words", "request_"),
    [
        ([ID], PendingDropRequest(batch_ids=[ID])),
        (["--family", "intkey"], PendingDropRequest(family_name="intkey")),
        (["--family", "intkey@1.0"], PendingDropRequest(family_name="intkey", family_version="1.0")),
        (["--family", "a@b@1"], PendingDropRequest(family_name="a@b", family_version="1")),
        (["--key", KEY, "--reason", "spam"], PendingDropRequest(signer_pubkey=KEY, reason="spam")),
    ],
)
def test_what_is_named_is_dropped(
    run: Run, validator: Validator, words: list[str], request_: PendingDropRequest
) -> None:
    validator.will_say(batches=3)
    done = run("batch", "drop", *words, "--yes")
    assert (done.code, done.out, done.err) == (0, "dropped 3 batches\n", "")
    assert validator.asked == [request_]


def test_it_asks_until_nothing_is_left(run: Run, validator: Validator) -> None:
    validator.will_say(batches=1_000, left=500, executing=7)
    validator.will_say(batches=500)
    done = run("batch", "drop", "--key", KEY, "--yes", "--json")
    assert (done.code, json.loads(done.out)) == (0, {"dropped": 1_500, "executing": 0})


def test_without_yes_it_counts_and_asks(run: Run, validator: Validator, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for said, code in (("n\n", 1), ("y\n", 0)):
        monkeypatch.setattr(sys, "stdin", Terminal(said))
        validator.will_say(
            batches=2,
            executing=1,
            families=[PendingDropResponse.Family(family_name="f", family_version="1", batches=2)],
        )
        if not code:
            validator.will_say(batches=2)
        done = run("batch", "drop", "--family", "f")
        assert done.code == code
        assert "2 batches are pending, 1 more are in a block" in done.out
        assert "f@1" in done.out
        assert "Drop 2 pending batches? [y/N]" in done.err
        assert ("dropped 2 batches" in done.out) is (code == 0)
    assert [request.count_only for request in validator.asked] == [True, True, False]


def test_without_a_terminal_it_needs_a_yes(run: Run, validator: Validator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    validator.will_say(batches=2)
    done = run("batch", "drop", "--family", "f")
    assert (done.code, done.err) == (
        1,
        "dovetail: nobody is there to ask whether to drop 2 pending batches; say --yes\n",
    )


def test_a_dry_run_shows_who_fills_the_queue(run: Run, validator: Validator) -> None:
    for _ in range(2):
        validator.will_say(
            batches=5,
            families=[PendingDropResponse.Family(family_name="evil\n", family_version="1", batches=5)],
            signers=[PendingDropResponse.Signer(signer_pubkey=KEY, batches=4)],
        )
    done = run("batch", "drop", "--dry-run")
    assert done.code == 0
    assert [line.split() for line in done.out.splitlines()[2:]] == [
        ["BATCHES", "FAMILY", "OR", "KEY"], ["5", "evil\\n@1"], ["4", KEY],
    ]  # fmt: skip
    done = run("batch", "drop", "--dry-run", "--json")
    assert json.loads(done.out) == {
        "batches": 5,
        "executing": 0,
        "families": [{"family_name": "evil\n", "family_version": "1", "batches": 5}],
        "signers": [{"signer_pubkey": KEY, "batches": 4}],
    }
    assert [request.count_only for request in validator.asked] == [True, True]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "no such batch is pending"),
        ({"batches": 1, "executing": 2}, "2 batches stay, because a block with them is being made"),
        ({"status": "STORAGE_FAILED", "message": "full\n"}, "the validator refused: full\\n"),
        ({"status": "INVALID_REQUEST", "message": "no genesis"}, "the validator refused: no genesis"),
    ],
)
def test_what_is_not_done_is_told(run: Run, validator: Validator, fields: dict[str, Any], words: str) -> None:
    validator.will_say(**fields)
    done = run("batch", "drop", "--family", "f", "--yes")
    assert done.code == 1
    assert words in done.err


def test_a_key_without_the_right_is_told(run: Run, validator: Validator) -> None:
    validator.answers.append(NotAllowed(message="put the key under clients"))
    done = run("batch", "drop", "--family", "f", "--yes")
    assert (done.code, done.err) == (1, "dovetail: put the key under clients\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give batch ids, or --family, or --key"),
        ([ID, "--family", "f"], "one of the three"),
        (["--family", "f", "--json"], "--json asks nothing"),
        (["abc"], "abc is no batch id"),
        (["--key", "02ab"], "02ab is no public key"),
        ([""], "it is empty"),
        ([ID] * 1_001, "1001 ids are given, at most 1000"),
    ],
)
def test_wrong_usage_asks_nobody(run: Run, validator: Validator, words: list[str], said: str) -> None:
    done = run("batch", "drop", *words)
    assert done.code == 2
    assert said in " ".join(done.err.split())
    assert validator.asked == []


def test_nobody_there_is_told_at_once(run: Run, validator: Validator) -> None:
    done = run("batch", "drop", "--family", "f", "--yes", "--validator", "tcp://127.0.0.1:1")
    assert (done.code, done.err) == (
        1,
        "dovetail: no connection to the validator at tcp://127.0.0.1:1: nothing answers there\n",
    )


def test_silence_ends(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validator_port, "ANSWER_S_MAX", 0.1)
    with zmq.Context() as context, context.socket(zmq.ROUTER) as silent:
        port = silent.bind_to_random_port("tcp://127.0.0.1")
        done = run("batch", "drop", "--family", "f", "--yes", "--validator", f"tcp://127.0.0.1:{port}")
    assert done.code == 1
    assert "gave no answer within 0.1 s" in done.err


def test_keys_that_cannot_be_read_are_told(run: Run, validator: Validator, tmp_path: Path) -> None:
    words = ("--validator-key", str(tmp_path / "none.pub"), "--connection-key", str(tmp_path / "none.priv"))
    done = run("batch", "drop", "--family", "f", "--yes", *words)
    assert done.code == 1
    assert "none.priv" in done.err
