"""Migrations as batches: the same on every node, for those that make a block and those that check one.

Which block may hold one is said in ``rules``; what the transactions say and how state is sliced, in
``ledger.migration``.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

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


class _Plan(NamedTuple):
    """What the bytes of a migration follow from, beside the way in which it is sliced."""

    family: FamilyVersion
    from_block: int
    prefixes: tuple[str, ...]


def batch_for(permission: Permission, state: View) -> VerifiedBatch:
    """The migration of a version, sliced for what ``state`` holds under its prefixes."""
    values = (value for prefix in permission.migrate for _, value in state.under(prefix, ""))
    return _batch(_plan(permission), migration.is_sliced(values))


def ids_of(permission: Permission) -> list[BatchId]:
    """The ids that the migration of a version may have, one for each way to slice."""
    return [_batch(_plan(permission), sliced).id for sliced in (False, True)]


def transaction_ids_of(permission: Permission) -> tuple[TransactionId, ...]:
    """The first transaction for each way to slice: where one is on the chain, the version is migrated."""
    return _first_ids(_plan(permission))


def _plan(permission: Permission) -> _Plan:
    return _Plan(permission.family, permission.from_block, permission.migrate)


@lru_cache(maxsize=_IDS_KEPT_MAX)
def _first_ids(plan: _Plan) -> tuple[TransactionId, ...]:
    forms = [migration.slices(plan.prefixes, sliced=sliced) for sliced in (False, True)]
    return tuple(_transaction(plan, 0, form).id for form in forms)


@lru_cache(maxsize=_BATCHES_KEPT_MAX)
def _batch(plan: _Plan, sliced: bool) -> VerifiedBatch:
    slices = migration.slices(plan.prefixes, sliced=sliced)
    transactions = [_transaction(plan, number, slices) for number in range(len(slices))]
    return verify_migration(build_batch(_SIGNER, transactions).raw)


def _transaction(plan: _Plan, number: int, slices: Sequence[tuple[str, ...]]) -> SignedTransaction:
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
