"""The transactions and batches that clients submit: all families, valid and invalid, drawn from the seed."""

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import NamedTuple

from dovetail.ledger.building import SignedBatch, SignedTransaction, build_batch, build_transaction
from dovetail.ledger.ids import TransactionId
from dovetail.ledger.permitted import PERMITTED_AT, Permission, encode_permitted_families
from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.signing import Signer
from dovetail.ledger.transaction import decode_transaction
from tests.system.simulation.programs import (
    ADDRESSES,
    FLAKY,
    HOT,
    HOT_NEXT,
    LIST,
    MIGRATED,
    SETTINGS,
    address,
    may_fail,
)

SIGNERS = tuple(Signer(f"{number:02x}" * 32) for number in (0x21, 0x22))
_HALF = ADDRESSES // 2
_sign = lru_cache(maxsize=8192)(build_transaction)


class Made(NamedTuple):
    """A batch and its possible outcomes. ``may_fail``: whether honest processors may find the batch invalid."""

    batch: SignedBatch
    transactions: tuple[SignedTransaction, ...]
    families: frozenset[FamilyVersion]
    dependencies: frozenset[TransactionId]
    """Dependencies on transactions that do not come earlier in the same batch."""
    may_fail: bool


class Maker:
    """``families``: the families of transactions.

    ``upgrade_at``: the block from which HOT_NEXT migrates, None for never.
    """

    def __init__(self, rng: Random, families: Sequence[FamilyVersion], upgrade_at: int | None, settings: float) -> None:
        """``settings``: the percentage of transactions that change the permitted families."""
        self._rng = rng
        self._families = families
        self._upgrade_at = upgrade_at
        self._settings = settings
        self._hot = rng.randint(1, 4)
        self._nonce = 0
        self._transactions: list[SignedTransaction] = []
        self._facts: dict[TransactionId, tuple[FamilyVersion, bool]] = {}
        """The family of each transaction, and whether the transaction may be invalid."""
        self.made: dict[str, Made] = {}

    def batch(self) -> Made:
        """A new batch."""
        rng = self._rng
        signer = rng.choice(SIGNERS)
        transactions: list[SignedTransaction] = []
        for _ in range(rng.choice([1, 1, 1, 1, 2, 3, 5])):
            transactions.append(self._transaction(signer, tuple(item.id for item in transactions)))
        held = {item.id for item in transactions}
        if self._transactions and rng.random() < 0.08:
            # Put in a transaction that another batch of the same batcher already holds.
            again = rng.choice(self._transactions)
            if again.id not in held and _batcher(again) == signer.public_key:
                transactions.append(again)
        self._transactions += transactions
        return self._batch_of(signer, transactions)

    def genesis(self) -> list[Made]:
        """The batches of block 0: some state, and permitted families."""
        signer = SIGNERS[0]
        operations = " ".join(f"s{number}" for number in range(0, _HALF, 3))
        outputs = (address(0)[:6],)
        batches = [[self._signed(signer, HOT, operations, outputs, outputs, ())]]
        if self._upgrade_at is not None or self._settings:
            batches.append([self._settings_transaction(signer, everything=True)])
        return [self._batch_of(signer, transactions) for transactions in batches]

    def _batch_of(self, signer: Signer, transactions: Sequence[SignedTransaction]) -> Made:
        facts = [self._facts[item.id] for item in transactions]
        families = frozenset(family for family, _ in facts)
        before: set[TransactionId] = set()
        dependencies: set[TransactionId] = set()
        for item in transactions:
            dependencies.update(decode_transaction(item.raw).header.dependencies)
            dependencies -= before
            before.add(item.id)
        may = any(fallible for _, fallible in facts)
        made = Made(build_batch(signer, transactions), tuple(transactions), families, frozenset(dependencies), may)
        self.made[made.batch.id] = made
        return made

    def _transaction(self, signer: Signer, before: tuple[TransactionId, ...]) -> SignedTransaction:
        rng = self._rng
        if rng.random() * 100 < self._settings:
            return self._settings_transaction(signer)
        family = rng.choice(self._families)
        operations, inputs, outputs = self._program(family)
        return self._signed(signer, family, " ".join(operations), inputs, outputs, self._dependencies(before))

    def _program(self, family: FamilyVersion) -> tuple[list[str], tuple[str, ...], tuple[str, ...]]:
        rng = self._rng
        first, last = {LIST: (_HALF, ADDRESSES - 1), FLAKY: (0, ADDRESSES - 1)}.get(family, (0, _HALF - 1))
        operations: list[str] = []
        reads: set[str] = set()
        writes: set[str] = set()
        for _ in range(rng.randint(1, 4)):
            kind = rng.choice("gggssssd" if family != LIST else "gssdll")
            if kind in "sd":
                place = first + rng.randint(0, self._hot) if rng.random() < 0.5 else rng.randint(first, last)
                writes.add(address(place))
            else:
                place = rng.choice([0, _HALF]) + rng.randint(0, self._hot)
                if rng.random() < 0.4:
                    place = rng.randint(0, ADDRESSES - 1)
                reads.add(address(place)[: 8 if kind == "l" else 70])
            operations.append(f"{kind}{place}")
        if rng.random() < 0.18:
            operations.append(rng.choice("feeww"))
        if rng.random() < 0.3:
            # With this input, written values depend on earlier transactions.
            target = next(iter(sorted(writes)), None)
            if target is not None:
                reads.add(target)
        widen = rng.random()
        inputs = {place[:8] for place in reads} if widen < 0.15 else reads
        outputs = {place[:8] for place in writes} if widen > 0.9 else writes
        return operations, tuple(sorted(inputs)), tuple(sorted(outputs))

    def _dependencies(self, before: tuple[TransactionId, ...]) -> tuple[TransactionId, ...]:
        rng = self._rng
        drawn = rng.random()
        if before and drawn < 0.3:
            return (rng.choice(before),)
        if self._transactions and drawn < 0.2:
            return tuple({rng.choice(self._transactions[-20:]).id: None for _ in range(rng.randint(1, 2))})
        if drawn > 0.97:
            return (TransactionId(f"{rng.getrandbits(512):0128x}"),)
        return ()

    def _settings_transaction(self, signer: Signer, *, everything: bool = False) -> SignedTransaction:
        rng = self._rng
        permitted = [Permission(SETTINGS)]
        for family in (HOT, LIST, FLAKY):
            drawn = 1.0 if everything else rng.random()
            if drawn > 0.4:
                permitted.append(Permission(family))
            elif drawn > 0.2:
                permitted.append(Permission(family, rng.randint(1, 15)))
            elif drawn > 0.05:
                permitted.append(Permission(family, 0, rng.randint(3, 20)))
        if self._upgrade_at is not None:
            permitted.append(Permission(HOT_NEXT, self._upgrade_at, None, (MIGRATED,)))
        return self._signed(
            signer, SETTINGS, encode_permitted_families(permitted), (PERMITTED_AT,), (PERMITTED_AT,), ()
        )

    def _signed(
        self,
        signer: Signer,
        family: FamilyVersion,
        payload: str,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        dependencies: tuple[TransactionId, ...],
    ) -> SignedTransaction:
        self._nonce += 1
        made = _sign(
            signer,
            batcher_pubkey=signer.public_key,
            family_name=family.name,
            family_version=family.version,
            inputs=inputs,
            outputs=outputs,
            payload=payload.encode(),
            payload_encoding="",
            nonce=str(self._nonce),
            dependencies=dependencies,
        )
        self._facts[made.id] = (family, family != SETTINGS and may_fail(payload))
        return made


@lru_cache(maxsize=8192)
def _batcher(transaction: SignedTransaction) -> str:
    return decode_transaction(transaction.raw).header.batcher_pubkey
