"""Handlers that misbehave: the submitter or the log learns the reason, and other families continue.

``bad_family`` lists what its handler does wrong (its misdeeds). For each, these tests check the verdict of
``GET /batch_status`` and the lines of the logs. All run in turn on one node and one processor: no misdeed may affect
the next transaction.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.system.e2e.bad_family import ELSEWHERE, FAMILY, FOREIGN, HANDLER, LEAF, MISDEEDS
from tests.system.e2e.clients import Api, Author
from tests.system.e2e.network import Network
from tests.system.e2e.process import Process
from tests.system.independent.client import Batch

APPLY_TIMEOUT_MS = 500
MEMORY_MIB_MAX = 1024
TRIES = 2
TOO_LONG = f"apply of {FAMILY} 1.0 took longer than {APPLY_TIMEOUT_MS} ms"
REPLACED = r"worker 0 \(process \d+\) ended with .*; replaced in"


class Verdict(NamedTuple):
    """Details for the submitter: a ``reason`` of API.md, and a part of the message.

    ``logged``: part of the processor's log.
    """

    reason: str
    said: str
    logged: str = ""


def _failed(said: str, logged: str = "") -> Verdict:
    """The family gives no verdict: the batch is tried again, then given up with the last failure."""
    return Verdict("internal_error", f"failed {TRIES} times, the last time with: {said}", logged or said)


def _invalid(said: str) -> Verdict:
    return Verdict("invalid_transaction", said)


JUDGED = {
    "raises an Exception": _failed("ZeroDivisionError: by zero"),
    "raises a BaseException": _failed("Anything: any"),
    "raises SystemExit": _failed("SystemExit: 3"),
    "raises KeyboardInterrupt": _failed("KeyboardInterrupt: no key was pressed"),
    "raises RecursionError": _failed("RecursionError: maximum recursion depth exceeded"),
    "raises MemoryError": _failed("MemoryError: ", "MemoryError"),
    "raises GeneratorExit": _failed("GeneratorExit: ", "GeneratorExit"),
    "raises StopIteration": _failed("StopIteration: ", "StopIteration"),
    "raises an unprintable error": _failed("Unprintable: (no message: its str() raised RuntimeError)", "Unprintable"),
    "raises InternalError": _failed("InternalError: not now"),
    "raises a long message": _invalid("x" * 4096),
    "calls sys.exit": _failed("SystemExit: enough"),
    "returns rubbish": _failed(f"TypeError: apply of {FAMILY} returned dict, not None"),
    "returns a refusal": _failed(f"TypeError: apply of {FAMILY} returned InvalidTransaction, not None"),
    "is a coroutine": _failed(f"TypeError: apply of {FAMILY} returned coroutine, not None"),
    "writes outside": _invalid(f"may not write {ELSEWHERE}: the transaction declares the outputs [{LEAF}]"),
    "writes to another family": _invalid(f"may not write {FOREIGN}"),
    "writes nowhere": _invalid("'no address' (10 characters) is no address"),
    "reads outside": _invalid(f"may not read {ELSEWHERE}: the transaction declares the inputs [{LEAF}]"),
    "deletes outside": _invalid(f"may not write {ELSEWHERE}"),
    "swallows refusals": _invalid(f"may not write {ELSEWHERE}"),
    "writes a text": _failed(f"TypeError: the entry for {LEAF} is str, not bytes"),
    "writes too much": _invalid("it wrote 5242880 bytes"),
    "reports too much": _invalid("its receipt has"),
    "writes more than a message": _invalid("it writes 41943126 bytes"),
    "reports more than a message": _invalid("bytes of state, receipt data and events"),
    "spoils its context": _failed("TypeError: expected bytes, str found"),
    "allocates": _failed("MemoryError", "MemoryError"),
    "loops": _failed(TOO_LONG, "bad_family.py, line"),
    "sleeps": _failed(TOO_LONG, "in _sleeps"),
    "waits for nothing": _failed(TOO_LONG, "in _waits_for_nothing"),
    "catches everything": _failed(TOO_LONG, "in _catches_everything"),
    "asks itself to end": _failed(TOO_LONG, "in _asks_itself_to_end"),
}
"""The misdeeds after which the batch gets a verdict: its details."""

DEADLY = {
    "kills itself": "signal SIGKILL",
    "breaks memory": "signal SIGSEGV",
    "calls os._exit": "exit code 0",
    "closes everything": "ended with",
    "holds the interpreter": "gives no sign of life",
}
"""The misdeeds that kill their worker, and what the processor logs.

