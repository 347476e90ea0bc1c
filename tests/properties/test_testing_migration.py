"""The test kit's ledger activates and migrates as the validator does: the same bytes, verdicts, reasons and state.

The validator is represented by its rules, executor and registry, without sockets. ``tests/dovetail/validator`` tests
that a node puts a due migration first.
"""

import json
import logging
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from dovetail.ledger.batch import VerifiedBatch, VerifiedTransaction
from dovetail.ledger.ids import BatchId
from dovetail.ledger.permitted import Permission, encode_permitted_families, permitted_families
from dovetail.ledger.receipt import Receipt, encode_receipt
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.execution.model import Applied, Rejected, Result, Withdrawn
from dovetail.validator.core.journal import migrations
from dovetail.validator.core.journal.block_run import BlockRun
from dovetail.validator.core.journal.rules import Body
from dovetail.validator.processors.dispatch import dispatch
from dovetail.validator.processors.registry import TaskAnswered
from processor_sdk import Context, InvalidTransaction, MigrationContext, Transaction, TransactionHandler
from processor_sdk.testing import ApplyFailed, Ledger, UnsignedTransaction
from processor_sdk.testing.migrating import migration_of
from protos.transaction_pb2 import Transaction as RawTransaction
from protos.transaction_receipt_pb2 import TransactionReceipt
from tests.dovetail.validator.support import permitting, view_of
from tests.properties.serial import LIMITS, Network

NAMESPACE = "aaaaaa"
V1, V2, V3 = (FamilyVersion("f", version) for version in ("1.0", "2.0", "3.0"))
ADDRESSES = [f"{NAMESPACE}{slice}{number:062x}" for slice in ("00", "01", "ff") for number in range(3)]
PREFIXES = (NAMESPACE, NAMESPACE + "00", NAMESPACE + "01", NAMESPACE + "ff", ADDRESSES[1], ADDRESSES[4])
HOWS = ("touch", "touch", "touch", "remove", "split", "mark", "refuse", "late", "error", "outside", "swallow", "large")


@pytest.fixture(autouse=True, scope="module")
def _few_leaves_are_sliced() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dovetail.ledger.migration.LEAVES_MAX", 3)
        logging.getLogger("processor_sdk.apply.dispatch").setLevel(logging.CRITICAL)
        yield
        logging.getLogger("processor_sdk.apply.dispatch").setLevel(logging.NOTSET)


class One(TransactionHandler[bytes]):
    family_name, family_version = V1
    namespaces = (NAMESPACE,)

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        operation, address = json.loads(transaction.payload)
        if operation == "copy":
            context.set(address, (context.get(address) or b"") + b"!")
        elif operation == "delete":
            context.delete(address)
        else:
            raise InvalidTransaction(f"no {operation}")


class Two(One):
    family_version = V2.version

    def __init__(self, how: str) -> None:
        self.how = how

    def migrate(self, context: MigrationContext) -> None:
        how, first, version = self.how, context.prefixes[0].ljust(70, "0"), self.family_version.encode()
        if how == "refuse" or (how == "late" and not context.covers(ADDRESSES[0])):
            raise InvalidTransaction(f"not {context.prefixes}")
        if how == "error":
            raise ValueError("a bug")
        if how in ("outside", "swallow"):
            try:
                context.set("bbbbbb".ljust(70, "0"), b"")
            except InvalidTransaction:
                if how == "outside":
                    raise
        if how == "large":
            context.set(first, bytes(LIMITS.receipt_bytes_max - 60))
        for address, data in context.leaves():
            context.set(address, data + version)
            if how == "remove":
                context.delete(address)
            elif how == "split":
                context.set(context.prefixes[-1].ljust(70, "e"), data)
        if how == "mark":
            context.delete(first)
            context.add_event("marked", {"prefixes": " ".join(context.prefixes)})
            context.add_receipt_data(version)


class Three(Two):
    family_version = V3.version
    migrate = Two.migrate


class Outcome(NamedTuple):
    """``verdict``: as the test kit names it. ``receipts``: encoded, without ids, because ids differ between the two."""

    verdict: str
    reason: str = ""
    message: str = ""
    receipts: tuple[bytes, ...] = ()


class Chain:
    """The validator's rules and executor, one batch to a block, with processors of all versions."""

    def __init__(self, handlers: list[TransactionHandler[bytes]], packed: bool, state: dict[str, bytes]) -> None:
        self._network = Network(lambda _: 0)
        self._network.connect(b"all", handlers, packed)
        self.state = dict(state)
        self.block_num = 0
        self._committed: set[str] = set()
        self._invalid: set[str] = set()

    def body(self) -> Body:
        permitted = permitted_families(self.state.get)
        return Body(self.block_num, permitted, self._committed.__contains__, self._invalid.__contains__)

    def migration(self, permission: Permission) -> VerifiedBatch:
        return migrations.batch_for(permission, view_of(dict(self.state)))

    def take(self, batch: VerifiedBatch) -> Outcome:
        body = self.body()
        barred = body.check(batch)
        result = self._run(batch, body.is_migration(batch)) if barred is None else barred
        names = [transaction.id for transaction in batch.transactions]
        if isinstance(result, Applied):
            self._committed.update(names)
            self.block_num += 1
            return Outcome("OK", receipts=tuple(map(nameless, result.receipts)))
        if isinstance(result, Rejected):
            self._invalid.update(names)
            return Outcome("INVALID", result.reason, result.message)
        return Outcome("PENDING", result.reason, result.message)

    def _run(self, batch: VerifiedBatch, migrates: bool) -> Result:
        migrating = frozenset({0} if migrates else ())
        # No other batch is in the block of a migration, as when the queue injects the migration.
        execution = BlockRun(view_of(dict(self.state)), [batch], LIMITS, alone=migrating, migrations=migrating)
        while not execution.finished:
            dispatch(execution, self._network.processors, LIMITS.packed_transactions_max)
            for answered in self._network.step() if not execution.finished else ():
                assert isinstance(answered, TaskAnswered)
                execution.complete(answered.task, answered.outcomes, answered.namespaces)
        after = {**self.state, **execution.changes}
        self.state = {name: data for name, data in after.items() if data is not None}
        [result] = execution.results()
        assert isinstance(result, Applied | Rejected | Withdrawn)
        return result


