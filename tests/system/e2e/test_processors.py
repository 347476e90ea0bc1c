"""Both processor protocols at a whole node: a bare 1.x processor and the SDK's packed one run the same scripts.

The 1.x side is ``tests/system/independent/bare_processor.py``: plain pyzmq, no code of the project.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.system.e2e.clients import NO_RESOURCE, Author, Receipt, WireClient
from tests.system.e2e.conftest import Shared
from tests.system.e2e.script_family import NAMESPACE, ScriptHandler, address, bare_apply, script
from tests.system.independent import cbor_map
from tests.system.independent.bare_processor import BareProcessor, ProcessRequest, StateAccess, intkey_apply
from tests.system.independent.client import INTKEY_FAMILY, INTKEY_NAMESPACE, Batch, intkey_address
from tests.system.independent.messages import Event, MessageType, Status

_PROTOCOLS = ("bare 1.x", "packed")
_REFUSED = {"bare 1.x": {"read": "TP_STATE_GET_REQUEST was refused", "write": "TP_STATE_SET_REQUEST was refused"}}
_REFUSED["packed"] = {"read": "may not read", "write": "may not write"}


class Scripted(NamedTuple):
    """A processor of scripts that is registered at the session's node."""

    protocol: str
    family: str
    author: Author
    label: Callable[[str], str]

    def batch(self, *steps: tuple[object, ...], inputs: Any = (), outputs: Any = ()) -> Batch:
        """A batch of one transaction that runs the steps."""
        payload = script(*steps)
        return self.author.batch(self.author.transaction(self.family, payload, inputs=inputs, outputs=outputs))


@pytest.fixture(params=_PROTOCOLS)
def scripted(
    request: pytest.FixtureRequest, shared: Shared, author: Author, named: Callable[[str], str]
) -> Iterator[Scripted]:
    """The same scripts under each protocol; ``label`` makes addresses that no other test uses."""
    if request.param == "packed":
        yield Scripted(request.param, ScriptHandler.family_name, author, lambda label: address(named(label)))
        return
    family = named("family")
    with BareProcessor(shared.network.validator_url, family, "1.0", [NAMESPACE], bare_apply) as processor:
        yield Scripted(request.param, family, author, lambda label: address(named(label)))
        assert processor.failures == []
        assert processor.malformed == []


def _receipt(wire_to: WireClient, batch: Batch) -> Receipt:
    found = wire_to.receipts(*(transaction.id for transaction in batch.transactions))
    assert isinstance(found, list), f"the receipts were answered with status {found}"
    (receipt,) = found
    return receipt