The batch gets no verdict: another machine might survive.
"""

HARMLESS = {
    "prints": b"printed",
    "starts threads": b"threads",
    "runs a loop": b"looped",
    "forks": b"forked",
    "forks and goes on twice": b"twice",
    "moves": b"moved",
    "keeps the context": b"kept",
    "closes stdout": b"closed",
    "is deaf to signals": b"deaf",
    "silences the log": b"silenced",
}
"""The misdeeds that harm their worker at most, so the transaction is applied. The most harmful misdeeds come last."""


class Node(NamedTuple):
    """A node with a processor of the bad family, and the correct processors of ``up``."""

    network: Network
    up: Process
    bad: Process
    api: Api
    author: Author

    def batch(self, payload: str) -> Batch:
        made = self.author.transaction(FAMILY, payload.encode(), inputs=[LEAF], outputs=[LEAF])
        return self.author.batch(made)

    def others_go_on(self) -> None:
        """Check that batches of another family commit meanwhile."""
        self.api.commit(self.author.batch(self.author.intkey("inc", "steady", 1)))

    def transcript(self) -> str:
        return self.network.transcript()


@pytest.fixture(scope="module")
def _node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    network = Network(
        tmp_path_factory.mktemp("bad"),
        DOVETAIL_LIMITS_INTERNAL_ERROR_TRIES_MAX=str(TRIES),
        DOVETAIL_LIMITS_INTERNAL_ERROR_BACK_OFF_MS="1",
        DOVETAIL_LIMITS_PROCESSOR_LOST_BACK_OFF_MS_MAX="10",
    )
    try:
        up = network.up()
        words = ("--apply-timeout-ms", str(APPLY_TIMEOUT_MS), "--memory-mib-max", str(MEMORY_MIB_MAX))
        bad = network.start("processor", HANDLER, "--connect", network.validator_url, *words, name="bad")
        bad.wait_logged("ready")
        api, author = Api(network.rest_url), Author("bad handlers")
        api.commit(author.batch(author.intkey("set", "steady", 0)))
        yield Node(network, up, bad, api, author)
        api.close()
        # After all misdeeds, the processor still ends in order.
        assert bad.terminate() == 0
    finally:
        network.close()


@pytest.fixture
def node(_node: Node) -> Iterator[Node]:
    """The node for a row. After the row, the misdeed's own family must work again too."""
    yield _node
    good = _node.batch("behaves")
    _node.api.accept(good)
    assert _node.api.settle(good) == ["COMMITTED"]
    assert _node.api.leaf(LEAF) == b"behaved"


def test_each_misdeed_has_its_row() -> None:
    assert sorted([*JUDGED, *DEADLY, *HARMLESS]) == sorted(MISDEEDS)


@pytest.mark.parametrize("misdeed", JUDGED)
def test_misdeed_ends_in_a_verdict(node: Node, misdeed: str) -> None:
    expected, batch, mark = JUDGED[misdeed], node.batch(misdeed), len(node.bad.lines)
    before = node.api.leaf(LEAF)
    node.api.accept(batch)
    node.others_go_on()
    assert node.api.settle(batch) == ["INVALID"]
    details = node.api.details(batch)
    assert details["reason"] == expected.reason
    assert expected.said in details["message"]
    assert node.api.leaf(LEAF) == before
    if expected.reason == "invalid_transaction":
        assert details["transaction_id"] == batch.transactions[0].id
        return
    line = node.bad.wait_for_line(re.escape(expected.logged), after=mark).logged
    said_of = {name: line[name] for name in ("transaction", "batch", "family", "version")}
    assert said_of == {"transaction": batch.transactions[0].id, "batch": batch.id, "family": FAMILY, "version": "1.0"}
    if expected.said.endswith(TOO_LONG):
        node.bad.wait_for_lines(REPLACED, TRIES, after=mark)


@pytest.mark.parametrize("misdeed", DEADLY)
def test_misdeed_that_kills_its_worker_is_reported_and_tried_again(node: Node, misdeed: str, tmp_path: Path) -> None:
    """WIRE.md, life of a processor, 4: the work of a lost processor goes to another processor or waits for one."""
    not_mended = tmp_path / "not mended"
    not_mended.touch()
    batch, mark, up_mark = node.batch(f"{misdeed} while {not_mended}"), len(node.bad.lines), len(node.up.lines)
    try:
        node.api.accept(batch)
        node.bad.wait_for_line(DEADLY[misdeed], after=mark)
        node.bad.wait_for_line(REPLACED, after=mark)
        node.up.wait_logged("processor left", after=up_mark, families=[f"{FAMILY} 1.0"])
        node.others_go_on()
        if misdeed != "holds the interpreter":  # This misdeed takes long every time.
            told = "processor lost with a batch alone, it is tried again"
            node.up.wait_logged(told, after=up_mark, batch_id=batch.id)
            node.others_go_on()
            details = node.api.details(batch)
            assert re.fullmatch(
                r"its processor was lost \d+ times while it applied this batch alone, or gave no answer within 60000 ms"
                r" \(task_answer_ms_max\)",
                details["message"],
            )
        assert node.api.words(batch) == ["PENDING"]
    finally:
        not_mended.unlink()
    assert node.api.settle(batch) == ["COMMITTED"]


def test_what_is_printed_is_logged(node: Node) -> None:
    """The output of a handler's prints becomes log lines, with the id of the transaction that printed it."""
    mark, batch = len(node.bad.lines), node.batch("prints")
    node.api.commit(batch)
    line = node.bad.wait_for_line("line 499 of a handler's output", after=mark)
    assert line.logged["batch"] == batch.id


@pytest.mark.parametrize("misdeed", HARMLESS)
def test_misdeed_that_spoils_nothing_else(node: Node, misdeed: str) -> None:
    batch = node.batch(misdeed)
    node.api.accept(batch)
    node.others_go_on()
    assert node.api.settle(batch) == ["COMMITTED"]
    assert node.api.leaf(LEAF) == HARMLESS[misdeed]
