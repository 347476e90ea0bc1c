"""A handler's migrate: its declaration, the view of one slice, transactions that are no migration, and slicing.

Through the dispatcher, without sockets. ``test_migration_misbehaviour`` has migrations with mistakes,
``testing/test_migrating`` the ledger in memory.
"""

import abc
import logging
from collections.abc import Iterator
from typing import Any, ClassVar, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.ledger import migration
from processor_sdk import Context, InvalidTransaction, MigrationContext, NotDecodable, Transaction, TransactionHandler
from processor_sdk.apply.dispatch import Dispatcher
from processor_sdk.apply.state import CALL_BYTES_MAX
from processor_sdk.sawtooth import adapted
from protos import packed_pb2, transaction_pb2
from tests.processor_sdk.migrations import (
    ELSEWHERE,
    FAMILY,
    INSIDE,
    OUTSIDE,
    SLICE,
    Moving,
    Staying,
    header,
    migrated,
    refused,
    run,
)
from tests.processor_sdk.scripts import INTERNAL, INVALID, NAMESPACE, OK, State


@pytest.fixture(autouse=True)
def _no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "processor_sdk.apply.dispatch")


# --- declaring --------------------------------------------------------------------------------------------------------


def test_a_class_that_declares_migrate_migrates() -> None:
    class Heir(Moving):
        pass

    assert (Moving.migrates, Heir.migrates, Staying.migrates, TransactionHandler.migrates) == (True, True, False, False)
    with pytest.raises(NotImplementedError, match=r"Staying declares no migrate; one that is inherited .* = Earlier"):
        Staying().migrate(None)  # type: ignore[arg-type]


class Mixin:
    """Migrates any version."""

    def migrate(self, context: MigrationContext) -> None: ...


class Template(Staying, abc.ABC):
    """Inherits from a handler of 2.0, and so migrates 2.0."""

    @abc.abstractmethod
    def apply(self, transaction: Transaction[bytes], context: Context) -> None: ...

    def migrate(self, context: MigrationContext) -> None: ...


def test_a_migrate_of_another_version_is_not_run_again() -> None:
    class Next(Moving):
        family_version = "2.1"

    class Behind(Next): ...

    class Again(Next):
        migrate = Moving.migrate

    class Mixed(Mixin, Staying):
        family_version = "2.1"

    class MixedLater(Mixed):
        family_version = "2.2"

    class Made(Template):
        def apply(self, transaction: Transaction[bytes], context: Context) -> None: ...

    class MadeLater(Made):
        family_version = "2.1"

    kinds = (Next, Behind, Again, Mixed, MixedLater, Made, MadeLater)
    assert [kind.migrates for kind in kinds] == [False, False, True, True, False, True, False]
    response = run(Next(lambda context: None), State({}), family_version="2.1")
    assert response.status == INVALID
    assert "inherited from a class of another version does not count: write migrate = Earlier.migrate" in (
        response.message
    )
    assert run(Again(lambda context: None), State({}), family_version="2.1").status == OK


class Coroutine:
    async def migrate(self, context: Any) -> None: ...


class Generator:
    def migrate(self, context: Any) -> Iterator[None]:
        yield


class NoContext:
    def migrate(self) -> None: ...


class TooMany:
    def migrate(self, transaction: Any, context: Any) -> None: ...


class Static:
    @staticmethod
    def migrate(context: Any) -> None: ...


class NoMethod:
    migrate = 7


class ByHand:
    migrates = True


@pytest.mark.parametrize(
    ("mixin", "said"),
    [
        (Coroutine, r"migrate is a coroutine or generator function; it must be a plain function"),
        (Generator, r"migrate is a coroutine or generator function; it must be a plain function"),
        (NoContext, r"migrate takes \(self\) -> None; it must take \(self, context\)"),
        (TooMany, r"migrate takes .*; it must take \(self, context\)"),
        (Static, r"it must be a method: def migrate\(self, context\)"),
        (NoMethod, r"migrate is 7; it must be a method: def migrate\(self, context\)"),
        (ByHand, r"has migrates; it is found by itself"),
    ],
)
def test_a_migrate_that_cannot_be_called_is_refused_when_the_class_is_made(mixin: type, said: str) -> None:
    declared = {name: value for name, value in vars(mixin).items() if name in ("migrate", "migrates")}
    with pytest.raises(TypeError, match=said):
        type("Mistaken", (Staying,), declared)


