"""Whether the parts of one node can meet: looked at before any of them starts. Opens nothing."""

from dataclasses import replace

from dovetail.common.errors import Refused
from dovetail.node.config import Config
from dovetail.validator.transport.access import OPEN, AccessPolicy, CannotOpen, is_local, read_access_policy


def check_access_policies(config: Config) -> None:
    """Raise Refused where the validator could not open its port, or asks for keys that a part does not have."""
    try:
        access = read_access_policy(config.validator)
    except CannotOpen as error:
        raise Refused(f"validator: {error}") from None
    for table, part in (("rest_api", config.rest_api), ("processor", config.processor)):
        if access.key is not None and not part.connection_key:
            raise Refused(
                f"the validator asks for keys (validator.connection_key) and [{table}] has none: set its connection_key"
                " and validator_key (docs/how-to/keys.md)"
            )
        if access.key is None and part.connection_key:
            raise Refused(
                f"[{table}] has a connection_key and the validator none, without which it asks nobody for theirs: set"
                " validator.connection_key and allowed_keys (docs/how-to/keys.md)"
            )


def replay_access_policy(config: Config, bind: str) -> AccessPolicy:
    """The access policy of a replay: open on loopback, elsewhere the validator's. Raises Refused."""
    if is_local(bind):
        return OPEN
    try:
        access = read_access_policy(replace(config.validator, bind=bind))
    except CannotOpen as error:
        raise Refused(f"--bind: {error}") from None
    if access.key is not None and not config.processor.connection_key:
        raise Refused(
            f"--bind {bind} asks for keys, and the processors that are started here have none: set connection_key and"
            " validator_key in [processor] (docs/how-to/keys.md)"
        )
    return access
