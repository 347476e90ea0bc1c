"""The processes that make one node, as command lines: what ``up`` supervises and what ``bench`` measures."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dovetail.supervisor import Part

INTKEY: Final = "families.intkey.handler:IntkeyHandler"
SETTINGS: Final = "families.settings.handler:SettingsHandler"


def node_parts(
    *,
    data_dir: Path,
    key_file: Path,
    validator_bind: str,
    rest_bind: str,
    processors: Sequence[tuple[str, str]],
    extra: Sequence[str] = (),
    under: Mapping[str, Sequence[str]] | None = None,
) -> list[Part]:
    """Validator, REST API and processors (name and handler), which end first, so that they drain into a validator.

    ``extra`` follows every command; ``under`` stands between Python and a part's, by the part's name.
    """
    # Spelled as flags for each part: what the environment says of the others' addresses must not lead them astray.
    endpoint = reachable(validator_bind)

    def part(name: str, *words: str, ends: int) -> Part:
        return Part(name, [sys.executable, *(under or {}).get(name, ()), "-m", "dovetail", *words, *extra], ends=ends)

    data = ("--data-dir", str(data_dir), "--key-file", str(key_file))
    return [
        part("validator", "validator", *data, "--bind", validator_bind, ends=2),
        part("rest-api", "rest-api", "--bind", rest_bind, "--validator", endpoint, ends=1),
        *(part(name, "processor", handler, "--connect", endpoint, ends=0) for name, handler in processors),
    ]


def reachable(address: str) -> str:
    """Where to reach what is bound at ``address``: an address that means "all" is reached through loopback."""
    return address.replace("//*:", "//127.0.0.1:").replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:")
