"""Nodes with settings and failures that a node behind a URL does not have, and the rows that need them.

Rules do not belong here.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.conformance.wire import Http
from tests.conformance.world import World
from tests.system.e2e.network import Network
from tests.system.e2e.script_family import Gate


class Nodes:
    """Makes nodes that end with the row; shared nodes end with ``shared``. ``connect`` opens a client for a URL."""

    def __init__(self, folder: Path, connect: Callable[[str], Http], shared: "Nodes | None" = None) -> None:
        self._folder = folder
        self._connect = connect
        self._shared = shared
        self._worlds: dict[frozenset[tuple[str, str]], tuple[Network, World]] = {}
        self.gate = Gate()
        self.networks: list[Network] = []
        self.https: list[Http] = []

    def network(self, **settings: str) -> Network:
        """A node that is not started. The names in ``settings`` lack the prefix DOVETAIL_."""
        environment = {f"DOVETAIL_{name}": value for name, value in settings.items()}
        self.networks.append(Network(self._folder / f"node{len(self.networks)}", **environment))
        return self.networks[-1]

    def world(self, url: str) -> World:
        """A client of the REST API at ``url``."""
        self.https.append(self._connect(url))
        return World(self.https[-1])

    def up(self, **settings: str) -> World:
        """A running node."""
        network = self.network(**settings)
        network.up()
        return self.world(network.rest_url)

    def shared_up(self, **settings: str) -> tuple[Network, World]:
        """A running node that other rows use too: a row must leave its settings and its processes as they are."""
        if self._shared is not None:
            return self._shared.shared_up(**settings)
        key = frozenset(settings.items())
        if key not in self._worlds:
            world = self.up(**settings)
            self._worlds[key] = self.networks[-1], world
        network, world = self._worlds[key]
        world.http.forget()
        return network, world

    def transcript(self) -> str:
        """Requests and answers, and the output of the processes."""
        own = [*(http.transcript() for http in self.https), *(node.transcript() for node in self.networks)]
        return "\n".join([*own, self._shared.transcript() if self._shared else ""])

    def close(self) -> None:
        self.gate.close()
        for http in self.https:
            http.close()
        for network in self.networks:
            network.close()


class Surrounded(NamedTuple):
    """A rule and the function that tests it. The function gets a maker of nodes."""

    id: str
    rule: str
    run: Callable[[Nodes], None]


def surrounded(
    table: list[Surrounded], rule_id: str, text: str
) -> Callable[[Callable[[Nodes], None]], Callable[[Nodes], None]]:
    """Add the decorated function to the table."""

    def add(run: Callable[[Nodes], None]) -> Callable[[Nodes], None]:
        table.append(Surrounded(rule_id, text, run))
        return run

    return add
