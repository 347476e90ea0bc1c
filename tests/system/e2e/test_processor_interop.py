"""Our processor, as a real process, at a validator that speaks only the 1.x protocol.

One row for each rule of WIRE.md that a processor must keep. ``test_processors`` and ``test_processor_at_validator``
test our validator. The validator here is ``tests/system/independent/bare_validator.py``: plain pyzmq.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest

from tests.system.e2e.clients import Author
from tests.system.e2e.network import ReservedPort
from tests.system.e2e.process import DEADLINE_S, Process
from tests.system.e2e.script_family import HANDLER, NAMESPACE, Gate, ScriptHandler, address, script
from tests.system.independent import protobuf_wire as wire
from tests.system.independent.bare_validator import BareValidator, Registered, Style, Verdict
from tests.system.independent.client import Transaction
from tests.system.independent.messages import Event, HeaderStyle, Message, MessageType, ProcessStatus, Status

FAMILY = ScriptHandler.family_name
A, B, C = (address(label) for label in ("interop a", "interop b", "interop c"))
FOREIGN = address("interop foreign", "abcdef")
OK, INVALID, INTERNAL = ProcessStatus.OK, ProcessStatus.INVALID_TRANSACTION, ProcessStatus.INTERNAL_ERROR
OVER_THE_LIMIT_BYTES = 32 * 1024 * 1024 + 1
AUTHOR = Author("interop")
NOTHING: Mapping[str, str] = MappingProxyType({})


class Ours(NamedTuple):
    """Our processor at the bare validator."""

    bare: BareValidator
    process: Process
    registered: Registered

    def run(self, row: "Row", style: Style | None = None) -> tuple[Verdict, dict[str, bytes]]:
        """Run the row's transaction. Returns the verdict, and the state after it."""
        made = row.transaction()
        state = {leaf: bytes.fromhex(data) for leaf, data in row.before.items()}
        verdict = self.bare.process(made.header_bytes, made.payload, made.signature, state, style, timeout=DEADLINE_S)
        return verdict, state


class Row(NamedTuple):
    """One transaction and its expected outcome."""

    rule: str
    steps: tuple[tuple[object, ...], ...]
    before: Mapping[str, str] = NOTHING
    after: Mapping[str, str] = NOTHING
    status: ProcessStatus = OK
    inputs: tuple[str, ...] = (A, B)
    outputs: tuple[str, ...] = (A, B)
    data: tuple[bytes, ...] = ()
    events: tuple[Event, ...] = ()
    said: str = ""
    extended_data: bytes = b""

    def transaction(self) -> Transaction:
        return AUTHOR.transaction(FAMILY, script(*self.steps), inputs=self.inputs, outputs=self.outputs)


ROWS = (
    Row("life of a processor, 3: OK", ()),
    Row("life 2, get: an entry for every address, without data where it is not set",
        (("expect", A, "01"), ("expect", B, None)), before={A: "01"}, after={A: "01"}),
    Row("life 2, get: an entry without bytes reads as none", (("expect", A, None),), before={A: ""}, after={A: ""}),
    Row("life 2, set", (("write", A, "0a", B, "0b"),), after={A: "0a", B: "0b"}),
    Row("life 2, set over what is there", (("write", A, "02"),), before={A: "01"}, after={A: "02"}),
    Row("life 2, set of no bytes", (("write", A, ""), ("expect", A, None)), after={A: ""}),
    Row("life 2, delete", (("remove", A, True), ("remove", B, False)), before={A: "01"}),
    Row("life 2, delete of an entry without bytes", (("remove", A, False),), before={A: ""}),
    Row("life 2: a transaction reads its own writes",
        (("write", A, "02"), ("expect", A, "02"), ("remove", A, True), ("expect", A, None), ("write", A, "03")),
        before={A: "01"}, after={A: "03"}),
    Row("life 2: inputs and outputs cover by prefix", (("expect", A, "01"), ("write", B, "02")), before={A: "01"},
        after={A: "01", B: "02"}, inputs=("",), outputs=(NAMESPACE,)),
    Row("life 2, receipt data, in its order, empty too", (("receipt", "01"), ("receipt", ""), ("receipt", "02")),
        data=(b"\x01", b"", b"\x02")),
    Row("life 2, event", (("event", "moved", [["from", "a"], ["from", "b"]], "cc"), ("event", "bare", [], "")),
        events=(Event("moved", (("from", "a"), ("from", "b")), b"\xcc"), Event("bare"))),
    Row("life 2: a read outside inputs", (("write", A, "01"), ("expect", C, None)), status=INVALID,
        said="may not read"),
    Row("life 2: a write outside outputs", (("write", A, "01"), ("write", C, "01")), status=INVALID,
        said="may not write"),
    Row("life 2: nothing of the request is written", (("swallow", ("write", A, "01", C, "01")),), status=INVALID,
        said="may not write"),
    Row("life 2: a write outside the namespaces registered", (("write", FOREIGN, "01"),), status=INVALID,
        outputs=("",), said="namespaces"),
    Row("life 3, INVALID_TRANSACTION: message and extended_data travel",
        (("write", A, "01"), ("receipt", "01"), ("invalid", "no ships: ✗", "c0ffee")), status=INVALID,
        said="no ships: ✗", extended_data=bytes.fromhex("c0ffee")),
    Row("life 3, INTERNAL_ERROR: not a verdict", (("write", A, "01"), ("no such step",)), status=INTERNAL,
        said="KeyError"),
)  # fmt: skip