class TestBothProtocols:
    """Transactions are processed, read and write state, and are committed. Undeclared accesses are refused."""

    def test_the_sdk_processor_is_packed(self, shared: Shared) -> None:
        shared.up.wait_logged("processor registered", family=f"{ScriptHandler.family_name} 1.0", packed=True)

    def test_get_set_delete_receipt_and_event(self, shared: Shared, wire_to: WireClient, scripted: Scripted) -> None:
        kept, gone = scripted.label("kept"), scripted.label("gone")
        both: Any = {"inputs": [kept, gone], "outputs": [kept, gone]}
        shared.api.commit(scripted.batch(("expect", kept, None), ("write", kept, "01", gone, "02"), **both))
        assert (shared.api.leaf(kept), shared.api.leaf(gone)) == (b"\x01", b"\x02")
        second = scripted.batch(
            ("expect", kept, "01"),
            ("write", kept, "0304"),
            ("expect", kept, "0304"),
            ("remove", gone, True),
            ("expect", gone, None),
            ("receipt", "aa"),
            ("receipt", "bb"),
            ("event", "moved", [["from", "a"], ["to", "b"]], "cc"),
            **both,
        )
        shared.api.commit(second)
        assert (shared.api.leaf(kept), shared.api.leaf(gone)) == (b"\x03\x04", None)
        receipt = _receipt(wire_to, second)
        assert receipt.transaction_id == second.transactions[0].id
        assert receipt.changes == {kept: b"\x03\x04", gone: None}
        assert receipt.data == [b"\xaa", b"\xbb"]
        assert receipt.events == [Event("moved", (("from", "a"), ("to", "b")), b"\xcc")]

    def test_an_entry_without_bytes_is_there_for_clients_alone(self, shared: Shared, scripted: Scripted) -> None:
        leaf = scripted.label("n")
        at: Any = {"inputs": [leaf], "outputs": [leaf]}
        shared.api.commit(scripted.batch(("write", leaf, ""), ("expect", leaf, None), **at))
        assert shared.api.leaf(leaf) == b""
        shared.api.commit(scripted.batch(("expect", leaf, None), **at))
        shared.api.commit(scripted.batch(("remove", leaf, False), **at))
        assert shared.api.leaf(leaf) is None

    def test_prefixes_cover_what_lies_under_them(self, shared: Shared, scripted: Scripted) -> None:
        leaf = scripted.label("n")
        shared.api.commit(scripted.batch(("expect", leaf, None), ("write", leaf, "01"), inputs=[""], outputs=[""]))
        under: Any = {"inputs": [leaf[:10]], "outputs": [leaf[:68]]}
        shared.api.commit(scripted.batch(("expect", leaf, "01"), ("write", leaf, "02"), **under))
        assert shared.api.leaf(leaf) == b"\x02"

    def test_later_transactions_of_a_batch_see_earlier_ones(
        self, shared: Shared, author: Author, scripted: Scripted
    ) -> None:
        leaf = scripted.label("n")
        steps: list[tuple[object, ...]] = [("write", leaf, "01"), ("remove", leaf, True), ("expect", leaf, None)]
        shared.api.commit(
            author.batch(
                *(
                    author.transaction(scripted.family, script(step), inputs=[leaf], outputs=[leaf])
                    for step in [*steps, ("write", leaf, "02"), ("expect", leaf, "02")]
                )
            )
        )
        assert shared.api.leaf(leaf) == b"\x02"

    def test_reason_of_the_family_travels_to_the_submitter(
        self, shared: Shared, wire_to: WireClient, scripted: Scripted
    ) -> None:
        leaf = scripted.label("n")
        batch = scripted.batch(("write", leaf, "01"), ("receipt", "01"), ("invalid", "no ships today", "c0ffee"),
                               outputs=[leaf])  # fmt: skip
        details = shared.api.reject(batch)
        assert details == {
            "reason": "invalid_transaction",
            "transaction_id": batch.transactions[0].id,
            "message": "no ships today",
            "extended_data": "wP/u",
        }
        assert shared.api.leaf(leaf) is None
        assert wire_to.receipts(batch.transactions[0].id) == NO_RESOURCE

    @pytest.mark.parametrize(
        ("access", "steps"),
        [
            ("read", lambda inside, outside, _: [("write", inside, "01"), ("expect", outside, None)]),
            ("write", lambda inside, outside, _: [("write", inside, "01"), ("write", outside, "01")]),
            ("write", lambda inside, outside, _: [("write", inside, "01", outside, "01")]),
            ("write", lambda inside, _, foreign: [("write", inside, "01"), ("write", foreign, "01")]),
        ],
        ids=["read outside inputs", "write outside outputs", "one of two writes", "write outside namespaces"],
    )
    def test_outside_of_what_is_declared(
        self, shared: Shared, scripted: Scripted, access: str, steps: Callable[..., list[tuple[object, ...]]]
    ) -> None:
        inside, outside = scripted.label("inside"), scripted.label("outside")
        foreign = intkey_address(inside[:20])
        batch = scripted.batch(*steps(inside, outside, foreign), inputs=[inside], outputs=[inside, foreign])
        details = shared.api.reject(batch)
        assert details["reason"] == "invalid_transaction"
        assert details["transaction_id"] == batch.transactions[0].id
        assert _REFUSED[scripted.protocol][access] in details["message"]
        assert [shared.api.leaf(leaf) for leaf in (inside, outside, foreign)] == [None, None, None]

    @pytest.mark.parametrize(
        "step",
        [
            lambda outside, _: ("expect", outside, None),
            lambda outside, _: ("write", outside, "01"),
            lambda outside, _: ("remove", outside, True),
            lambda _, foreign: ("write", foreign, "01"),
        ],
        ids=["read", "write", "delete", "write outside namespaces"],
    )
    def test_transaction_is_invalid_also_when_its_handler_goes_on_after_the_refusal(
        self, shared: Shared, scripted: Scripted, step: Callable[[str, str], tuple[object, ...]]
    ) -> None:
        inside, outside = scripted.label("inside"), scripted.label("outside")
        foreign = intkey_address(inside[:20])
        batch = scripted.batch(
            ("swallow", step(outside, foreign)), ("write", inside, "01"), inputs=[inside], outputs=[inside, foreign]
        )
        assert shared.api.reject(batch)["reason"] == "invalid_transaction"
        assert [shared.api.leaf(leaf) for leaf in (inside, outside, foreign)] == [None, None, None]


