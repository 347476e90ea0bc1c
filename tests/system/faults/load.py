"""Batches whose outcome can be told from the chain: intkey sets, incs of shared names, pairs, dependents, bad ones.

What lives here: what is handed in, and what a set of committed batches must have made of the state. What must not:
sockets, processes, what became of a batch.
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
    """A batch and what it does where it is committed: how much each name gains."""

    batch: SignedBatch
    kind: Kind
    gains: Counter[str]


class Load:
    """Batches of one author. ``mark``: at most 8 characters, so that names and nonces are no other load's."""

    def __init__(self, seed: int, mark: str) -> None:
        self._random = Random(f"{seed} {mark}")
        self._mark = mark
        self._signer = Signer(self._random.randbytes(32).hex())
        self._last: SignedTransaction | None = None
        self.made: dict[BatchId, Made] = {}
        self.names = [f"{mark}-{number}" for number in range(_NAMES)]

    def begin(self) -> list[SignedBatch]:
        """The names that all others count on, each set to 0: to be committed first."""
        return [self._make("set", [("set", name, 0)]) for name in self.names]

    def take(self, count: int, kinds: Collection[Kind] = MIXED) -> list[SignedBatch]:
        """So many batches that nobody has seen."""
        return [self._one(kind) for kind in self._random.choices(list(kinds), k=count)]

    def state_of(self, committed: Collection[BatchId]) -> dict[str, int]:
        """Each name's value once exactly these batches are applied, each once."""
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
            # The first applies, so that what it wrote must go with the second.
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
    """A name's value in the bytes of its leaf; None where it has none."""
    return None if leaf is None else LEAF.decode(leaf).get(name)
