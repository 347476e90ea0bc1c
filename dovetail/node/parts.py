"""The processes that make one node, as command lines: what ``up`` supervises and what ``bench`` measures."""

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from dovetail.node.supervisor import Part

INTKEY: Final = "families.intkey.handler:IntkeyHandler"
SETTINGS: Final = "families.settings.handler:SettingsHandler"

_NAME_CHARACTERS_MAX: Final = 24
"""Of a part that is called by its family: a socket's name has little room."""


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
    """Validator, REST API and processors (name and handler), which end first, so that they drain into a validator.

    ``extra`` follows every command; ``under`` stands between Python and a part's, by the part's name. ``insecure``: the
    validator may listen without keys anywhere.
    """
    # Spelled as flags for each part: what the environment says of the others' addresses must not lead them astray.
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
    """What the part that runs a family's processor is called: by the family, but fit for a file, and not as another."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", family_name).lstrip(".-")[:_NAME_CHARACTERS_MAX] or "processor"
    used = {"validator", "rest-api", *taken}
    return next(
        free for free in (name, *(f"{name}-{number}" for number in range(2, len(used) + 3))) if free not in used
    )


def reachable(address: str) -> str:
    """Where to reach what is bound at ``address``: an address that means "all" is reached through loopback."""
    return address.replace("//*:", "//127.0.0.1:").replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:")
