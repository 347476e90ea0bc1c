"""The ledger in memory: applies transactions of an author's tests under the validator's own rules.

The rules: batches are atomic; reads within inputs, writes within outputs and namespaces; sizes of values and receipts;
permitted families; no transaction twice; dependencies. Transactions run in the order of the calls.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import count, groupby
from operator import attrgetter
from typing import Any

from dovetail.ledger.errors import RefusedBatch
from dovetail.ledger.ids import TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.migration import PUBLIC_KEY, is_sliced
from dovetail.ledger.outcome import keep, without_idle_removals
from dovetail.ledger.permitted import Permission
from dovetail.ledger.receipt import Event, Receipt
from dovetail.ledger.settings import FamilyVersion
from processor_sdk.apply.dispatch import Dispatcher
from processor_sdk.handler import TransactionHandler
from processor_sdk.migration import INHERITED_MIGRATE
from processor_sdk.testing.interpreters import Recipe
from processor_sdk.testing.migrating import Activation, Sample, done, migration_of
from processor_sdk.testing.model import Result, Verdict
from processor_sdk.testing.runs import INVALID, Runs
from processor_sdk.testing.state import State, View
from processor_sdk.testing.transactions import SIGNER, Applicable, Batch, UnsignedTransaction, batch_of, unsigned


class Ledger:
    """A ledger in memory over ``handlers``.

    Every apply runs in this interpreter with the given handlers, and again in two others with another hash seed, clock,
    time zone, random seed, environment and current folder. Each of these runs has new handlers: made by the class if it
    takes no arguments, as nodes do; otherwise copied as they were when the ledger was made. A difference in verdict,
    message, extended_data, writes, events or receipt data raises NonDeterministic.

    The ledger finds uses of clocks, random numbers, the order of sets, ids of objects, environment variables, and data
    that an earlier transaction left on the handler, its class or its module. It refuses calls to network, files,
    processes and threads. It also finds a second run that does not end; the test runner must bound the first run.

    The ledger does not find: results that are the same on every run on this machine (floating point of another
    processor, other library versions, files and environment read at import time); os.stat, os.path.exists, os.readlink,
    os.uname, os.cpu_count and os.getuid; clocks read outside Python; data that a handler with constructor arguments
    read when it was made; changes of the second run outside Python; an order of reads without a trace in the result.
    Patches that a test made in a module or on a handler do not exist in the second run.
    """

    def __init__(
        self,
        *handlers: TransactionHandler[Any],
        state: Mapping[str, bytes] | None = None,
        limits: Limits | None = None,
        twice: bool = True,
    ) -> None:
        """``state``: the first state. ``twice``: False switches the second runs off.

        Only second runs find a handler that is not deterministic. Raises CannotRunTwice for a handler that only this
        interpreter can make.
        """
        for handler in handlers:
            if not isinstance(handler, TransactionHandler):
                style = "; one of the Sawtooth 1.x SDK as in Ledger(*processor_sdk.sawtooth.adapted(MyHandler()))"
                old = hasattr(handler, "family_versions")
                raise TypeError(
                    f"{handler!r} is no handler: give instances, as in Ledger(MyHandler()){style if old else ''}"
                )
        self.state = State(state or {})
        """The current state. Tests may change it."""
        self.receipts: dict[TransactionId, Receipt] = {}
        """The receipts of all transactions that took effect, in order."""
        self.block_num = 0
        """The number of the next block. Every batch that takes effect is a block. Tests may set it."""
        self._limits = limits or Limits()
        self._handlers = {FamilyVersion(handler.family_name, handler.family_version): handler for handler in handlers}
        self._dispatcher = Dispatcher(handlers)
        self._recipe = Recipe.of(handlers) if twice else None
        self._invalid: set[TransactionId] = set()
        self._numbers = count(1)

    @property
    def events(self) -> list[Event]:
        """The events of all transactions that took effect, in order."""
        return [event for receipt in self.receipts.values() for event in receipt.events]

    def transaction(
        self,
        payload: object,
        *,
        family: str = "",
        version: str = "",
        encoding: str = "",
        inputs: Iterable[str] | None = None,
        outputs: Iterable[str] | None = None,
        signer: str = SIGNER,
        dependencies: Iterable[TransactionId] = (),
        nonce: str | None = None,
    ) -> UnsignedTransaction:
        """An unsigned transaction.

        ``payload``: bytes, or a value that the handler's codec for ``encoding`` (or its first) encodes. ``family`` and
        ``version`` may be left out if only one handler fits. ``inputs`` and ``outputs``: by default the handler's
        namespaces. ``signer``: a public key. ``nonce``: by default a new one, so that no two transactions are equal.
        Raises RefusedBatch if the validator would not accept the transaction's form.
        """
        if signer == PUBLIC_KEY:
            raise RefusedBatch("migration_key", "its signer is the key of migrations, which only validators make")
        name = self._family(family, version)
        handler = self._handlers.get(name)
        if not isinstance(payload, bytes):
            encodings = handler.encodings if handler else {}
            codec = encodings.get(encoding) if encoding else next(iter(encodings.values()), None)
            if codec is None:
                raise TypeError(
                    f"{name} has no codec for a {type(payload).__name__} in the encoding {encoding!r}: give bytes"
                )
            encoding = encoding or next(iter(encodings))
            payload = codec.encode(payload)
        namespaces = handler.namespaces if handler else ()
        return unsigned(
            name,
            payload,
            encoding=encoding,
            inputs=namespaces if inputs is None else inputs,
            outputs=namespaces if outputs is None else outputs,
            signer=signer,
            dependencies=dependencies,
            nonce=f"{next(self._numbers)}" if nonce is None else nonce,
        )

    def apply(self, what: Applicable) -> Result:
        """Apply one transaction (a batch of its own), a list of them (one batch), or a signed batch.

        Raises ApplyFailed if a handler or its codec raises an exception that is no refusal, NonDeterministic, and
        RefusedBatch if the validator would not accept the batch.
        """
        batch = batch_of(what, self._limits.body_bytes_max)
        result = self._result(batch)
        if result.verdict is Verdict.INVALID:
            self._invalid.update(transaction.id for transaction in batch.transactions)
        return result

    def migrate(
        self, *, family: str = "", version: str = "", prefixes: Sequence[str] = (), sliced: bool = False
    ) -> Result:
        """Migrate the state as the validator does before a version's first transaction: completely or not at all.

        ``family`` and ``version``: as for ``transaction``. ``prefixes``: by default those of the setting's entry for
        this block, or else the handler's namespaces. More than 2,000 leaves or 1 MiB are migrated in 256 slices, less
        in one. ``sliced`` forces 256 slices, to test that both ways have the same result. Of many slices a few run
        again in other interpreters: the first, the last, and some that hold or write entries.

        A second migration by the same entry and prefixes is a duplicate_transaction. Raises as ``apply`` does, and
        NotDecodable for prefixes that no setting can hold.
        """
        name = self._family(family, version)
        handler = self._handlers.get(name)
        if handler is None or not handler.migrates:
            # The validator sends migrations only to processors that migrate.
            why = f"this ledger's handler of {name} declares no migrate; {INHERITED_MIGRATE}"
            return Result(Verdict.PENDING, "waiting_for_processor", why if handler else _no_handler(name))
        activation = Activation(self.state, self.block_num, self.receipts)
        plan = activation.plan(name, prefixes, handler.namespaces)
        values = (value for prefix in plan.migrate for _, value in self.state.entries(prefix))
        return self._result(migration_of(plan, sliced=sliced or is_sliced(values)), plan)

    def accepts(self, what: Applicable) -> Result:
        """``apply`` and expect the batch to take effect. Raises AssertionError with the reason otherwise."""
        result = self.apply(what)
        if not result:
            raise AssertionError(f"it did not take effect: {result.verdict} ({result.reason}): {result.message}")
        return result

    def refuses(self, what: Applicable, match: str = "") -> Result:
        """``apply`` and expect an invalid batch, with a message that the regular expression ``match`` finds."""
        result = self.apply(what)
        if result.verdict is not Verdict.INVALID:
            raise AssertionError(f"it is not invalid but {result.verdict}{result.reason and f' ({result.reason})'}")
        if not re.search(match, result.message):
            raise AssertionError(f"it is invalid, but {match!r} is not found in: {result.message}")
        return result

    def _family(self, name: str, version: str) -> FamilyVersion:
        if name and version:
            return FamilyVersion(name, version)
        found = [family for family in self._handlers if name in ("", family.name) and version in ("", family.version)]
        if len(found) != 1:
            known = ", ".join(map(str, self._handlers)) or "none"
            raise ValueError(f"say which family and version is meant; this ledger has handlers for: {known}")
        return found[0]

    def _result(self, batch: Batch, plan: Permission | None = None) -> Result:
        """``plan``: the permission by which ``batch`` migrates, if it is a migration."""
        refusal = self._refusal(batch, plan)
        result = self._execute(batch, plan is not None) if refusal is None else refusal
        if result:
            self.block_num += 1
        for receipt in result.receipts:
            self.receipts[receipt.transaction_id] = receipt
            for address, value in receipt.changes.items():
                if value is None:
                    del self.state[address]
                else:
                    self.state[address] = value
        return result

    def _refusal(self, batch: Batch, plan: Permission | None) -> Result | None:
        """Why ``batch`` does not run now. A missing processor is reported before a missing dependency."""
        refusal = self._rules(batch, plan)
        if refusal is not None and refusal.verdict is Verdict.INVALID:
            return refusal
        for transaction in batch.transactions:
            if transaction.family not in self._handlers:
                why = _no_handler(transaction.family)
                return Result(Verdict.PENDING, "waiting_for_processor", why, transaction.id)
        return refusal

    def _rules(self, batch: Batch, plan: Permission | None) -> Result | None:
        """The rules of the validator's journal, with the same messages."""
        activation = Activation(self.state, self.block_num, self.receipts)
        migrated = done(plan, self.receipts) if plan else None
        own: set[TransactionId] = set()
        for transaction in batch.transactions:
            id_ = transaction.id
            refusal = activation.refusal(transaction.family, id_, plan)
            if refusal is not None:
                return refusal
            if migrated is not None or id_ in self.receipts:
                message = f"transaction {migrated or id_} is already committed"
                return Result(Verdict.INVALID, "duplicate_transaction", message, migrated or id_)
            for dependency in transaction.dependencies:
                if dependency in own or dependency in self.receipts:
                    continue
                if dependency in self._invalid:
                    message = f"it depends on transaction {dependency}, which was judged invalid"
                    return Result(Verdict.INVALID, "dependency_invalid", message, id_)
                message = f"it depends on transaction {dependency}, which is not committed"
                return Result(Verdict.PENDING, "waiting_for_dependency", message, id_)
            own.add(id_)
        return None

    def _execute(self, batch: Batch, migrates: bool) -> Result:
        changes: dict[str, bytes | None] = {}
        receipts: list[Receipt] = []
        for family, group in groupby(batch.transactions, attrgetter("family")):
            transactions = tuple(group)
            handler = self._handlers[family]
            runs = Runs(self._dispatcher, self._recipe, handler.namespaces, self._limits, migrates=migrates)
            # No slice of a migration reads the writes of another, and overlaying them would slow every page.
            before = View(self.state, {} if migrates else changes)
            outcomes = (runs.singly if migrates else runs.packed)(batch.id, transactions, before)
            sample = Sample(transactions, self.state) if migrates else None
            for place, (transaction, first) in enumerate(zip(transactions, outcomes, strict=False)):
                outcome = first._replace(changes=without_idle_removals(first.changes, before.get))
                # Checked before the rules: a non-deterministic handler is a worse fault than one refused result.
                if sample is None or sample.takes(place, outcome):
                    runs.check(batch.id, transaction, before, outcome)
                if outcome.verdict == INVALID:
                    return _invalid(transaction, outcome.message, outcome.extended_data)
                kept = keep(
                    transaction.id,
                    family.name,
                    transaction.outputs,
                    handler.namespaces,
                    first.changes,
                    outcome.events,
                    outcome.data,
                    before.get,
                    self._limits,
                    migrates,
                )
                if isinstance(kept, str):
                    return _invalid(transaction, kept)
                receipts.append(Receipt(transaction.id, kept.changes, outcome.events, outcome.data))
                changes.update(kept.changes)
        return Result(Verdict.OK, receipts=tuple(receipts))


def _invalid(transaction: UnsignedTransaction, message: str, extended_data: bytes = b"") -> Result:
    return Result(Verdict.INVALID, "invalid_transaction", message, transaction.id, extended_data)


def _no_handler(family: FamilyVersion) -> str:
    return f"this ledger has no handler for the family {family}"