def nameless(receipt: bytes) -> bytes:
    message = TransactionReceipt.FromString(receipt)
    message.transaction_id = ""
    return message.SerializeToString()


def outcome_of(ledger: Ledger, what: UnsignedTransaction | Permission) -> Outcome:
    """The test kit's outcome of a transaction or a migration."""
    try:
        if isinstance(what, Permission):
            result = ledger.migrate(family=what.family.name, version=what.family.version)
        else:
            result = ledger.apply(what)
    except ApplyFailed as failed:
        return Outcome("PENDING", "internal_error", str(failed).partition("gave no verdict: ")[2])
    receipts = tuple(nameless(encode_receipt(Receipt(*receipt))) for receipt in result.receipts)
    return Outcome(str(result.verdict), result.reason, result.message, receipts)


def settle(chain: Chain, ledger: Ledger, refused: set[Permission]) -> None:
    """Run due migrations that were not refused, on both sides."""
    while left := [entry for entry in chain.body().due if entry not in refused]:
        batch = chain.migration(left[0])
        made = [migration_of(left[0], sliced=sliced) for sliced in (False, True)]
        same = next(one for one in made if len(one.transactions) == len(batch.transactions))
        assert [header_of(transaction.raw) for transaction in same.transactions] == [
            header_of(transaction.raw) for transaction in batch.transactions
        ]
        outcome = chain.take(batch)
        assert outcome_of(ledger, left[0]) == outcome
        event(f"migration of {len(batch.transactions)}: {outcome.verdict} {outcome.reason}")
        if outcome.verdict != "OK":
            refused.add(left[0])


def header_of(raw: bytes) -> bytes:
    return RawTransaction.FromString(raw).header


blocks = st.integers(0, 4)


@st.composite
def plans(draw: st.DrawFn) -> tuple[Permission, ...]:
    """Values of the setting ``permitted families``."""
    entries = []
    for family in draw(st.permutations((V1, V2, V3))):
        from_block = draw(blocks)
        until_block = draw(st.one_of(st.none(), st.integers(from_block, from_block + 4)))
        prefixes = draw(st.lists(st.sampled_from(PREFIXES), max_size=3, unique=True)) if family != V1 else []
        apart = [one for one in prefixes if not any(one != other and one.startswith(other) for other in prefixes)]
        entries.append(Permission(family, from_block, until_block, tuple(apart)))
    return tuple(entries[: draw(st.sampled_from((3, 3, 2)))])


steps = st.one_of(
    st.tuples(st.sampled_from((V1, V2, V3)), st.sampled_from(("copy", "delete", "bug")), st.sampled_from(ADDRESSES)),
    st.tuples(st.sampled_from((V1, V2, V3)), st.just("copy"), st.sampled_from(ADDRESSES)),
    plans(),
)


@settings(max_examples=60, deadline=None)
@given(
    how=st.tuples(st.sampled_from(HOWS), st.sampled_from(HOWS)),
    packed=st.booleans(),
    held=st.sets(st.sampled_from(ADDRESSES)),
    plan=plans(),
    script=st.lists(steps, min_size=3, max_size=8),
)
def test_versions_and_their_migrations(
    how: tuple[str, str],
    packed: bool,
    held: set[str],
    plan: tuple[Permission, ...],
    script: list[tuple[FamilyVersion, str, str] | tuple[Permission, ...]],
) -> None:
    handlers: list[TransactionHandler[bytes]] = [One(), Two(how[0]), Three(how[1])]
    state = {**dict.fromkeys(held, b"0"), **permitting(encode_permitted_families(plan))}
    chain = Chain(handlers, packed, state)
    ledger = Ledger(*handlers, state=state, limits=LIMITS, twice=False)
    refused: set[Permission] = set()
    for step in script:
        settle(chain, ledger, refused)
        if isinstance(step[0], Permission):
            changed = permitting(encode_permitted_families(step))
            chain.state.update(changed)
            ledger.state.update(changed)
            refused.clear()
            continue
        family, *content = step
        made = ledger.transaction(json.dumps(content).encode(), family=family.name, version=family.version)
        batch = VerifiedBatch(BatchId(made.id), (VerifiedTransaction(*made),), 2, b"", "", 0)
        outcome = chain.take(batch)
        assert outcome_of(ledger, made) == outcome
        event(f"batch: {outcome.verdict} {outcome.reason}")
    settle(chain, ledger, refused)
    assert (dict(ledger.state), ledger.block_num) == (chain.state, chain.block_num)
