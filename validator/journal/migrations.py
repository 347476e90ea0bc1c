"""Migrations as batches: the same on every node, for those that make a block and those that check one.

Which block may hold one is said in ``rules``; what the transactions say and how state is sliced, in
``ledger.migration``.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import Final

from ledger import migration
from ledger.batch import VerifiedBatch, verify_migration
from ledger.building import SignedTransaction, build_batch, build_transaction
from ledger.ids import BatchId, TransactionId
from ledger.permitted import Permission
from ledger.settings import FamilyVersion
from ledger.signing import Signer
from validator.state.view import View

_BATCHES_KEPT_MAX: Final = 16
_IDS_KEPT_MAX: Final = 1_024
_SIGNER: Final = Signer(migration.PRIVATE_KEY)
_LEAVES_OF_FORMS: Final = (0, migration.LEAVES_MAX + 1)
"""A number of leaves for each of the two ways to slice: in one piece, and in many."""


def batch_for(permission: Permission, state: View) -> VerifiedBatch:
    """The migration of a version, sliced for what ``state`` holds under its prefixes."""
    most = migration.LEAVES_MAX + 1
    leaves = 0
    for prefix in permission.migrate:
        leaves += sum(1 for _ in islice(state.under(prefix, ""), most - leaves))
    return _batch(permission.family, permission.migrate, _LEAVES_OF_FORMS[leaves >= most])


def ids_of(permission: Permission) -> list[BatchId]:
    """The ids that the migration of a version may have, one for each way to slice."""
    return [_batch(permission.family, permission.migrate, leaves).id for leaves in _LEAVES_OF_FORMS]


def transaction_ids_of(permission: Permission) -> tuple[TransactionId, ...]:
    """The first transaction for each way to slice: where one is on the chain, the version is migrated."""
    return _first_ids(permission.family, permission.migrate)


@lru_cache(maxsize=_IDS_KEPT_MAX)
def _first_ids(family: FamilyVersion, prefixes: tuple[str, ...]) -> tuple[TransactionId, ...]:
    forms = [migration.slices(prefixes, leaves) for leaves in _LEAVES_OF_FORMS]
    return tuple(_transaction(family, 0, form).id for form in forms)


@lru_cache(maxsize=_BATCHES_KEPT_MAX)
def _batch(family: FamilyVersion, prefixes: tuple[str, ...], leaves: int) -> VerifiedBatch:
    slices = migration.slices(prefixes, leaves)
    transactions = [_transaction(family, number, slices) for number in range(len(slices))]
    return verify_migration(build_batch(_SIGNER, transactions).raw)


def _transaction(family: FamilyVersion, number: int, slices: Sequence[tuple[str, ...]]) -> SignedTransaction:
    return build_transaction(
        _SIGNER,
        batcher_pubkey=_SIGNER.public_key,
        family_name=family.name,
        family_version=family.version,
        inputs=slices[number],
        outputs=slices[number],
        payload=b"",
        payload_encoding=migration.PAYLOAD_ENCODING,
        nonce=migration.nonce(number, len(slices)),
    )