STYLES: tuple[Style | None, ...] = (None, "RAW", "EXPANDED", "BOTH")
"""The header style of requests; None: as the processor wants. A validator without RAW always sends EXPANDED."""


def _start(url: str, *words: str) -> Process:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DOVETAIL_")}
    kept.pop("NOTIFY_SOCKET", None)
    words = ("processor", HANDLER, "--connect", url, "--log-format", "json", *words)
    return Process("our processor", [sys.executable, "-m", "dovetail", *words], kept)


@pytest.fixture(scope="module", params=[False, True], ids=["all fields", "terse"])
def standing(request: pytest.FixtureRequest) -> Iterator[Ours]:
    """One processor for all rows that leave it unchanged."""
    with BareValidator(terse=request.param) as bare:
        process = _start(bare.url)
        try:
            yield Ours(bare, process, bare.wait_for_registration(FAMILY, "1.0", DEADLINE_S))
        finally:
            process.close()
        assert bare.unknown == []
        assert bare.malformed == []


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_transaction(standing: Ours, row: Row, style: Style | None) -> None:
    verdict, after = standing.run(row, style)
    assert verdict.status == row.status, verdict.message
    assert {leaf: data.hex() for leaf, data in after.items()} == (row.after if row.status == OK else row.before)
    assert all(access.granted for access in verdict.accesses), "it sent a request that it can know to be refused"
    assert row.said in verdict.message
    assert verdict.extended_data == row.extended_data
    if row.status == OK:
        assert (verdict.receipt_data, verdict.events) == (row.data, row.events)


class TestRegistration:
    """WIRE.md, The life of a processor, 1."""

    def test_says_what_it_is(self, standing: Ours) -> None:
        registered = standing.registered
        assert (registered.namespaces, registered.protocol_version) == ((NAMESPACE,), 1)
        assert registered.header_style == HeaderStyle.RAW
        assert len(registered.identity) >= 16

    @pytest.mark.parametrize("occupancy", [1, 3])
    def test_occupancy_is_told_and_what_exceeds_it_is_served_too(self, ours: "Starter", occupancy: int) -> None:
        """max_occupancy is the number of transactions that the processor takes at once."""
        served = ours("--max-occupancy", str(occupancy))
        assert served.registered.max_occupancy == occupancy
        row = Row("many", (("write", A, "01"),))
        made = [row.transaction() for _ in range(occupancy * 20)]
        verdicts = [served.bare.submit(one.header_bytes, one.payload, one.signature, {}) for one in made]
        assert all(verdict.result(DEADLINE_S).ok for verdict in verdicts)

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            (wire.encode([(1, int(Status.OK)), (2, 2)]), "protocol version 2"),
            (wire.encode([(1, int(Status.ERROR)), (2, 1)]), "status 2"),
            (wire.encode([(1, 77), (2, 1)]), "status 77"),
            (b"\xff\xff", "no TpRegisterResponse"),
        ],
        ids=["another version", "ERROR", "an unknown status", "rubbish"],
    )
    def test_an_answer_that_is_no_agreement_is_said_and_it_asks_again(
        self, ours: "Starter", answer: bytes, said: str
    ) -> None:
        """The reply must have the request's protocol_version or none, and status OK or none."""
        ours.bare.refusals.extend([answer, answer])
        served = ours()
        assert len(ours.bare.registrations) == 3
        served.process.wait_for_lines(f"registration of {FAMILY}.*refused.*{said}", 2)
        # The processor logs "ready" after the accepted registration.
        served.process.wait_logged("ready")
        assert [line.logged["event"] for line in served.process.lines if line.logged.get("event") == "ready"] == [
            "ready"
        ]
        assert served.run(Row("after", ()))[0].ok

    def test_a_validator_that_never_answers_does_not_keep_it(self, ours: "Starter") -> None:
        ours.bare.refusals.append(None)
        process = ours.start()
        (registered,) = ours.bare.wait_for_registrations(1, DEADLINE_S)
        process.wait_for_line("waiting for the validator")
        # The validator answers nothing, but the processor still answers.
        ours.bare.ping(registered.identity, DEADLINE_S)
        assert process.count_logged("ready") == 0
        assert process.terminate() == 0

    def test_without_a_validator_it_waits_and_ends_when_told(self, ours: "Starter") -> None:
        ours.bare.stop()
        process = ours.start()
        process.wait_for_line("waiting for the validator")
        assert process.terminate() == 0


