"""The ledger in memory: what an author's tests apply transactions to, under the validator's own rules.

Which rules: batches are whole or nothing; reads within inputs, writes within outputs and namespaces; sizes of values
and receipts; permitted families; every transaction once; dependencies. Order is the order of ``apply``.
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

    Every apply runs in this interpreter, with the handlers as given, and again in two others that differ in hash seed,
    clock, time zone, chance, environment and current folder, each time with handlers freshly made: by its class where
    that takes no arguments, as nodes make it, or else as it was when the ledger was made. Any difference in verdict,
    message, extended_data, writes, events or receipt data raises NonDeterministic. That finds: clocks, random numbers,
    the order of sets, ids of objects, environment variables, what an earlier transaction left on the handler, its class
    or its module; and, by refusing the call: network, files, processes, threads. So does a run that does not end the
    second time; a bound for the first is the test runner's business.

    It does not find: what this machine and this Python do alike every time (floating point that another processor
    rounds otherwise, a library of another version, what a module read from files or the environment when it was
    imported); what the system tells without opening anything, as os.stat, os.path.exists, os.readlink, os.uname,
    os.cpu_count and os.getuid do; clocks that are read outside Python; what a handler whose class takes arguments read
    when it was made; what the second run changes outside Python, and an order of reads that leaves no trace in the
    result. What a test has patched, in a module or on a handler, is not there in the second run.
    """

    def __init__(
        self,
        *handlers: TransactionHandler[Any],
        state: Mapping[str, bytes] | None = None,
        limits: Limits | None = None,
        twice: bool = True,
    ) -> None:
        """``state``: what it holds at first. ``twice``: False gives up the second runs, and with them that check.

        Raises CannotRunTwice for a handler that only this interpreter can make.
        """
        for handler in handlers:
            if not isinstance(handler, TransactionHandler):
                style = "; one of the Sawtooth 1.x SDK as in Ledger(*processor_sdk.sawtooth.adapted(MyHandler()))"
                old = hasattr(handler, "family_versions")
                raise TypeError(
                    f"{handler!r} is no handler: give instances, as in Ledger(MyHandler()){style if old else ''}"
                )
        self.state = State(state or {})
        """What each address holds now. Tests may change it."""
        self.receipts: dict[TransactionId, Receipt] = {}
        """One for each transaction that took effect, in order."""
        self.block_num = 0
        """The number of the block that comes next: every batch that takes effect is one. Tests may set it."""
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
        ``version`` may be left out where the handlers leave one choice. ``inputs`` and ``outputs``: by default the
        handler's namespaces. ``signer``: a public key. ``nonce``: by default a new one, so that no two are the same.
        Raises RefusedBatch for a form that the validator would not take in.
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

        Raises ApplyFailed where a handler or its codec raises something else than a refusal, NonDeterministic, and
        RefusedBatch for what the validator would not take in.
        """
        batch = batch_of(what, self._limits.body_bytes_max)
        result = self._result(batch)
        if result.verdict is Verdict.INVALID:
            self._invalid.update(transaction.id for transaction in batch.transactions)
        return result

    def migrate(
        self, *, family: str = "", version: str = "", prefixes: Sequence[str] = (), sliced: bool = False
    ) -> Result:
        """Migrate the state as the validator does before the first transaction of a version: whole, or not at all.

        ``family`` and ``version``: as for ``transaction``. ``prefixes``: by default those of the setting's entry for
        this block, or else the handler's namespaces. State of more than 2,000 leaves or 1 MiB under them is migrated in
        256 slices, and less in one, unless ``sliced``: an author sees by it whether both leave the same. Of many slices
        a few are run again elsewhere: the first, the last, and some that hold or write something.

        What is migrated once, by the same entry and prefixes, is a duplicate_transaction. Raises as ``apply`` does, and
        NotDecodable for prefixes that no setting can hold.
        """
        name = self._family(family, version)
        handler = self._handlers.get(name)
        if handler is None or not handler.migrates:
            # The validator gives a migration to no other processor.
            why = f"this ledger's handler of {name} declares no migrate; {INHERITED_MIGRATE}"
            return Result(Verdict.PENDING, "waiting_for_processor", why if handler else _no_handler(name))
        activation = Activation(self.state, self.block_num, self.receipts)
        plan = activation.plan(name, prefixes, handler.namespaces)
        values = (value for prefix in plan.migrate for _, value in self.state.entries(prefix))
        return self._result(migration_of(plan, sliced=sliced or is_sliced(values)), plan)

    def accepts(self, what: Applicable) -> Result:
        """``apply`` what must take effect; AssertionError with the reason where it does not."""
        result = self.apply(what)
        if not result:
            raise AssertionError(f"it did not take effect: {result.verdict} ({result.reason}): {result.message}")
        return result

    def refuses(self, what: Applicable, match: str = "") -> Result:
        """``apply`` what must be invalid, for a reason in which the regular expression ``match`` is found."""
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
        """``plan``: what ``batch`` migrates by, where it does."""
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
        """Why nothing of ``batch`` runs now: a wait for a processor is told before one for a dependency."""
        refusal = self._rules(batch, plan)
        if refusal is not None and refusal.verdict is Verdict.INVALID:
            return refusal
        for transaction in batch.transactions:
            if transaction.family not in self._handlers:
                why = _no_handler(transaction.family)
                return Result(Verdict.PENDING, "waiting_for_processor", why, transaction.id)
        return refusal

    def _rules(self, batch: Batch, plan: Permission | None) -> Result | None:
        """The rules of the validator's journal, in its words."""
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
            # No slice of a migration reads what another writes, and to lay all over the state is work for each page.
            before = View(self.state, {} if migrates else changes)
            outcomes = (runs.singly if migrates else runs.packed)(batch.id, transactions, before)
            sample = Sample(transactions, self.state) if migrates else None
            for place, (transaction, told) in enumerate(zip(transactions, outcomes, strict=False)):
                outcome = told._replace(changes=without_idle_removals(told.changes, before.get))
                # Before the rules: what a handler does wrong at all is more than what they say of one time.
                if sample is None or sample.takes(place, outcome):
                    runs.check(batch.id, transaction, before, outcome)
                if outcome.verdict == INVALID:
                    return _invalid(transaction, outcome.message, outcome.extended_data)
                kept = keep(
                    transaction.id,
                    transaction.outputs,
                    handler.namespaces,
                    told.changes,
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