def test_a_handler_of_the_1x_line_never_migrates() -> None:
    class Old:
        family_name: ClassVar[str] = FAMILY[0]
        family_versions: ClassVar = [FAMILY[1]]
        namespaces: ClassVar = [NAMESPACE]

        def apply(self, transaction: Any, context: Any) -> None:
            context.add_receipt_data(b"applied")

        def migrate(self, context: Any) -> NoReturn:
            raise AssertionError

    [old] = adapted(Old())
    assert not old.migrates
    response = run(old, State({}))
    assert response.status == INVALID
    assert "declares no migrate" in response.message
    # Without a batch id, a handler ignores the migration key, so that all nodes give the same verdict, whatever their
    # SDK.
    state = State({})
    assert run(old, state, batch_id="", migration=False).status == OK
    assert state.receipt_data == [b"applied"]


# --- the view of a slice ----------------------------------------------------------------------------------------------


def test_every_leaf_of_the_slice_is_given_once_in_order_whatever_is_written() -> None:
    values = dict.fromkeys((*INSIDE[:4], OUTSIDE, ELSEWHERE), b"old")
    given_: list[tuple[str, bytes]] = []

    def migrate(context: MigrationContext) -> None:
        context.set(INSIDE[5], b"before all")
        context.delete(INSIDE[3])
        for name, data in context.leaves():
            given_.append((name, data))
            context.delete(name)
            context.set(INSIDE[4], b"ahead")
            context.set(INSIDE[2], b"changed ahead")

    state = migrated(migrate, values)
    assert given_ == [(name, b"old") for name in INSIDE[:4]]
    assert state.values == {
        OUTSIDE: b"old", ELSEWHERE: b"old", INSIDE[4]: b"ahead", INSIDE[5]: b"before all", INSIDE[2]: b"changed ahead"
    }  # fmt: skip


def test_leaves_may_be_taken_again_and_halfway() -> None:
    def migrate(context: MigrationContext) -> None:
        first = context.leaves()
        seen = [next(first)]
        context.set(INSIDE[1], b"new")
        assert [*seen, *first] == list(context.leaves()) == [(name, b"old") for name in INSIDE[:3]]
        assert dict(context.list(SLICE))[INSIDE[1]] == b"new"

    migrated(migrate, dict.fromkeys(INSIDE[:3], b"old"))


def test_leaves_of_several_prefixes_come_in_the_order_of_addresses() -> None:
    other = "aaaaab00" + "0" * 62

    def migrate(context: MigrationContext) -> None:
        assert [name for name, _ in context.leaves()] == [INSIDE[0], INSIDE[1], other]
        assert context.prefixes == ("aaaaab00", SLICE)
        assert [context.covers(name) for name in (INSIDE[0], other, OUTSIDE, SLICE)] == [True, True, False, False]

    values = dict.fromkeys((*INSIDE[:2], OUTSIDE, other), b"old") | {INSIDE[2]: b""}
    migrated(migrate, values, ("aaaaab00", SLICE))


class Number:
    """A custom codec."""

    def decode(self, data: bytes) -> int:
        if not data.isdigit():
            raise NotDecodable(f"{data!r} is no number")
        return int(data)

    def encode(self, value: int) -> bytes:
        return str(value).encode()


def test_leaves_are_decoded() -> None:
    def migrate(context: MigrationContext) -> None:
        for name, number in context.leaves(Number()):
            context.set(name, number + 1, Number())

    assert migrated(migrate, {INSIDE[0]: b"1", INSIDE[1]: b"41"}).values == {INSIDE[0]: b"2", INSIDE[1]: b"42"}
    response = refused(migrate, {INSIDE[0]: b"1", INSIDE[1]: b"x"})
    assert response.status == INVALID
    assert response.message == f"the entry at {INSIDE[1]} does not fit its codec: b'x' is no number"