class TestPings:
    """WIRE.md, Transport: a PING_REQUEST at any time is answered, also while an apply runs."""

    def test_before_an_apply_in_it_and_after(self, ours: "Starter", gate: Gate) -> None:
        served = ours()
        assert served.bare.ping(served.registered.identity).running == ()
        verdict = _submit(served, ("hold", gate.port))
        gate.wait()
        for _ in range(3):
            assert len(served.bare.ping(served.registered.identity, DEADLINE_S).running) == 1
        gate.open()
        assert verdict().ok
        assert served.bare.ping(served.registered.identity).running == ()


class TestLeaving:
    """WIRE.md, The life of a processor, 4: no new work after unregistration; tasks in progress are finished."""

    def test_sigterm_unregisters_then_finishes_then_ends(self, ours: "Starter", gate: Gate) -> None:
        served = ours()
        running, waiting = _submit(served, ("hold", gate.port)), _submit(served, ("write", A, "01"))
        gate.wait()
        served.process.request_end()
        served.bare.wait_for_unregistration(timeout=DEADLINE_S)
        # The processor answers pings until its end.
        assert len(served.bare.ping(served.registered.identity, DEADLINE_S).running) == 2
        gate.open()
        assert running().ok
        assert waiting().ok
        assert served.process.wait() == 0

    def test_a_second_sigterm_ends_it_in_the_middle_of_an_apply(self, ours: "Starter", gate: Gate) -> None:
        served = ours()
        verdict = served.bare.submit(*_parts(("hold", gate.port)), {})
        gate.wait()
        served.process.request_end()
        served.bare.wait_for_unregistration(timeout=DEADLINE_S)
        served.process.end_at_once()
        assert not verdict.done()


class TestConnection:
    """WIRE.md, Transport."""

    def test_each_connection_has_its_own_identity(self, ours: "Starter") -> None:
        first, second = ours(), ours()
        assert first.registered.identity != second.registered.identity

    def test_a_validator_that_starts_again_is_registered_with_again(self, ours: "Starter", gate: Gate) -> None:
        served = ours()
        old = served.bare.submit(*_parts(("hold", gate.port)), {})
        gate.wait()
        served.bare.stop()
        served.bare.start()
        new = served.bare.wait_for_registration(FAMILY, "1.0", DEADLINE_S)
        assert new.identity != served.registered.identity
        gate.open()
        assert served.run(Row("after", (("write", A, "01"),)))[0].ok
        assert old.exception(0) is not None
        # The verdict on the transaction of the old connection did not come over the new connection.
        assert served.bare.unknown == []

    def test_a_message_over_the_limit_ends_the_connection_alone(self, ours: "Starter") -> None:
        served = ours()
        served.bare.send(
            served.registered.identity, Message(MessageType.TP_PROCESS_REQUEST, "huge", bytes(OVER_THE_LIMIT_BYTES))
        )
        new = served.bare.wait_for_registrations(2, DEADLINE_S)[-1]
        assert new.identity != served.registered.identity
        made = Row("after", ()).transaction()
        verdict = served.bare.process(
            made.header_bytes, made.payload, made.signature, {}, identity=new.identity, timeout=DEADLINE_S
        )
        assert verdict.ok

    @pytest.mark.parametrize("kind", [999, 1003, int(MessageType.TP_STATE_GET_RESPONSE), 0])
    def test_messages_that_it_does_not_expect_change_nothing(self, standing: Ours, kind: int) -> None:
        standing.bare.send(standing.registered.identity, Message(kind, "nobody's", b"\x0a\x01x"))
        assert standing.run(Row("after", (("expect", A, None),)))[0].ok


class Starter:
    """Starts our processors at one bare validator."""

    def __init__(self) -> None:
        # The port is reserved, so that no other process gets it while the validator is stopped.
        self._port = ReservedPort()
        self.bare = BareValidator()
        self.bare.url = f"tcp://127.0.0.1:{self._port.number}"
        self.bare.start()
        self._started: list[Process] = []

    def start(self, *words: str) -> Process:
        self._started.append(_start(self.bare.url, *words))
        return self._started[-1]

    def __call__(self, *words: str) -> Ours:
        """Start a processor. Returns when it is registered, after all refused registrations."""
        before = len(self.bare.registrations) + len(self.bare.refusals)
        process = self.start(*words)
        return Ours(self.bare, process, self.bare.wait_for_registrations(before + 1, DEADLINE_S)[-1])

    def transcript(self) -> str:
        return "\n".join(process.text for process in self._started)

    def close(self) -> None:
        for process in self._started:
            process.close()
        self.bare.stop()
        self._port.close()


@pytest.fixture
def ours() -> Iterator[Starter]:
    """Makes processors: ``ours("--max-occupancy", "3")``."""
    made = Starter()
    try:
        yield made
    finally:
        made.close()


def _parts(*steps: tuple[object, ...]) -> tuple[bytes, bytes, str]:
    made = Row("", steps).transaction()
    return made.header_bytes, made.payload, made.signature


def _submit(served: Ours, *steps: tuple[object, ...]) -> Callable[[], Verdict]:
    future = served.bare.submit(*_parts(*steps), {})
    return lambda: future.result(DEADLINE_S)
