"""Batches whose outcome follows from the chain: intkey sets, incs of shared names, pairs, dependents, invalid ones.

This module makes the batches, and computes the state that a set of committed batches must give. Sockets, processes and
statuses do not belong here.
"""

from collections import Counter
from collections.abc import Collection
from random import Random
from typing import Final, Literal, NamedTuple

from dovetail.ledger.building import SignedBatch, SignedTransaction, build_batch, build_transaction
from dovetail.ledger.ids import BatchId, TransactionId
from dovetail.ledger.signing import Signer
from families.intkey.client import LEAF, intkey_address
from families.intkey.payload import ENCODINGS, FAMILY_NAME, FAMILY_VERSION, IntkeyPayload, Verb

Kind = Literal["inc", "pair", "dependent", "bad", "set"]
MIXED: Final[tuple[Kind, ...]] = ("inc", "inc", "inc", "pair", "dependent", "bad", "set")
BAD: Final[tuple[Kind, ...]] = ("bad",)

_NAMES: Final = 8
_ENCODING: Final = "application/cbor"


class Made(NamedTuple):
    """A batch, and how much a commit of it adds to each name."""

    batch: SignedBatch
    kind: Kind
    gains: Counter[str]


class Load:
    """Batches of one author. ``mark``: at most 8 characters that make names and nonces unique."""

    def __init__(self, seed: int, mark: str) -> None:
        self._random = Random(f"{seed} {mark}")
        self._mark = mark
        self._signer = Signer(self._random.randbytes(32).hex())
        self._last: SignedTransaction | None = None
        self.made: dict[BatchId, Made] = {}
        self.names = [f"{mark}-{number}" for number in range(_NAMES)]

    def begin(self) -> list[SignedBatch]:
        """Batches that set each shared name to 0. They must be committed before all others."""
        return [self._make("set", [("set", name, 0)]) for name in self.names]

    def make(self, count: int, kinds: Collection[Kind] = MIXED) -> list[SignedBatch]:
        """Make so many new batches."""
        return [self._one(kind) for kind in self._random.choices(list(kinds), k=count)]

    def state_of(self, committed: Collection[BatchId]) -> dict[str, int]:
        """Each name's value after exactly these batches are applied once."""
        values: Counter[str] = Counter(dict.fromkeys(self.names, 0))
        for batch_id in committed:
            if batch_id in self.made:
                values.update(self.made[batch_id].gains)
        return dict(values)

    def _one(self, kind: Kind) -> SignedBatch:
        first, second = self._random.sample(self.names, 2)
        if kind == "pair":
            return self._make(kind, [("inc", first, 1), ("inc", second, 2)])
        if kind == "bad":
            # The first transaction is valid, but its write must be dropped with that of the second.
            return self._make(kind, [("inc", first, 1), ("inc", f"{self._mark}-absent", 1)])
        if kind == "set":
            return self._make(kind, [("set", f"{self._mark}-{len(self.made)}s", len(self.made))])
        after = self._last if kind == "dependent" else None
        return self._make(kind, [("inc", first, 1)], () if after is None else (after.id,))

    def _make(
        self, kind: Kind, steps: list[tuple[Verb, str, int]], dependencies: tuple[TransactionId, ...] = ()
    ) -> SignedBatch:
        signer = self._signer
        transactions: list[SignedTransaction] = []
        gains: Counter[str] = Counter()
        for verb, name, value in steps:
            addresses = (intkey_address(name),)
            transactions.append(
                build_transaction(
                    signer,
                    batcher_pubkey=signer.public_key,
                    family_name=FAMILY_NAME,
                    family_version=FAMILY_VERSION,
                    inputs=addresses,
                    outputs=addresses,
                    payload=ENCODINGS[_ENCODING].encode(IntkeyPayload(verb, name, value)),
                    payload_encoding=_ENCODING,
                    nonce=f"{self._mark} {len(self.made)} {len(transactions)}",
                    dependencies=dependencies,
                )
            )
            gains[name] += value
        if kind != "bad":
            self._last = transactions[0]
        batch = build_batch(signer, transactions)
        self.made[batch.id] = Made(batch, kind, gains)
        return batch


def value_at(leaf: bytes | None, name: str) -> int | None:
    """The value of a name in the bytes of its leaf; None if there is none."""
    return None if leaf is None else LEAF.decode(leaf).get(name)