class TestBare1x:
    """A processor that speaks only the 1.x protocol."""

    def test_family_of_a_standing_processor_is_served_by_both(
        self, shared: Shared, author: Author, named: Callable[[str], str]
    ) -> None:
        """A 1.x intkey processor runs beside the packed one. The state is the same, whichever processor gets a task."""
        name = named("n")
        shared.api.commit(author.batch(author.intkey("set", name, 0)))
        with BareProcessor(
            shared.network.validator_url, INTKEY_FAMILY, "1.0", [INTKEY_NAMESPACE], intkey_apply
        ) as bare:
            shared.api.commit(*author.incs(name, 40))
            assert bare.failures == []
        assert shared.api.intkey(name) == 40
        leaf = shared.api.leaf(intkey_address(name))
        assert leaf == cbor_map.encode({name: 40}, sort_keys=True)

    @pytest.mark.parametrize("style", ["RAW", "EXPANDED", None])
    def test_header_style(self, shared: Shared, author: Author, named: Callable[[str], str], style: Any) -> None:
        batch, request = self._processed(shared, author, named("family"), style)
        header = batch.transactions[0].header
        assert request.header == header
        assert request.payload == batch.transactions[0].payload
        assert request.signature == batch.transactions[0].id
        assert request.context_id
        if style == "RAW":
            assert request.header_bytes == batch.transactions[0].header_bytes
        else:
            assert type(header).decode(request.expanded_header) == header

    def test_raw_header_style_leaves_the_expanded_header_out(
        self, shared: Shared, author: Author, named: Callable[[str], str]
    ) -> None:
        """WIRE.md, The life of a processor, 1: for RAW, the validator sends header_bytes and leaves header unset."""
        _, request = self._processed(shared, author, named("family"), "RAW")
        assert request.expanded_header == b""

    @pytest.mark.parametrize("version", [0, 1, 7])
    def test_registration_echoes_the_protocol_version(
        self, shared: Shared, named: Callable[[str], str], version: int
    ) -> None:
        processor = BareProcessor(
            shared.network.validator_url, named("family"), "1.0", [NAMESPACE], bare_apply, protocol_version=version
        )
        with processor:
            assert processor.registration is not None
            assert processor.registration.protocol_version == version

    def test_max_occupancy_bounds_what_is_in_flight(
        self, shared: Shared, author: Author, named: Callable[[str], str], gate: Any
    ) -> None:
        family = named("family")
        batches = [author.batch(author.transaction(family, script(("hold", gate.port)))) for _ in range(5)]
        url = shared.network.validator_url
        with BareProcessor(url, family, "1.0", [NAMESPACE], bare_apply, max_occupancy=2, workers=5) as processor:
            shared.api.accept(*batches)
            gate.wait()
            gate.wait()
            # Send a ping: further tasks would have arrived before its answer.
            processor.ping()
            assert len(processor.requests) == 2
            for done in range(2, 5):
                gate.open_one()
                gate.wait()
                processor.wait_for_responses(done - 1)
            gate.open()
            assert shared.api.settle(*batches) == ["COMMITTED"] * 5

    def test_state_calls_under_a_context_that_ended_are_refused(
        self, shared: Shared, author: Author, named: Callable[[str], str]
    ) -> None:
        family, leaf = named("family"), address(named("n"))
        contexts: list[StateAccess] = []

        def apply(request: ProcessRequest, state: StateAccess) -> None:
            contexts.append(state)

        with BareProcessor(shared.network.validator_url, family, "1.0", [NAMESPACE], apply):
            shared.api.commit(author.batch(author.transaction(family, b"", inputs=[leaf], outputs=[leaf])))
            for call in (
                lambda: contexts[0].get([leaf]),
                lambda: contexts[0].set({leaf: b"late"}),
                lambda: contexts[0].delete([leaf]),
                lambda: contexts[0].add_receipt_data(b"late"),
                lambda: contexts[0].add_event("late"),
            ):
                with pytest.raises(Exception, match="was refused"):
                    call()
        assert shared.api.leaf(leaf) is None

    def test_unregistering_what_never_registered_is_an_error(self, wire_to: WireClient) -> None:
        assert wire_to.ask(MessageType.TP_UNREGISTER_REQUEST, b"")[1] == [Status.ERROR]

    def _processed(self, shared: Shared, author: Author, family: str, style: Any) -> tuple[Batch, ProcessRequest]:
        leaf = address(family)
        batch = author.batch(author.transaction(family, script(("write", leaf, "01")), inputs=[leaf], outputs=[leaf]))
        url = shared.network.validator_url
        with BareProcessor(url, family, "1.0", [NAMESPACE], bare_apply, header_style=style) as processor:
            shared.api.commit(batch)
            (request,) = processor.requests
        return batch, request
