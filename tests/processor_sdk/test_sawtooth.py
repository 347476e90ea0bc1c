"""A handler in the style of the 1.x Python SDK: every name of that SDK, in both protocols and on a socket."""

import json
import logging
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import processor_sdk
from dovetail.ledger.transaction import Transaction, TransactionHeader, decode_header
from processor_sdk import runtime
from processor_sdk.apply.dispatch import Dispatcher
from processor_sdk.sawtooth import (
    AuthorizationException,
    Context,
    InternalError,
    InvalidTransaction,
    LocalConfigurationError,
    StateEntry,
    TpProcessRequest,
    TransactionHandler,
    TransactionProcessor,
    adapted,
    init_console_logging,
)
from tests.processor_sdk.scripts import (
    FAMILY,
    INTERNAL,
    INVALID,
    NAMESPACE,
    OK,
    VERSION,
    Script,
    Spec,
    State,
    address,
    packed,
    single,
)
from tests.system.independent.bare_validator import BareValidator
from tests.system.independent.messages import Event

A, B, C = address(1), address(2), address(3)
FOREIGN = address(1, "bbbbbb")
ALL = (A, B, C)
WAIT_S = 10
ROOT = Path(__file__).parents[2]


class OldHandler(TransactionHandler):
    """Executes the payload's list of operations, and adds the results to the receipt data."""

    def __init__(self, namespaces: Any = (NAMESPACE,)) -> None:
        self._namespaces = namespaces

    @property
    def family_name(self) -> str:
        return FAMILY

    @property
    def family_versions(self) -> list[str]:
        return [VERSION, "1.1"]

    @property
    def namespaces(self) -> Any:
        return self._namespaces

    def apply(self, transaction: TpProcessRequest, context: Context) -> Any:
        for operation, *arguments in json.loads(transaction.payload):
            try:
                context.add_receipt_data(repr(self._do(operation, arguments, transaction, context)).encode(), timeout=2)
            except AuthorizationException as refusal:
                if operation != "try_to_set":
                    raise
                context.add_receipt_data(str(refusal)[:13].encode())
        return "what nobody looks at"

    def _do(self, operation: str, arguments: list[Any], transaction: TpProcessRequest, context: Context) -> Any:
        if operation == "get":
            return [(entry.address, entry.data) for entry in context.get_state(arguments[0], timeout=2)]
        if operation in ("set", "try_to_set"):
            return context.set_state({name: data.encode() for name, data in arguments[0].items()}, 2)
        if operation == "delete":
            return context.delete_state(arguments[0], timeout=2)
        if operation == "event":
            return context.add_event("bare")
        if operation == "full_event":
            return context.add_event("full", [("key", "value"), ("key", "again")], b"data", timeout=2)
        if operation == "header":
            header = transaction.header
            assert header == TransactionHeader(*header) == decode_header(transaction.header_bytes)
            assert (header.signer_public_key, header.batcher_public_key) == (
                header.signer_pubkey,
                header.batcher_pubkey,
            )
            return (transaction.signature[:4], header.family_name, header.family_version, header.inputs)
        raise {
            "invalid": InvalidTransaction("no", b"extended"),
            "plain": InvalidTransaction("plainly no"),
            "internal": InternalError("not now", b"extended"),
            "configuration": LocalConfigurationError("no configuration"),
        }[operation]


class Done(NamedTuple):
    """The outcome of one transaction: its verdict, the state after it, and its receipt data."""

    status: int
    message: str
    extended_data: bytes
    after: dict[str, bytes]
    data: tuple[str, ...]
    events: tuple[str, ...]


Run = Callable[..., Done]


def by_conversation(spec: Spec, values: Mapping[str, bytes], handler: object) -> Done:
    state = State(values)
    response = single(Dispatcher(adapted(handler)), spec, state)
    data = tuple(item.decode() for item in state.receipt_data)
    return Done(response.status, response.message, response.extended_data, state.values, data, tuple(state.event_types))