def test_what_was_given_is_not_asked_for_again() -> None:
    def migrate(context: MigrationContext) -> None:
        for name, data in context.leaves():
            assert context.get(name) == data
            assert context.delete(name)
        assert context.get(INSIDE[5]) is None

    state = migrated(migrate, dict.fromkeys(INSIDE[:5], b"old"))
    assert not state.values
    kinds = [kind for kind, *_ in state.calls]
    assert kinds == ["list", "list", "list", "get", "delete"]


def test_only_recently_listed_leaves_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("processor_sdk.migration.KNOWN_BYTES_MAX", 2 * (70 + 3))

    def migrate(context: MigrationContext) -> None:
        for _ in range(2):
            for name, _ in context.leaves():
                assert context.get(name) == b"old"
        assert [context.get(name) for name in INSIDE[:4]] == [b"old"] * 4

    state = migrated(migrate, dict.fromkeys(INSIDE[:4], b"old"))
    assert [names for kind, _, names in state.calls if kind == "get"] == [(INSIDE[0],), (INSIDE[1],)]


def test_what_a_codec_refuses_may_be_caught() -> None:
    def migrate(context: MigrationContext) -> None:
        leaves = context.leaves(Number())
        with pytest.raises(InvalidTransaction):
            list(leaves)
        assert list(leaves) == []
        assert [data for _, data in context.leaves()] == [b"x", b"1"]

    migrated(migrate, {INSIDE[0]: b"x", INSIDE[1]: b"1"})


def test_events_and_receipt_data_are_allowed() -> None:
    def migrate(context: MigrationContext) -> None:
        context.add_event("moving/slice", {"leaves": str(len(list(context.leaves())))})
        context.add_receipt_data(b"done")

    state = migrated(migrate, {INSIDE[0]: b"old"})
    assert (state.receipt_data, state.event_types) == ([b"done"], ["moving/slice"])


def test_large_slices_are_written_in_several_calls() -> None:
    value = b"x" * 100_000
    names = [NAMESPACE + "00" + f"{number:062x}" for number in range(30)]

    def migrate(context: MigrationContext) -> None:
        context.set_many(dict.fromkeys(names, value))
        context.set(INSIDE[0], b"y" * (CALL_BYTES_MAX + 1))

    state = migrated(migrate, {})
    assert state.values == dict.fromkeys(names, value) | {INSIDE[0]: b"y" * (CALL_BYTES_MAX + 1)}
    written = [names for kind, _, names in state.calls if kind == "set"]
    assert len(written) == 4
    assert sum(map(len, written)) == 30


def test_many_removals_are_sent_in_several_calls() -> None:
    names = [NAMESPACE + "00" + f"{number:062x}" for number in range(CALL_BYTES_MAX // 70 + 1)]

    class Blind(Staying):
        def apply(self, transaction: Transaction[bytes], context: Context) -> None:
            context.delete_many(names)

    state = State({})
    assert run(Blind(), state, inputs=(), signer_pubkey="02" * 33, migration=False).status == OK
    assert [(kind, len(removed)) for kind, _, removed in state.calls] == [("delete", len(names) - 1), ("delete", 1)]


# --- transactions that are no migration -------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_id", ["", "ba" * 64])
def test_the_key_alone_makes_no_migration(batch_id: str) -> None:
    """1.x validators, which send no batch id, and earlier Dovetail validators let any client use the migration key."""

    def never(context: MigrationContext) -> NoReturn:
        raise AssertionError

    response = run(Moving(never), State({}), batch_id=batch_id, migration=False)
    assert response.status == INVALID
    assert "signed with the key of migrations" in response.message
    raw = transaction_pb2.Transaction(header=header(), header_signature="ab" * 64).SerializeToString()
    request = packed_pb2.PackedProcessRequest(context_id="ctx")
    request.units.add(transactions=[raw], batch_id="ba" * 64)
    answer = Dispatcher([Moving(never)]).packed(request.SerializeToString(), State({}).link)
    [unit] = packed_pb2.PackedProcessResponse.FromString(answer).units
    assert [(result.status, result.message) for result in unit.results] == [(INVALID, response.message)]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"payload_encoding": "application/cbor"}, "payload_encoding 'application/cbor'"),
        ({"payload": b"x"}, "1 bytes of payload"),
        ({"outputs": [SLICE, ELSEWHERE]}, "1 inputs, 2 outputs"),
        ({"signer_pubkey": "02" * 33}, f"signer '{'02' * 33}'"),
    ],
)
def test_a_migration_of_another_form_is_refused(fields: dict[str, Any], said: str) -> None:
    response = run(Moving(lambda context: None), State({}), **fields)
    assert response.status == INVALID
    assert said in response.message


