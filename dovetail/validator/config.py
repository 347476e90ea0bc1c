"""What an operator may set on a validator. Reading files, environment and flags is the command line's business."""

from dataclasses import dataclass, field
from pathlib import Path

from dovetail.ledger.limits import Limits


@dataclass(frozen=True)
class ValidatorConfig:
    """One typed configuration; the command line fills it and names key, value and what is allowed when it cannot."""

    data_dir: Path
    """Holds the store, and ``genesis.batch`` (a serialized GenesisData) until block 0 is made from it."""

    key_file: Path
    """The node's private key, 64 hex characters: signs blocks."""

    bind: str = "tcp://127.0.0.1:4004"
    verifier_processes: int = 0
    """Processes that check signatures; 0: one for each processor core."""

    limits: Limits = field(default_factory=Limits)

    state_depth_blocks: int = 0
    """How many of the newest states stay in the store; 0: all."""

    connection_key: str = ""
    """The file of its secret connection key; empty: its port asks nobody for a key."""

    allowed_keys: str = ""
    """The folder with the public connection keys that may connect, in ``processors`` and in ``clients``."""

    insecure: bool = False
    """Whether it may listen without keys on another address than loopback."""
