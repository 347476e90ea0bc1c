"""A family with slow applies, so that a small load is many times its processor's capacity.

This module holds the handler, and makes lists of signed batches for it.
"""

import time
from collections.abc import Iterator
from hashlib import sha512
from typing import Any, ClassVar, NamedTuple

from dovetail.ledger.building import build_batch, build_transaction, encode_batch_list
from dovetail.ledger.signing import Signer
from processor_sdk import Context, TransactionHandler

FAMILY = "e2e_slow"
HANDLER = "tests.system.e2e.slow_family:SlowHandler"
NAMESPACE = sha512(FAMILY.encode()).hexdigest()[:6]

APPLY_S = 0.004


class SlowHandler(TransactionHandler[Any]):
    """Counts at the address that the payload names."""

    family_name: ClassVar[str] = FAMILY
    family_version: ClassVar[str] = "1.0"
    namespaces: ClassVar[tuple[str, ...]] = (NAMESPACE,)

    def apply(self, transaction: Any, context: Context) -> None:
        place = counter(transaction.payload.decode())
        count = int(context.get(place) or b"0")
        time.sleep(APPLY_S)
        context.set(place, b"%d" % (count + 1))


def counter(name: str) -> str:
    """The address at which a name's transactions are counted."""
    return NAMESPACE + sha512(name.encode()).hexdigest()[:64]


class SignedList(NamedTuple):
    """One body of POST /batches."""

    body: bytes
    batch_ids: tuple[str, ...]


def signed_lists(signer: Signer, name: str, batches: int) -> Iterator[SignedList]:
    """An endless series of lists.

    Each list has so many ``batches`` of one transaction, which adds 1 to the count of ``name``.
    """
    number = 0
    while True:
        made = []
        for _ in range(batches):
            transaction = build_transaction(
                signer, batcher_pubkey=signer.public_key, family_name=FAMILY, family_version="1.0",
                inputs=[counter(name)], outputs=[counter(name)], payload=name.encode(), payload_encoding="",
                nonce=f"{name} {number}",
            )  # fmt: skip
            made.append(build_batch(signer, [transaction]))
            number += 1
        yield SignedList(encode_batch_list(made), tuple(batch.id for batch in made))