def by_packed(spec: Spec, values: Mapping[str, bytes], handler: object) -> Done:
    (result,) = packed(Dispatcher(adapted(handler)), [[spec]], State(values))[0]
    after = dict(values)
    for change in result.state_changes:
        if change.type == 1:
            after[change.address] = change.value
        else:
            after.pop(change.address, None)
    data = tuple(item.decode() for item in result.data)
    events = tuple(event.event_type for event in result.events)
    return Done(result.status, result.message, result.extended_data, after, data, events)


@pytest.fixture(params=[by_conversation, by_packed], ids=["conversation", "packed"])
def run(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Run:
    """Runs one transaction: ``run(script, values, inputs=…, outputs=…, handler=…)``."""
    caplog.set_level(logging.CRITICAL, "processor_sdk.apply.dispatch")

    def do(
        script: Script,
        values: Mapping[str, bytes] | None = None,
        *,
        inputs: tuple[str, ...] = ALL,
        outputs: tuple[str, ...] = ALL,
        handler: object = None,
    ) -> Done:
        done: Done = request.param(Spec(inputs, outputs, script), values or {}, handler or OldHandler())
        return done

    return do


class TestContext:
    def test_get_state_gives_existing_entries_in_the_order_of_the_request(self, run: Run) -> None:
        done = run([["get", [C, B, A, C]], ["get", []]], {A: b"a", C: b"c"})
        assert done.data == (repr([(C, b"c"), (A, b"a"), (C, b"c")]), "[]")

    def test_get_state_leaves_out_entries_without_bytes(self, run: Run) -> None:
        done = run([["get", [A, B]], ["set", {B: ""}], ["get", [A, B]]], {A: b"", B: b"b"})
        assert done.data == (repr([(B, b"b")]), repr([B]), "[]")
        assert done.after == {A: b"", B: b""}

    def test_it_reads_its_own_writes(self, run: Run) -> None:
        done = run([["set", {A: "1", B: "2"}], ["get", [A, B]], ["delete", [A]], ["get", [A, B]]])
        assert done.data == (repr([A, B]), repr([(A, b"1"), (B, b"2")]), repr([A]), repr([(B, b"2")]))
        assert done.after == {B: b"2"}

    def test_delete_state_returns_all_given_addresses(self, run: Run) -> None:
        done = run([["delete", [B, A]]], {A: b"a"})
        assert (done.data, done.after) == ((repr([B, A]),), {})

    def test_events_and_receipt_data(self, run: Run) -> None:
        done = run([["full_event"], ["event"]])
        assert (done.status, done.events, done.data) == (OK, ("full", "bare"), ("None", "None"))

    def test_the_transaction_has_its_header_in_both_names_and_styles(self, run: Run) -> None:
        assert run([["header"]]).data == (repr(("abab", FAMILY, VERSION, ALL)),)


class TestVerdicts:
    def test_invalid(self, run: Run) -> None:
        done = run([["set", {A: "1"}], ["invalid"]], {A: b"a"})
        assert done[:3] == (INVALID, "no", b"extended")
        assert run([["plain"]])[:3] == (INVALID, "plainly no", b"")

    @pytest.mark.parametrize(
        ("operation", "message"),
        [
            ("internal", "InternalError: not now"),
            ("configuration", "LocalConfigurationError: no configuration"),
            ("no such operation", "KeyError: 'no such operation'"),
        ],
    )
    def test_everything_else_is_no_verdict(self, run: Run, operation: str, message: str) -> None:
        assert run([[operation]])[:3] == (INTERNAL, message, b"")

    @pytest.mark.parametrize(
        "operation", [["get", [A, FOREIGN]], ["get", "aa"], ["set", {A: "1", FOREIGN: "1"}], ["delete", [A, FOREIGN]]]
    )
    def test_an_undeclared_access_is_refused(self, run: Run, operation: list[Any]) -> None:
        done = run([operation], {A: b"a"})
        assert (done.status, done.after) == (INVALID, {A: b"a"})
        named = "'a' (1 characters) is no address" if operation[1] == "aa" else FOREIGN
        assert named in done.message

    def test_a_handler_that_catches_the_refusal_may_go_on(self, run: Run) -> None:
        done = run([["try_to_set", {A: "1", B: "2"}], ["set", {C: "3"}]], outputs=(A, C))
        assert done == (OK, "", b"", {C: b"3"}, ("may not write", repr([C])), ())

    def test_a_write_outside_the_namespaces_is_refused(self, run: Run) -> None:
        done = run([["set", {FOREIGN: "1"}]], outputs=("",))
        assert (done.status, done.after) == (INVALID, {})
        assert f"the handler declares the namespaces [{NAMESPACE}]" in done.message

    @pytest.mark.parametrize("namespaces", [[A[:68]], (A,), {"aa", "cc"}, frozenset({"aa", FOREIGN[:2]})])
    def test_namespaces_are_any_prefixes(self, run: Run, namespaces: Any) -> None:
        done = run([["set", {A: "1"}]], handler=OldHandler(namespaces))
        assert (done.status, done.after) == (OK, {A: b"1"})
        foreign = run([["set", {FOREIGN: "1"}]], outputs=("",), handler=OldHandler(namespaces))
        assert foreign.status == (OK if FOREIGN[:2] in namespaces else INVALID)


class TestAdding:
    def test_each_version_is_a_handler_that_goes_to_another_process(self) -> None:
        versions = pickle.loads(pickle.dumps(adapted(OldHandler([NAMESPACE, "bb"]))))
        assert [(one.family_name, one.family_version, one.namespaces) for one in versions] == [
            (FAMILY, VERSION, (NAMESPACE, "bb")),
            (FAMILY, "1.1", (NAMESPACE, "bb")),
        ]

    def test_a_handler_needs_no_base_class(self) -> None:
        assert [one.family_version for one in adapted(bare_object())] == ["1.0"]

    @pytest.mark.parametrize(
        ("attributes", "said"),
        [
            ({"family_name": ""}, "Bare.family_name is ''; it must be a string that is not empty"),
            ({"family_name": "x" * 257}, "Bare.family_name has 257 characters; at most 256 are allowed"),
            ({"family_versions": "1.0"}, "Bare.family_versions is the string '1.0'; write a list: ['1.0']"),
            ({"family_versions": []}, "Bare.family_versions is empty"),
            ({"family_versions": [1.0]}, "Bare.family_versions holds 1.0; it must hold strings"),
            ({"family_versions": [""]}, "Bare.family_versions[…] is ''; it must be a string that is not empty"),
            ({"namespaces": "aaaaaa"}, "Bare.namespaces is the string 'aaaaaa'; write a list: ['aaaaaa']"),
            ({"namespaces": None}, "Bare.namespaces is None; it must be a list, tuple or set of strings"),
            ({"namespaces": ["AAAAAA"]}, "Bare.namespaces holds 'AAAAAA'; each must be an even number of lower-case"),
            (
                {"namespaces": [""]},
                "Bare.namespaces: the namespace '' overlaps 000000, in which only sawtooth_settings",
            ),
            ({"namespaces": ["aaaaa"]}, "Bare.namespaces holds 'aaaaa'; each must be an even number of lower-case"),
            ({"namespaces": property(lambda self: self.nowhere)}, "Bare.namespaces, which a handler of the 1.x line"),
            ({"apply": None}, "Bare has no apply: it is no handler of the 1.x line"),
            ({"apply": lambda self, transaction: None}, "it must take (self, transaction, context)"),
        ],
    )
    def test_mistakes_are_told(self, attributes: dict[str, Any], said: str) -> None:
        with pytest.raises(TypeError) as caught:
            adapted(bare_object(**attributes))
        assert said in str(caught.value)

    def test_coroutines_and_classes_are_refused(self) -> None:
        async def apply(self: Any, transaction: Any, context: Any) -> None: ...

        with pytest.raises(TypeError, match="coroutine"):
            adapted(bare_object(apply=apply))
        with pytest.raises(TypeError, match=r"OldHandler is a class; make a handler of it: OldHandler\(\)"):
            adapted(OldHandler)

    @pytest.mark.parametrize("handler", [OldHandler(), OldHandler, OldHandler.apply])
    def test_the_runtime_says_how_they_are_added_to_it(self, handler: Any) -> None:
        processor = runtime.TransactionProcessor("tcp://127.0.0.1:4004")
        with pytest.raises(
            TypeError, match=r"is no handler: .* each that processor_sdk\.sawtooth\.adapted makes of it"
        ):
            processor.add(handler)
        processor.add(adapted(OldHandler())[0])

    def test_the_new_base_class_names_the_adapter_for_the_old_style(self) -> None:
        def apply(self: Any, transaction: Any, context: Any) -> None: ...

        old: dict[str, Any] = {"family_name": "f", "namespaces": (NAMESPACE,), "apply": apply}
        with pytest.raises(TypeError, match=r"New has family_versions, the 1\.x name: .* from processor_sdk\.sawtooth"):
            type("New", (processor_sdk.TransactionHandler,), {**old, "family_versions": ["1.0"]})
        old["family_name"] = property(lambda self: "f")
        with pytest.raises(TypeError, match=r"New has properties \(family_name\), .* from processor_sdk\.sawtooth"):
            type("New", (processor_sdk.TransactionHandler,), {**old, "family_version": "1.0"})


def bare_object(**attributes: Any) -> object:
    """A handler without the base class. Some 1.x handlers have no base class."""
    good = {
        "family_name": FAMILY,
        "family_versions": ["1.0"],
        "namespaces": [NAMESPACE],
        "apply": lambda self, transaction, context: None,
    }
    return type("Bare", (), {**good, **attributes})()


def test_a_processor_is_started_and_stopped_as_in_1x() -> None:
    spec = Spec((A, B), (A, B), [["get", [A]], ["set", {B: "new"}], ["delete", [A]], ["full_event"], ["header"]])
    with BareValidator() as bare:
        processor = TransactionProcessor(url=bare.url)
        processor.add_handler(OldHandler())
        processor.set_header_style(2)
        serving = threading.Thread(target=processor.start)
        serving.start()
        try:
            for version in (VERSION, "1.1"):
                assert bare.wait_for_registration(FAMILY, version, WAIT_S).namespaces == (NAMESPACE,)
            for style in ("RAW", "EXPANDED", "BOTH"):
                state = {A: b"old"}
                verdict = bare.process(
                    spec.header_bytes(), spec.payload(), spec.transaction_id(), state, style, timeout=WAIT_S
                )
                assert (verdict.status, state) == (OK, {B: b"new"}), verdict.message
                assert verdict.events == (Event("full", (("key", "value"), ("key", "again")), b"data"),)
                assert verdict.receipt_data[0] == repr([(A, b"old")]).encode()
                assert [access.kind for access in verdict.accesses] == ["get", "set", "delete"]
        finally:
            processor.stop()
            serving.join(WAIT_S)
        assert not serving.is_alive()
        assert (len(bare.unregistered), bare.unknown, bare.malformed) == (1, [], [])


def test_handlers_are_imported_without_sockets() -> None:
    program = "import sys, processor_sdk.sawtooth; sys.exit('zmq' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60, check=False).returncode == 0


def test_console_logging_has_the_levels_of_1x(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    for verbosity, level in ((0, logging.WARNING), (1, logging.INFO), (2, logging.DEBUG), (3, logging.DEBUG)):
        root.handlers.clear()
        init_console_logging(verbosity)
        assert root.level == level
    assert len(root.handlers) == 1


def test_values_are_made_without_a_validator() -> None:
    """Tests of 1.x handlers make requests by hand, and use a fake context."""
    header_bytes = Spec(ALL, ALL, []).header_bytes()
    transaction = Transaction(Spec((), (), []).transaction_id(), decode_header(header_bytes), header_bytes, b"[]")
    seen: list[Any] = []

    class Stub:
        def get_state(self, addresses: list[str], timeout: float | None = None) -> list[StateEntry]:
            return [StateEntry(name, b"data") for name in addresses]

        def add_receipt_data(self, data: bytes, timeout: float | None = None) -> None:
            seen.append(data)

    request = TpProcessRequest(
        header=processor_sdk.sawtooth.TransactionHeader(*transaction.header),
        payload=json.dumps([["get", [A]], ["header"]]).encode(),
        signature=transaction.id,
        header_bytes=header_bytes,
    )
    OldHandler().apply(request, Stub())  # type: ignore[arg-type]
    assert seen[0] == repr([(A, b"data")]).encode()