def test_another_signer_makes_no_migration() -> None:
    state = State({})
    assert run(Moving(lambda context: None), state, signer_pubkey="02" * 33, migration=False).status == OK
    assert state.receipt_data == [b"applied"]


def test_a_handler_that_is_not_here_gives_no_verdict() -> None:
    response = run(Moving(lambda context: None), State({}), family_version="3.0")
    assert (response.status, response.message) == (INTERNAL, "InternalError: no handler here for the family moving 3.0")


# --- slices -----------------------------------------------------------------------------------------------------------


@given(
    st.sets(st.sampled_from(["aaaaaa00", "aaaaaaff", "bbbbbb", "cccccc01" + "0" * 62]), min_size=1),
    st.booleans(),
    st.sampled_from(["aaaaaa0000", "aaaaaa007f", "aaaaaaffff", "bbbbbb01", "cccccc01", "cccccc02", "dddddd00"]),
)
def test_every_address_under_the_prefixes_is_in_exactly_one_slice(prefixes: set[str], sliced: bool, at: str) -> None:
    name = at.ljust(70, "0")
    slices = migration.slices(prefixes, sliced=sliced)
    assert sum(name.startswith(part) for part in slices) == name.startswith(tuple(prefixes))
    if not sliced:
        assert len(slices) == 1
    elif any(len(prefix) < 70 for prefix in prefixes):
        assert len(slices) == migration.SLICES
    nonces = {migration.nonce(number, len(slices), 7, prefixes) for number in range(len(slices))}
    assert len(nonces) == len(slices)
    assert nonces.isdisjoint(migration.nonce(number, len(slices), 8, prefixes) for number in range(len(slices)))
    assert nonces.isdisjoint(migration.nonce(number, len(slices), 7, {*prefixes, "eeeeee"}) for number in range(256))


def test_slices_as_they_are() -> None:
    assert migration.slices(["aaaaaa"], sliced=False) == [("aaaaaa",)]
    many = migration.slices(["bbbbbb01" + "0" * 62, "aaaaaa"], sliced=True)
    assert many[:2] == [("aaaaaa00", "bbbbbb01" + "0" * 62), ("aaaaaa01",)]
    assert many[-1] == ("aaaaaaff",)
    assert migration.nonce(2, 256, 10, ["bb", "aa", "bb"]) == migration.nonce(2, 256, 10, ("aa", "bb"))
    assert migration.nonce(2, 256, 10, ["aa"]).startswith("migration 3/256 from block 10 of ")


def test_leaves_and_bytes_say_whether_state_is_sliced() -> None:
    assert not migration.is_sliced([b""] * migration.LEAVES_MAX)
    assert migration.is_sliced([b""] * (migration.LEAVES_MAX + 1))
    assert not migration.is_sliced([b"x", bytes(migration.BYTES_MAX - 1)])
    assert migration.is_sliced([b"xx", bytes(migration.BYTES_MAX - 1)])
    endless = (b"x" for _ in iter(int, 1))
    assert migration.is_sliced(endless)
