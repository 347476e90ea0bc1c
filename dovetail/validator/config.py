"""The configuration of a validator. The command line reads it from files, environment and options."""

from dataclasses import dataclass, field
from pathlib import Path

from dovetail.ledger.limits import Limits


@dataclass(frozen=True)
class ValidatorConfig:
    data_dir: Path
    """The folder with the store, and with ``genesis.batch`` (a serialized GenesisData) until block 0 is made."""

    key_file: Path
    """The file of the private key that signs blocks: 64 hex characters."""

    bind: str = "tcp://127.0.0.1:4004"
    verifier_processes: int = 0
    """Processes that check signatures; 0: one for each processor core."""

    limits: Limits = field(default_factory=Limits)

    state_depth_blocks: int = 0
    """How many of the newest states stay in the store; 0: all."""

    connection_key: str = ""
    """The file of the validator's secret connection key; empty: the port is open to every peer."""

    allowed_keys: str = ""
    """The folder of the public keys that may connect, in its folders ``processors`` and ``clients``."""

    insecure: bool = False
    """Whether an open port may listen on an address other than loopback."""
