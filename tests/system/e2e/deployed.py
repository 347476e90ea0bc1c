"""Reads docs/how-to/daemons.md and the files under deploy, and replaces their addresses by those of a test's node.

Rules on parts, units and services do not belong here.
"""

import re
import sys

from tests.system.e2e.network import Network, ReservedPort
from tests.system.e2e.process import ROOT, Process

PAGE = (ROOT / "docs" / "how-to" / "daemons.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text under a heading of the page."""
    found = re.search(rf"(?ms)^## {re.escape(title)}$(.*?)(?=^## |\Z)", PAGE)
    assert found, title
    return found[1]


def lines_of(title: str) -> list[str]:
    """The command lines of a section."""
    return [line for block in re.findall(r"```sh\n(.*?)```", section(title), re.DOTALL) for line in block.splitlines()]


class Place:
    """A node's own addresses, in place of those that the page and the files under deploy name."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._ports = [ReservedPort() for _ in range(4)]
        self._free = iter(self._ports)
        self._metrics: dict[str, str] = {}
        network.environment |= {
            "DOVETAIL_VALIDATOR_DATA_DIR": str(network.data),
            "DOVETAIL_VALIDATOR_BIND": network.validator_url,
            "DOVETAIL_REST_API_BIND": network.rest_bind,
            "DOVETAIL_REST_API_VALIDATOR": network.validator_url,
            "DOVETAIL_PROCESSOR_CONNECT": network.validator_url,
        }

    def named(self, text: str) -> str:
        text = re.sub(r"tcp://(10\.0\.0\.4|0\.0\.0\.0|validator):4004", self.network.validator_url, text)
        text = re.sub(r"(127\.0\.0\.1|0\.0\.0\.0):8080", self.network.rest_bind, text)
        return text.replace("('127.0.0.1', 4004)", str(("127.0.0.1", int(self.network.validator_url.split(":")[2]))))

    def with_metrics(self, text: str, owner: str) -> str:
        """The result of ``named``, with the address for the metrics of ``owner``."""
        if "9464" in text and owner not in self._metrics:
            self._metrics[owner] = f"127.0.0.1:{next(self._free).number}"
        return re.sub(r"(127\.0\.0\.1|0\.0\.0\.0):9464", self._metrics.get(owner, ""), self.named(text))

    def start(self, words: list[str], name: str, **environment: str) -> Process:
        """Start ``dovetail WORDS`` and leave it running."""
        process = Process(name, [sys.executable, "-m", "dovetail", *words], self.network.environment | environment)
        self.network.processes.append(process)
        return process

    def __enter__(self) -> "Place":
        return self

    def __exit__(self, *_: object) -> None:
        for port in self._ports:
            port.close()
