"""Makes what a node needs before its first start: its key, the user's key, and the batch of block 0."""

import secrets
from pathlib import Path
from typing import Final, NamedTuple

from dovetail.common.errors import Refused
from dovetail.common.files import make_private_dir, write_whole
from dovetail.common.home import shown
from dovetail.common.keys import ensure_key, load_signer
from dovetail.common.output import program
from dovetail.ledger.building import build_batch
from dovetail.ledger.ids import PublicKey
from dovetail.ledger.signing import Signer
from families.settings.client import propose_authorized_keys
from protos import genesis_pb2

STORE_NAME: Final = "store"
GENESIS_NAME: Final = "genesis.batch"


class Prepared(NamedTuple):
    """The files that were made. ``genesis`` and ``authorized_key`` are None if the ledger had a genesis."""

    keys: tuple[Path, ...]
    genesis: Path | None
    authorized_key: PublicKey | None


def prepare(data_dir: Path, node_key: Path, user_key: Path, *, make_user_key: bool) -> Prepared:
    """Make the missing files. The genesis is made only in a folder with neither a store nor a genesis.

    Raises Refused, also if ``user_key`` does not exist and ``make_user_key`` is false, and as ``refuse_lost_key`` does.
    """
    refuse_lost_key(data_dir, node_key)
    make_private_dir(data_dir)
    made = tuple(path for path in ((node_key, user_key) if make_user_key else (node_key,)) if ensure_key(path))
    signer = load_signer(user_key)
    if has_ledger(data_dir):
        return Prepared(made, None, None)
    return Prepared(made, make_genesis(data_dir, signer), signer.public_key)


def refuse_lost_key(data_dir: Path, node_key: Path) -> None:
    """Raise Refused if a folder has a store but lacks its node's key, which must not be replaced unnoticed."""
    if (data_dir / STORE_NAME).exists() and not node_key.exists():
        raise Refused(
            f"{shown(data_dir)} has a ledger, but the node's key {shown(node_key)} is missing: put it back from where"
            " you keep it, since no backup of the store holds it, or make another on purpose. Blocks that are there"
            " stay valid, and those to come are signed by the new key, as by another node:"
            f" {program()} keygen {shown(node_key)}"
        )


def has_ledger(data_dir: Path) -> bool:
    """Whether the folder has a store, or the genesis of one."""
    return (data_dir / STORE_NAME).exists() or (data_dir / GENESIS_NAME).exists()


def make_genesis(data_dir: Path, signer: Signer) -> Path:
    """Write ``genesis.batch`` with one settings transaction, which authorizes the key of ``signer``. Raises Refused."""
    path = data_dir / GENESIS_NAME
    proposal = propose_authorized_keys(signer, signer.public_key, [signer.public_key], secrets.token_hex(16))
    data = genesis_pb2.GenesisData()
    data.batches.add().MergeFromString(build_batch(signer, [proposal.transaction]).raw)
    try:
        write_whole(path, data.SerializeToString(), mode=0o600)
    except FileExistsError:
        raise Refused(f"{shown(path)} exists and stays as it is") from None
    return path
