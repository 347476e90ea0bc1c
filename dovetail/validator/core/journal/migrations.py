"""Builds the batches of migrations, which are the same on every node.

``rules`` decides which block may hold a migration. ``dovetail.ledger.migration`` defines transactions and slices.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from dovetail.ledger import migration
from dovetail.ledger.batch import VerifiedBatch, verify_migration
from dovetail.ledger.building import SignedTransaction, build_batch, build_transaction
from dovetail.ledger.ids import TransactionId
from dovetail.ledger.permitted import Permission, Plan
from dovetail.ledger.signing import Signer
from dovetail.validator.core.state.view import View

_BATCHES_KEPT_MAX: Final = 16
_IDS_KEPT_MAX: Final = 1_024
_SIGNER: Final = Signer(migration.PRIVATE_KEY)


def batch_for(permission: Permission, state: View) -> VerifiedBatch:
    """The migration of a version. Its slices depend on the size of ``state`` under the version's prefixes."""
    values = (value for prefix in permission.migrate for _, value in state.under(prefix, ""))
    return _batch(permission.plan, migration.is_sliced(values))


def is_of(batch: VerifiedBatch, permission: Permission) -> bool:
    """Whether ``batch`` is the migration of a version, sliced or not."""
    first_ids = transaction_ids_of(permission)
    first = batch.transactions[0].id
    return first in first_ids and batch.id == _batch(permission.plan, bool(first_ids.index(first))).id


def transaction_ids_of(permission: Permission) -> tuple[TransactionId, ...]:
    """The migration's first transaction, unsliced and sliced. If either is committed, the version is migrated."""
    return _first_ids(permission.plan)


@lru_cache(maxsize=_IDS_KEPT_MAX)
def _first_ids(plan: Plan) -> tuple[TransactionId, ...]:
    forms = [migration.slices(plan.prefixes, sliced=sliced) for sliced in (False, True)]
    return tuple(_transaction(plan, 0, form).id for form in forms)


@lru_cache(maxsize=_BATCHES_KEPT_MAX)
def _batch(plan: Plan, sliced: bool) -> VerifiedBatch:
    slices = migration.slices(plan.prefixes, sliced=sliced)
    transactions = [_transaction(plan, number, slices) for number in range(len(slices))]
    return verify_migration(build_batch(_SIGNER, transactions).raw)


def _transaction(plan: Plan, number: int, slices: Sequence[tuple[str, ...]]) -> SignedTransaction:
    return build_transaction(
        _SIGNER,
        batcher_pubkey=_SIGNER.public_key,
        family_name=plan.family.name,
        family_version=plan.family.version,
        inputs=slices[number],
        outputs=slices[number],
        payload=b"",
        payload_encoding=migration.PAYLOAD_ENCODING,
        nonce=migration.nonce(number, len(slices), plan.from_block, plan.prefixes),
    )
