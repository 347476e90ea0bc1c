"""The command lines of a node's processes, which ``up`` supervises and ``bench`` measures."""

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from dovetail.node.supervisor import Part

INTKEY: Final = "families.intkey.handler:IntkeyHandler"

_NAME_CHARACTERS_MAX: Final = 24
"""The most characters of a part's name, which becomes a piece of a socket's name. Socket names must be short."""


def node_parts(
    *,
    data_dir: Path,
    key_file: Path,
    validator_bind: str,
    rest_bind: str,
    processors: Sequence[tuple[str, str]],
    extra: Sequence[str] = (),
    under: Mapping[str, Sequence[str]] | None = None,
    insecure: bool = False,
) -> list[Part]:
    """Validator, REST API and processors. Processors end first, so that the validator takes their last results.

    ``processors``: name of the part and MODULE:HANDLER. ``extra``: arguments at the end of every command. ``under``:
    Python's own arguments, by the part's name. ``insecure``: the validator may listen on any address without keys.
    """
    # Addresses are flags, because flags win over an environment that may name other addresses.
    endpoint = reachable(validator_bind)

    def part(name: str, *words: str, ends: int) -> Part:
        return Part(name, [sys.executable, *(under or {}).get(name, ()), "-m", "dovetail", *words, *extra], ends=ends)

    data = ("--data-dir", str(data_dir), "--key-file", str(key_file), *(("--insecure",) if insecure else ()))
    return [
        part("validator", "validator", *data, "--bind", validator_bind, ends=2),
        part("rest-api", "rest-api", "--bind", rest_bind, "--validator", endpoint, ends=1),
        *(part(name, "processor", handler, "--connect", endpoint, ends=0) for name, handler in processors),
    ]


def part_name(family_name: str, taken: Collection[str]) -> str:
    """A name for the part that runs a family's processor: the family's, fit for a file name, and not in ``taken``."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", family_name).lstrip(".-")[:_NAME_CHARACTERS_MAX] or "processor"
    used = {"validator", "rest-api", *taken}
    return next(
        free for free in (name, *(f"{name}-{number}" for number in range(2, len(used) + 3))) if free not in used
    )


def reachable(address: str) -> str:
    """The address that reaches a socket bound to ``address``: loopback, if it is bound to all interfaces."""
    return address.replace("//*:", "//127.0.0.1:").replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:")
